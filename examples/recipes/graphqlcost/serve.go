package graphqlcost

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/sashlimit/sash/core"
)

// Handler answers GraphQL requests.
type Handler struct {
	Schema  *ast.Schema
	Limiter *core.Limiter // with a limit of points
	User    func(*http.Request) string

	// Execute returns the data of an operation, and how many points it took.
	Execute func(ctx context.Context, op *ast.OperationDefinition, variables map[string]any) (data any, points int)
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	decoder.UseNumber()
	if err := decoder.Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, "the request is no JSON", nil)
		return
	}
	op, variables, err := request.Parse(h.Schema)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), nil)
		return
	}
	cost := Cost(op, variables)
	d, err := h.Limiter.AllowCosts(r.Context(), h.User(r), core.Costs{"points": cost})
	d.SetHeaders(w.Header())
	if err := cmp.Or(err, d.Err()); err != nil {
		p := core.ProblemOf(err)
		p.SetHeaders(w.Header())
		refuse(w, p.Status, p.Title, map[string]any{
			"code": "RATE_LIMITED", "cost": cost, "retryAfter": math.Ceil(d.RetryAfter.Seconds()), "never": d.Never(),
		})
		return
	}
	data, points := h.Execute(r.Context(), op, variables)
	ctx := context.WithoutCancel(r.Context())
	if err := d.SettleCosts(ctx, core.Costs{"points": points}); err != nil {
		slog.ErrorContext(ctx, "the most that the query could take stays counted", "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"data": data})
}

func refuse(w http.ResponseWriter, status int, message string, extensions map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{
		"message": message, "extensions": extensions,
	}}})
}
