package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/dashboard"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// told is a message, as far as the tests look at it.
type told struct {
	Policies []struct {
		Name    string
		Limits  string
		History [][5]int
		Wrong   []struct {
			What  string
			Count int
		}
	}
	Others int
	Hot    []struct {
		ID, Policy, Name string
		Requests         int
	}
	Stores []struct {
		Policy   string
		Keys     int
		InFlight int
	}
	Actions *bool
	Find    []string
}

// sum adds up the history of a policy.
func (m *told) sum(name string) (sum [5]int) {
	for _, p := range m.Policies {
		if p.Name == name {
			for _, s := range p.History {
				for i, n := range s {
					sum[i] += n
				}
			}
		}
	}
	return sum
}

// writer is a response that is read while it is written.
type writer struct {
	mu     sync.Mutex
	header http.Header
	status int
	body   bytes.Buffer
	stuck  chan struct{} // a write waits until it is closed, unless it is nil
}

func newWriter() *writer { return &writer{header: make(http.Header), status: http.StatusOK} }

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) { w.status = status }

func (w *writer) Write(b []byte) (int, error) {
	if w.stuck != nil {
		<-w.stuck
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.Write(b)
}

func (w *writer) Flush() {}

func (w *writer) SetWriteDeadline(time.Time) error { return nil }

// messages returns what was written since the last call.
func (w *writer) messages(t *testing.T) (all []told) {
	t.Helper()
	w.mu.Lock()
	text := w.body.String()
	w.body.Reset()
	w.mu.Unlock()
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var m told
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
	}
	return all
}

// open opens a page. It is closed with the context of the test, or by the function.
func open(t *testing.T, h http.Handler) (*writer, func()) {
	t.Helper()
	w := newWriter()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/limits/events", nil))
	}()
	synctest.Wait()
	return w, func() { cancel(); <-done }
}

// first returns the first message of a page, in which seconds that have ended are.
func first(t *testing.T, b *dashboard.Board) told {
	t.Helper()
	time.Sleep(3 * time.Second / 2)
	w, closePage := open(t, dashboard.Handler(b))
	defer closePage()
	return w.messages(t)[0]
}

// inBubble runs f, and then waits until the board has no goroutine any more.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(10 * time.Minute)
	})
}

// Each outcome is counted where pages show it. Calls of Peek are not.
func TestOutcomes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		n := 0
		for outcome := event.Allowed; outcome <= event.ReloadFailed; outcome++ {
			for range n + 1 {
				b.Observe(t.Context(), core.Event{Policy: "p", Outcome: outcome})
			}
			n++
		}
		b.Observe(t.Context(), core.Event{Policy: "p", Outcome: event.Allowed, Mode: store.ModePeek})
		b.Observe(t.Context(), core.Event{Policy: "p", Outcome: event.Denied, Shadow: new(core.Decision)})
		b.Observe(t.Context(), core.Event{
			Policy: "p", Outcome: event.Allowed, Decision: core.Decision{Degraded: true},
		})
		m := first(t, &b)
		// Allowed once and once degraded, listed 5 and skipped 6 times; denied 2 and once for the shadow, banned 3,
		// forbidden 4; failed 8.
		if got, want := m.sum("p"), [5]int{13, 10, 0, 1, 8}; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		wrong := map[string]int{}
		for _, x := range m.Policies[0].Wrong {
			wrong[x.What] = x.Count
		}
		for what, count := range map[string]int{
			"failed (500)": 8, "without a key (400)": 7, "failed refunds": 10,
			"would be denied by the shadow policy": 1, "not decided by the shadow policy": 11,
			"rules files with mistakes": 13, "decided without the store": 1,
		} {
			if wrong[what] != count {
				t.Errorf("%s: %d, want %d", what, wrong[what], count)
			}
		}
		if len(wrong) != 7 {
			t.Errorf("%v", wrong)
		}
	})
}

// What pages show is what was decided: by limits, near the limit, and denied. Of several limiters of a policy, pages
// show the limits of the first that was added. Keys of rules are found in requests only, so they are not looked up
// by name.
func TestDecisionsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := overridden(t, core.NewMemoryStore())
		for _, quota := range []int{10, 20} {
			l := newLimiter(t, core.PerMinute(quota), core.ByText(), core.WithName("p"),
				core.WithObserver(p.board.Observe))
			p.board.Add(l, l, nil)
			p.allow(t, l, "k", 13)
		}
		m := first(t, &p.board)
		if got, want := m.sum("p"), [5]int{23, 3, 2, 0, 0}; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		if len(m.Policies) != 1 || m.Policies[0].Limits != "10/minute" || m.Actions == nil || *m.Actions {
			t.Errorf("%+v, actions %v", m.Policies, m.Actions)
		}
		if got := fmt.Sprint(m.Find); got != "[login order api p]" || len(m.Stores) != 5 || m.Stores[4].Keys != 2 {
			t.Errorf("%s of %+v", got, m.Stores)
		}
	})
}

// Decisions of random seconds, with pauses in which the board's goroutine may end, are all in the history, whether a
// page has looked or was opened later.
func TestHistory(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		inBubble(t, func(t *testing.T) {
			var b dashboard.Board
			h := dashboard.Handler(&b)
			if r.IntN(2) == 0 {
				_, closePage := open(t, h)
				defer closePage()
			}
			begun := time.Now()
			var want [400][5]int // by second
			for time.Since(begun) < 390*time.Second {
				second := int(time.Since(begun) / time.Second)
				for range r.IntN(5) {
					b.Observe(t.Context(), core.Event{Policy: "p", Outcome: event.Allowed})
					want[second][0]++
				}
				if r.IntN(50) == 0 {
					time.Sleep(time.Duration(r.IntN(200)) * time.Second)
				}
				time.Sleep(time.Duration(1+r.IntN(3)) * time.Second)
				synctest.Wait()
			}
			w, closePage := open(t, h)
			defer closePage()
			m := w.messages(t)[0]
			if len(m.Policies) == 0 {
				return // nothing has happened
			}
			total := 0
			last := int(time.Since(begun)/time.Second) - 300
			for second, n := range want {
				if second >= last {
					total += n[0]
				}
			}
			if got := m.sum("p")[0]; got < total-4 || got > total+4 { // a second at each edge
				t.Errorf("seed %#x: %d, want %d", seed, got, total)
			}
		})
	}
}

// Pages are told once a second. One that does not fetch its messages gets the whole history when it does.
func TestPages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		h := dashboard.Handler(&b)
		quick, closeQuick := open(t, h)
		defer closeQuick()
		slow := newWriter()
		slow.stuck = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.ServeHTTP(slow, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		if n := len(quick.messages(t)); n != 1 {
			t.Fatalf("%d first messages", n)
		}
		for range 10 {
			for range 1000 {
				b.Observe(t.Context(), core.Event{Policy: "p", Outcome: event.Allowed})
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		messages, sum := quick.messages(t), 0
		for _, m := range messages {
			sum += m.sum("p")[0]
		}
		if len(messages) < 9 || len(messages) > 10 || sum < 9000 {
			t.Errorf("%d messages with %d decisions", len(messages), sum)
		}
		close(slow.stuck)
		time.Sleep(time.Second)
		synctest.Wait()
		late := slow.messages(t)
		if n := len(late); n < 2 || n > 3 || late[0].sum("p")[0] != 10_000 || late[1].sum("p")[0] != 0 {
			t.Errorf("%d messages, the first with %d decisions", n, late[0].sum("p")[0])
		}
	})
}

// A stream ends when the page is closed, after a minute, and when the board is closed.
func TestStreamsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		h := dashboard.Handler(&b)
		method := http.MethodHead
		stream := func(ctx context.Context) (took func() time.Duration) {
			begun, done := time.Now(), make(chan time.Duration, 1)
			go func() {
				h.ServeHTTP(newWriter(), httptest.NewRequestWithContext(ctx, method, "/events", nil))
				done <- time.Since(begun)
			}()
			return func() time.Duration { return <-done }
		}
		if took := stream(t.Context())(); took != 0 {
			t.Errorf("HEAD: %v", took)
		}
		method = http.MethodGet
		if took := stream(t.Context())(); took != time.Minute {
			t.Errorf("%v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if took := stream(ctx)(); took != 3*time.Second {
			t.Errorf("%v", took)
		}
		for range 2 {
			first, second := stream(t.Context()), stream(t.Context())
			time.Sleep(5 * time.Second)
			b.Close()
			b.Close()
			if took := max(first(), second()); took != 5*time.Second {
				t.Errorf("%v", took)
			}
		}
	})
}

// There are at most 100 pages.
func TestTooManyPages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		h := dashboard.Handler(&b)
		for range 100 {
			w, closePage := open(t, h)
			defer closePage()
			if w.status != http.StatusOK {
				t.Fatal(w.status)
			}
		}
		w, closePage := open(t, h)
		defer closePage()
		if w.status != http.StatusServiceUnavailable {
			t.Error(w.status)
		}
	})
}

// A server that cannot flush gives one message to each request.
func TestStreamWithoutFlush(t *testing.T) {
	var b dashboard.Board
	page, e := dashboard.Handler(&b), echo.New()
	e.GET("/events", echo.WrapHandler(page)) // with a response whose Flush panics
	for _, h := range []http.Handler{page, e} {
		w := httptest.NewRecorder()
		http.TimeoutHandler(h, time.Minute, "").ServeHTTP(w,
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if w.Code != http.StatusOK || strings.Count(w.Body.String(), "data: ") != 1 ||
			!strings.HasPrefix(w.Body.String(), "retry: 1000\n\n") {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
}

// Keys are counted while pages are open, also those that connect again for each message, and two minutes longer.
func TestKeysOfPagesThatPoll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		h := dashboard.Handler(&b)
		hot := func() int {
			w, closePage := open(t, h)
			defer closePage()
			b.Observe(t.Context(), core.Event{Policy: "p", Key: "k", Outcome: event.Allowed})
			return len(w.messages(t)[0].Hot)
		}
		for i := range 300 {
			if n := hot(); n != min(i, 1) {
				t.Fatalf("%d keys after %d seconds", n, i)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if n := hot(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// Only the policies with the most requests are shown, and how many others there are.
func TestManyPolicies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		for i := range 250 {
			for range 1 + i%2*5 {
				b.Observe(t.Context(), core.Event{Policy: fmt.Sprint("p", i), Outcome: event.Allowed})
			}
		}
		m := first(t, &b)
		for _, p := range m.Policies {
			if m.sum(p.Name)[0] != 6 {
				t.Errorf("%s is shown", p.Name)
			}
		}
		if len(m.Policies) != 100 || m.Others != 150 {
			t.Errorf("%d shown, %d not", len(m.Policies), m.Others)
		}
	})
}

// Without a page, counting a decision allocates nothing.
func TestAllocations(t *testing.T) {
	var b dashboard.Board
	e, ctx := core.Event{Policy: "p", Key: "k", Outcome: event.Allowed}, t.Context()
	b.Observe(ctx, e)
	if n := testing.AllocsPerRun(1000, func() { b.Observe(ctx, e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The counts of a policy stay until it is forgotten. Its limiters are dropped when they are closed.
func TestForget(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var b dashboard.Board
		h := dashboard.Handler(&b)
		_, closePage := open(t, h) // keys are counted while a page is open
		defer closePage()
		tenant := func(decisions int) *core.Limiter {
			l := newLimiter(t, core.PerMinute(10), core.Global(), core.WithName("t"), core.WithObserver(b.Observe))
			b.Add(l)
			for range decisions {
				if _, err := l.Allow(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
			}
			return l
		}
		shows := func(desc string, decisions, stores int) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			w, closePage := open(t, h)
			defer closePage()
			m, known := w.messages(t)[0], min(decisions, 1)
			if m.sum("t")[0] != decisions || len(m.Policies) != known || len(m.Hot) != known ||
				len(m.Stores) != stores {
				t.Errorf("%s: %d decisions, want %d; %d policies, keys %v, %d stores", desc, m.sum("t")[0], decisions,
					len(m.Policies), m.Hot, len(m.Stores))
			}
		}
		first, second := tenant(3), tenant(2)
		shows("two", 5, 1)
		first.Close()
		shows("one of two is closed", 5, 1)
		second.Close()
		time.Sleep(2 * time.Second) // what stores hold is shown for a while
		shows("both are closed", 5, 0)
		b.Forget("t")
		shows("forgotten", 0, 0)
		tenant(6)
		shows("a new one", 6, 1)
	})
}
