package graphqlcost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/graphqlcost"
)

var schema = gqlparser.MustLoadSchema(&ast.Source{Input: `
	type Query { shop(id: ID!): Shop }
	type Shop { name: String!, orders(first: Int! = 20): [Order!]! }
	type Order { id: ID!, lines(first: Int! = 10): [Line!]! }
	type Line { product: String! }
`})

func TestCost(t *testing.T) {
	bomb := `query { shop(id: 1) { ...f0 } }`
	for i := range 40 {
		bomb += fmt.Sprintf(` fragment f%d on Shop { ...f%d ...f%d }`, i, i+1, i+1)
	}
	bomb += ` fragment f40 on Shop { name }`
	for _, c := range []struct {
		query, variables string
		cost             int
	}{
		{`{ shop(id: 1) { name } }`, `{}`, 2},
		{`{ shop(id: 1) { name orders(first: 5) { id } } }`, `{}`, 3 + 5},
		{`{ shop(id: 1) { orders { id lines(first: 3) { product } } } }`, `{}`, 2 + 20*(2+3)},
		{`query($n: Int!) { shop(id: 1) { orders(first: $n) { id } } }`, `{"n": 7}`, 2 + 7},
		{`query($n: Int!) { shop(id: 1) { orders(first: $n) { id } } }`, `{"n": "7"}`, 2 + 7},
		{`query($n: Int! = 8) { shop(id: 1) { orders(first: $n) { id } } }`, `{}`, 2 + 8},
		{`{ shop(id: 1) { ...f ... on Shop { name } } } fragment f on Shop { orders(first: 4) { id } }`, `{}`, 3 + 4},
		{`{ shop(id: 1) { orders(first: -5) { id } } }`, `{}`, 3},
		{`{ shop(id: 1) { orders(first: 2000000000) { id lines(first: 2000000000) { product } } } }`, `{}`,
			core.MaxQuota + 1},
		{bomb, `{}`, core.MaxQuota + 1},
	} {
		r := graphqlcost.Request{Query: c.query}
		decoder := json.NewDecoder(strings.NewReader(c.variables))
		decoder.UseNumber()
		if err := decoder.Decode(&r.Variables); err != nil {
			t.Fatal(err)
		}
		op, variables, err := r.Parse(schema)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got := graphqlcost.Cost(op, variables); got != c.cost {
			t.Errorf("%s costs %d, want %d", c.query, got, c.cost)
		}
	}
}

func TestQueriesThatAreRefused(t *testing.T) {
	for _, r := range []graphqlcost.Request{
		{Query: `{ shop(id: 1) { price } }`},
		{Query: `{ shop(id: 1) { orders(first: 99999999999999999999) { id } } }`},
		{Query: `query($n: Int!) { shop(id: 1) { orders(first: $n) { id } } }`},
		{Query: `query($n: Int!) { shop(id: 1) { orders(first: $n) { id } } }`,
			Variables: map[string]any{"n": json.Number("99999999999999999999")}},
		{Query: `{ shop(id: 1) { ...f } } fragment f on Shop { ...f }`},
		{Query: `{ shop(id: 1) { name } }`, OperationName: "other"},
		{Query: `{` + strings.Repeat(` shop(id: 1) { name }`, 1000) + `}`},
	} {
		if op, variables, err := r.Parse(schema); err == nil {
			t.Errorf("%.80s with %v is accepted, and costs %d", r.Query, r.Variables, graphqlcost.Cost(op, variables))
		}
	}
}

// A query takes what it may cost, and gives back what it did not take. Cheap queries pass while a dear one does not.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := core.Limits{core.PerMinute(100), core.PerMinute(1000).Of("points")}
		limiter, err := core.New(limits, core.ByText())
		if err != nil {
			t.Fatal(err)
		}
		h := &graphqlcost.Handler{
			Schema: schema, Limiter: limiter, User: func(*http.Request) string { return "ann" },
			Execute: func(context.Context, *ast.OperationDefinition, map[string]any) (any, int) { return "data", 10 },
		}
		for i, c := range []struct {
			first, status int
			want          string
		}{
			{900, 200, `{"data":"data"}`}, // takes 902, then 10
			{988, 200, `{"data":"data"}`},
			{979, 429, `"code":"RATE_LIMITED","cost":981,"never":false,"retryAfter":60`},
			{978, 200, `{"data":"data"}`},
			{999, 429, `"cost":1001,"never":true,"retryAfter":0`},
			{1, 200, `{"data":"data"}`},
		} {
			body, err := json.Marshal(graphqlcost.Request{
				Query:     `query($n: Int!) { shop(id: 1) { orders(first: $n) { id } } }`,
				Variables: map[string]any{"n": c.first},
			})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body))))
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("query %d: status %d, %s; want %d, %s", i+1, w.Code, w.Body, c.status, c.want)
			}
		}
	})
}
