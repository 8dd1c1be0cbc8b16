package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

const longest = 300 // tokens of an answer

// call is what is known of a request in front of the limiter.
type call struct {
	customer, plan string // of a verified token
	zone           *time.Location
	prompt         string
	most           int // tokens that it may take
}

type callKey struct{}

func callOf(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call)
	return c
}

func newLimiter(store core.Store, opts ...core.Option) (*core.Limiter, error) {
	customer := core.By(func(ctx context.Context) (string, error) { return callOf(ctx).customer, nil })
	return core.New(core.LimitBy(limits), customer, append(opts,
		core.WithName("llm"), core.WithStore(store),
		core.WithCostOf("tokens", func(ctx context.Context) int { return callOf(ctx).most }), // reserved
		core.WithDecisionInContext(),         // the handler settles
		core.WithHeaders(core.HeadersByUnit), // such as X-RateLimit-Remaining-Tokens
		core.WithOverrides(),
		nethttp.WithError(unauthorised),
	)...)
}

// limits are decided together: if one of them denies, none is charged. All plans have the same windows, so that what
// was used stays used when a customer changes the plan.
func limits(ctx context.Context) core.Limits {
	c := callOf(ctx)
	minute, month := 400, 10_000
	if c.plan == "pro" {
		minute, month = 1000, 2_000_000
	}
	return core.Limits{
		core.PerMinute(60), core.InFlight(4),
		core.PerMinute(minute).Of("tokens"),
		core.PerMonth(month).In(c.zone).Of("tokens"),
	}
}

// unauthorised answers requests without a customer with 401 in place of 400.
func unauthorised(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, core.ErrNoKey) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="llm"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// read reads what the limiter needs to know. Without a valid token there is no customer.
func read(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<10))
		if err != nil {
			http.Error(w, "the prompt is too long", http.StatusRequestEntityTooLarge)
			return
		}
		c := call{prompt: string(prompt), most: len(prompt)/4 + longest, zone: time.UTC}
		text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims := jwt.MapClaims{}
		_, err = jwt.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return secret, nil },
			jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
		if err == nil {
			c.customer, _ = claims["sub"].(string)
			c.plan, _ = claims["plan"].(string)
			zone, _ := claims["zone"].(string)
			if in, err := time.LoadLocation(zone); err == nil {
				c.zone = in
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}

// chat streams an answer, and settles the tokens that it took. The permit is free when the handler ends.
func chat(stream func(prompt string, write func(text string)) (tokens int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		decision, _ := core.DecisionFrom(r.Context())
		used := c.most // if the handler panics
		defer func() {
			ctx := context.WithoutCancel(r.Context()) // also when the client has gone
			if err := decision.SettleCosts(ctx, core.Costs{"tokens": used}); err != nil {
				log.Print(err) // what was reserved stays counted
			}
		}()
		flush := http.NewResponseController(w)
		used = stream(c.prompt, func(text string) {
			io.WriteString(w, text)
			flush.Flush()
		})
		fmt.Fprintf(w, "\n(%d tokens)\n", used)
	})
}

// stream stands in for a model: it writes an answer in parts, and returns how many tokens it took.
func stream(prompt string, write func(text string)) (tokens int) {
	for word := range strings.FieldsSeq(prompt) {
		write(strings.ToUpper(word) + " ")
		tokens += 2 // one of the prompt, and one of the answer
	}
	return tokens
}
