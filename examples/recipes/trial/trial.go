// Package trial gives each customer a number of requests for ever. Your database counts them: a limiter forgets a
// request after 365 days at the latest, and with Redis what Redis loses.
package trial

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// ErrEnded means that a customer has used the whole trial.
var ErrEnded = errors.New("the trial has ended")

// Trial is how many requests each customer has in all, at least 1.
type Trial struct {
	DB    *sql.DB
	Quota int
}

// Schema is the table.
const Schema = `CREATE TABLE IF NOT EXISTS trials (customer TEXT PRIMARY KEY, used INTEGER NOT NULL)`

// Take uses one request, and returns how many are left. The database decides in one statement, so that no customer gets
// more, however many ask at once. PostgreSQL and SQLite have this statement.
func (t Trial) Take(ctx context.Context, customer string) (left int, err error) {
	const take = `INSERT INTO trials (customer, used) VALUES ($1, 1)
		ON CONFLICT (customer) DO UPDATE SET used = trials.used + 1 WHERE trials.used < $2 RETURNING used`
	var used int
	err = t.DB.QueryRowContext(ctx, take, customer, t.Quota).Scan(&used)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrEnded
	}
	return t.Quota - used, err
}

// New limits requests by the trial of their customer, whom your authentication has found. The limits protect the
// database, which is asked about each request that they admit, also after the trial.
func (t Trial) New(limits core.Policy, customer func(*http.Request) string, next http.Handler) http.Handler {
	key := core.By(func(r *http.Request) (string, error) { return customer(r), nil })
	limit := nethttp.New(limits, key, core.WithName("trial"))
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch left, err := t.Take(r.Context(), customer(r)); {
		case errors.Is(err, ErrEnded):
			http.Error(w, err.Error(), http.StatusPaymentRequired) // no wait helps
		case err != nil:
			slog.ErrorContext(r.Context(), "no request of a trial is served", "error", err)
			http.Error(w, "", http.StatusServiceUnavailable)
		default:
			w.Header().Set("X-Trial-Left", strconv.Itoa(left))
			next.ServeHTTP(w, r)
		}
	}))
}
