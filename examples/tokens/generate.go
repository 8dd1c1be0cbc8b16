package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/sashlimit/sash/core"
)

// models are how many tokens a minute each model has for all customers.
var models = map[string]int{"small": 100_000, "large": 3000}

const longest = 300 // tokens of an answer

type customer struct {
	name   string
	pooled bool // may use the pool after its own tokens
}

// call is in the context of a decision, for limits to choose by.
type call struct {
	model  string
	pooled bool
}

type callKey struct{}

func callOf(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call)
	return c
}

var (
	byModel  = core.By(func(ctx context.Context) (string, error) { return callOf(ctx).model, nil })
	everyone = core.Global()
)

// limits are decided together: if one of them denies, none is charged.
func limits(ctx context.Context) core.Limits {
	c := callOf(ctx)
	tokens := core.PerMinute(1000).Of("tokens") // of the customer
	if c.pooled {
		tokens = core.PerMinute(5000).Of("tokens").By(everyone)
	}
	return core.Limits{
		core.PerMinute(60), core.InFlight(4), // of the customer, too
		tokens,
		core.PerMinute(models[c.model]).Of("tokens").By(byModel),
	}
}

// allow takes a request and reserves tokens. Once the customer's own are used up, it asks with the pool in their place:
// the denial has taken nothing, so the request is counted once.
func allow(ctx context.Context, l *core.Limiter, who customer, model string, tokens int) (core.Decision, error) {
	ask := func(c call) (core.Decision, error) {
		d, err := l.AllowCosts(context.WithValue(ctx, callKey{}, c), who.name, core.Costs{"tokens": tokens})
		return d, cmp.Or(err, d.Err())
	}
	d, err := ask(call{model: model})
	if who.pooled && errors.As(err, new(*core.LimitedError)) {
		return ask(call{model: model, pooled: true})
	}
	return d, err
}

func generate(limiter *core.Limiter, stream func(prompt string, write func(string)) (tokens int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, ok := customers[r.Header.Get("X-API-Key")]
		if !ok {
			http.Error(w, "no such API key", http.StatusUnauthorized)
			return
		}
		model := r.PathValue("model")
		if models[model] == 0 {
			http.Error(w, "no such model", http.StatusNotFound)
			return
		}
		prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<10))
		if err != nil {
			http.Error(w, "the prompt is too long", http.StatusRequestEntityTooLarge)
			return
		}
		used := len(prompt)/4 + longest
		d, err := allow(r.Context(), limiter, who, model, used)
		d.SetHeaders(w.Header())
		if err != nil {
			p := core.ProblemOf(err)
			p.SetHeaders(w.Header())
			w.WriteHeader(p.Status)
			w.Write(p.JSON())
			return
		}
		defer func() {
			ctx := context.WithoutCancel(r.Context()) // also when the client has gone
			if err := errors.Join(d.SettleCosts(ctx, core.Costs{"tokens": used}), d.Release(ctx)); err != nil {
				log.Print(err) // what was reserved stays counted
			}
		}()
		flush := http.NewResponseController(w)
		used = stream(string(prompt), func(text string) {
			io.WriteString(w, text)
			flush.Flush()
		})
		fmt.Fprintf(w, "\n(%d tokens)\n", used)
	}
}
