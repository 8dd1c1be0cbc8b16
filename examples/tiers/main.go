// Tiers gives each customer the quota of his plan, as a verified token has it,
// and everybody else that of the free plan by address.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/nethttp"
)

var secret = []byte(rand.Text() + rand.Text()) // yours comes from your identity provider

type claimsKey struct{}

// limits are asked of one log, so what was used stays used when the plan changes.
func limits(ctx context.Context) core.Limits {
	if claims, _ := ctx.Value(claimsKey{}).(jwt.MapClaims); claims["plan"] == "pro" {
		return core.Limits{core.PerMinute(10)}
	}
	return core.Limits{core.PerMinute(3)}
}

func main() {
	user := jwtkey.ByContextClaim(claimsKey{}, "sub")
	limit := nethttp.New(core.LimitBy(limits), core.First(user, core.ByIP()), core.WithName("api"))
	hello := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!\n") }
	handler := authenticate(limit(http.HandlerFunc(hello)))

	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	fmt.Println("Ann may send 3 requests a minute. After her upgrade it is 10, of which 3 are used: look at RateLimit.")
	for _, plan := range []string{"free", "pro"} {
		claims := jwt.MapClaims{"sub": "ann", "plan": plan, "exp": time.Now().Add(time.Hour).Unix()}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			log.Fatal(err)
		}
		const hint = "\n  for i in 1 2 3 4; do curl -i -H 'Authorization: Bearer %s' http://%s; done\n"
		fmt.Printf(hint, token, listener.Addr())
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

// authenticate stands in for your middleware: it leaves the claims of a valid token in the context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			token, err := jwt.Parse(text, func(*jwt.Token) (any, error) { return secret, nil },
				jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
			if err != nil {
				http.Error(w, "the token is not valid", http.StatusUnauthorized)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), claimsKey{}, token.Claims))
		}
		next.ServeHTTP(w, r)
	})
}
