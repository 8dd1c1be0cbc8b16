// Package graphqlcost limits GraphQL queries by what they cost.
package graphqlcost

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/sashlimit/sash/core"
)

// Request is a GraphQL request in JSON.
type Request struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName"`
	Variables     map[string]any `json:"variables"`
}

// Parse reads the query of a request, and returns its operation and its variables.
func (r *Request) Parse(schema *ast.Schema) (*ast.OperationDefinition, map[string]any, error) {
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: r.Query}, 2000)
	if err != nil {
		return nil, nil, err
	}
	if errs := validator.ValidateWithRules(schema, doc, rules.NewDefaultRules()); len(errs) > 0 {
		return nil, nil, errs
	}
	op := doc.Operations.ForName(r.OperationName)
	if op == nil {
		return nil, nil, errors.New("the query has no such operation")
	}
	variables, err := validator.VariableValues(schema, op, r.Variables)
	return op, variables, err
}

// Cost returns the most points that an operation can take: one for each field, for each item that "first" asks for.
func Cost(op *ast.OperationDefinition, variables map[string]any) int {
	c := coster{variables, map[*ast.FragmentDefinition]int{}}
	return c.cost(op.SelectionSet)
}

type coster struct {
	variables map[string]any
	fragments map[*ast.FragmentDefinition]int // so that fragments within fragments take no exponential time
}

func (c *coster) cost(set ast.SelectionSet) int {
	points := 0
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			points += 1 + c.items(s)*c.cost(s.SelectionSet)
		case *ast.InlineFragment:
			points += c.cost(s.SelectionSet)
		case *ast.FragmentSpread:
			if _, known := c.fragments[s.Definition]; !known {
				c.fragments[s.Definition] = c.cost(s.Definition.SelectionSet)
			}
			points += c.fragments[s.Definition]
		}
		points = min(points, core.MaxQuota+1) // a cost above each quota
	}
	return points
}

// items is how many items a field can return. A text is a number here, as gqlparser takes it for one.
func (c *coster) items(f *ast.Field) int {
	first := f.ArgumentMap(c.variables)["first"]
	if first == nil {
		return 1
	}
	n, err := strconv.Atoi(fmt.Sprint(first))
	if err != nil {
		return core.MaxQuota
	}
	return min(max(n, 1), core.MaxQuota)
}
