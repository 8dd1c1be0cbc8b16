// Login limits wrong passwords: 5 a minute for a name at an address, and 20 for
// an address. With REDIS_URL set, several of it share what they have counted.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/nethttp"
)

const hint = `Right passwords do not count. The last of six wrong ones gets 429, and so does then the right one:

  curl -i -d name=ann -d 'password=correct horse' http://%[1]s/login
  for i in 1 2 3 4 5 6; do curl -i -d name=ann -d password=guess http://%[1]s/login; done
`

func main() {
	store, err := redisurl.Store()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	fmt.Printf(hint, listener.Addr())
	server := &http.Server{Handler: login(store, check), ReadTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

func login(store core.Store, check func(name, password string) bool) http.Handler {
	// A login can wait for a slow Redis: without it each server would allow as many guesses.
	patient := core.WithTimeout(5 * time.Second)
	onlyWrong := core.WithRefund(func(_ *http.Request, status int) bool { return status != http.StatusUnauthorized })
	byIP := nethttp.New(core.Limits{core.PerMinute(20), core.PerHour(100)}, core.ByIP(),
		core.WithName("login-ip"), core.WithStore(store), patient, onlyWrong)

	// By name alone, anybody could lock its owner out. By name and address, a client that keeps guessing stays
	// out, and nobody else. Addresses have no WithCountDenied and no WithBan: many people may share one.
	byName := nethttp.New(core.Limits{core.PerMinute(5), core.PerHour(20)}, core.Join(core.By(name), core.ByIP()),
		core.WithName("login-name"), core.WithStore(store), patient, onlyWrong, core.WithCountDenied(),
		core.WithHeaders(core.HeadersNone)) // what is left would tell who else tries that name

	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, _ := name(r); !check(who, r.PostFormValue("password")) {
			http.Error(w, "wrong name or password", http.StatusUnauthorized)
			return
		}
		io.WriteString(w, "Hello!\n")
	})
	mux := http.NewServeMux()
	// byName reads the form before it can decide, so the form is small, and byIP has let it pass.
	mux.Handle("POST /login", http.MaxBytesHandler(byIP(byName(answer)), 4<<10))
	return mux
}

// name is as check takes it: were "Ann" checked as "ann" but counted apart, each spelling had a quota.
func name(r *http.Request) (string, error) { return strings.ToLower(r.PostFormValue("name")), nil }

// check stands in for yours, which takes its time, and no less for a name that does not exist.
func check(name, password string) bool { return name == "ann" && password == "correct horse" }
