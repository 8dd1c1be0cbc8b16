package core_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// traces are the forms in which an identity may show in what is printed: as it is, and its bytes in hexadecimal or
// decimal.
func traces(identity string) []string {
	forms := []string{
		identity, hex.EncodeToString([]byte(identity)), decimals([]byte(identity)), fmt.Sprintf("% x", identity),
	}
	a, err := netip.ParseAddr(identity)
	if err != nil {
		return forms
	}
	full := a.As16()
	forms = append(forms, decimals(a.AsSlice()), fmt.Sprintf("%x", a.AsSlice()), fmt.Sprintf("% x", a.AsSlice()))
	var high, low uint64 // as netip keeps it
	for i := range 8 {
		high, low = high<<8|uint64(full[i]), low<<8|uint64(full[8+i])
	}
	words := []uint64{high, low}
	if a.Is4() {
		words = append(words, low&0xffffffff)
	}
	for _, n := range words {
		if n > 0xffffff { // a short number may be printed for another reason, such as a time
			forms = append(forms, fmt.Sprint(n), fmt.Sprintf("%x", n), fmt.Sprintf("%o", n))
		}
	}
	return forms
}

// decimals are bytes as %v and %d print them.
func decimals(b []byte) string {
	texts := make([]string, len(b))
	for i := range b {
		texts[i] = strconv.Itoa(int(b[i]))
	}
	return strings.Join(texts, " ")
}

// keeper keeps what a store is asked, to be printed. It fails when told so.
type keeper struct {
	*core.MemoryStore
	fail   bool
	failed error

	mu    sync.Mutex // as shadows ask at the same time
	asked []any
}

func (k *keeper) keep(values ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, values...)
}

func (k *keeper) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	first := takes[0] // takes are used again afterwards
	k.keep(first, &first)
	if k.fail {
		return k.failed
	}
	return k.MemoryStore.Take(ctx, takes, answers)
}

func (k *keeper) Settle(ctx context.Context, s store.Settlement) error {
	k.keep(s, &s)
	return k.MemoryStore.Settle(ctx, s)
}

func (k *keeper) Merge(_ context.Context, m store.MergeRequest) error {
	k.keep(m, &m)
	return nil
}

func (k *keeper) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	k.keep(store.MergeRequest{Key: key, Entries: []store.Entry{{Age: time.Second, Cost: 1}}})
	return k.MemoryStore.Reset(ctx, key, limits, young)
}

// printable is all that one limiter gives to its callers, its observer and its store.
func printable(t *testing.T, key core.Key, r web, text string, opts ...core.Option) (all []any) {
	t.Helper()
	memory := core.NewMemoryStore()
	store := &keeper{MemoryStore: memory, failed: errors.New("no store for " + text)}
	var events []core.Event
	opts = append(opts, core.WithStore(store), core.WithDenyCache(0), core.WithFailure(core.FailOpen),
		core.WithShadow(core.PerMinute(1)), core.WithBan(2, time.Minute, time.Minute),
		core.WithDenyList(core.By(func(context.Context) (string, error) { return "nobody", nil }), text),
		core.WithDenyList(core.ByIP(), "203.0.113.77"),
		core.WithRefund(func(context.Context, int) bool { return true }),
		core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }),
	)
	l := newLimiterBy(t, core.PerMinute(2), key, opts...)
	all = append(all, l, *l, memory)
	for i := range 5 {
		store.fail = i == 4
		d, err := l.Check(r)
		must(t, err)
		all = append(all, d, &d, core.LimitedError{Decision: d}, &core.LimitedError{Decision: d})
		if i == 0 {
			d.Serve(func() int { return 200 })
		}
		must(t, d.Settle(t.Context(), 2))
	}
	store.fail = false
	must(t, l.Reset(t.Context(), text))
	for _, e := range events {
		if e.Key != "" && e.Key != text {
			t.Fatalf("the observer heard of %q, want %q", e.Key, text)
		}
		all = append(all, e, &e)
		if e.Shadow != nil {
			all = append(all, e.Shadow)
		}
	}
	return append(all, store.asked...)
}

// printings is v through every verb, both handlers of slog and JSON, by itself and within other values.
func printings(v any) []string {
	var texts []string
	within := []any{
		v, []any{v}, map[string]any{"v": v}, struct{ V any }{v}, &struct{ V any }{v}, struct{ V []any }{[]any{v}},
	}
	if e, ok := v.(error); ok {
		within = append(within, errors.Join(e, errors.New("other")), fmt.Errorf("wrapped: %w", e),
			fmt.Errorf("printed: %v", e), //nolint:errorlint // as somebody may write it
		)
	}
	switch v := v.(type) {
	case core.Decision:
		within = append(within, []core.Decision{v}, struct{ D core.Decision }{v}, struct{ core.Decision }{v}, v.Err())
	case core.Event:
		within = append(within, []core.Event{v}, struct{ E core.Event }{v}, fmt.Errorf("an event: %v", v))
	}
	for i, v := range within {
		verbs := []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"}
		if i == 0 {
			verbs = append(verbs, "%+q", "%+d", "%X", "% x", "%#x", "%200v", "%o", "%b", "%t", "%c", "%U", "%e")
		}
		for _, verb := range verbs {
			texts = append(texts, verb+": "+fmt.Sprintf(verb, v))
		}
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("printed", "value", v, slog.Group("group", "value", v))
		slog.New(slog.NewJSONHandler(&b, nil)).Info("printed", "value", v, slog.Group("group", "value", v))
		texts = append(texts, b.String())
		if b, err := json.Marshal(v); err == nil {
			texts = append(texts, "JSON: "+string(b))
		}
	}
	return texts
}

// Nothing that reaches a log by accident tells an identity.
func TestPrintingTellsNoIdentity(t *testing.T) {
	const text, header, addr4, addr6 = "ada.lovelace@example.com", "key-7c1f09e2", "203.0.113.9", "2001:db8:1:2:3:4:5:6"
	by := core.By(func(context.Context) (string, error) { return text, nil })
	byHeader := core.ByHeader("X-API-Key", core.Unverified)
	for _, secret := range [][]core.Option{nil, {core.WithSecret([]byte("sixteen bytes or more"))}} {
		for _, c := range []struct {
			desc     string
			key      core.Key
			req      web
			identity string
			opts     []core.Option
		}{
			{"IPv4", core.ByIP(), from(addr4 + ":1"), addr4, nil},
			{"IPv6", core.ByIP(), from("[" + addr6 + "]:1"), addr6, []core.Option{core.WithIPv6Prefix(128)}},
			{"forwarded", core.ByForwardedIP("10.0.0.0/8"), from("10.0.0.1:1", "X-Forwarded-For", addr4), addr4, nil},
			{"header", byHeader, from("192.0.2.1:1", "X-API-Key", header), header, nil},
			{"by", by, from("192.0.2.1:1"), text, nil},
		} {
			if secret != nil && c.identity != addr4 && c.identity != text {
				continue // a secret is about the store, not about what is printed
			}
			values := printable(t, c.key, c.req, c.identity, append(secret, c.opts...)...)
			if len(values) < 60 {
				t.Errorf("%s: %d values", c.desc, len(values))
			}
			forms := traces(c.identity)
			for _, v := range values {
				printed := strings.ToLower(strings.Join(printings(v), "\n"))
				for _, form := range forms {
					if strings.Contains(printed, form) {
						t.Fatalf("%s: %T printed shows %s:\n%s", c.desc, v, form, printed)
					}
				}
			}
		}
	}
}

// Printed decisions and events tell what kind of override decided, and neither its key nor its note.
func TestPrintedOverride(t *testing.T) {
	const key, note = "ada.lovelace@example.com", "ticket of ada"
	var last core.Event
	l := newLimiter(t, core.PerMinute(2), core.WithOverrides(),
		core.WithObserver(func(_ context.Context, e core.Event) { last = e }))
	for kind, o := range map[string]core.Override{
		"denied": {Denied: true}, "unlimited": {Unlimited: true}, "limits": {Limits: core.Limits{core.PerMinute(3)}},
	} {
		o.Note = note
		overrideIn(t, l, key, o)
		d := askOnce(t, l, key)
		if text := fmt.Sprint(d); !strings.HasSuffix(text, " override="+kind+"}") {
			t.Error(text)
		}
		if text := fmt.Sprint(last); !strings.Contains(text, " override="+kind+"}") {
			t.Error(text)
		}
		printed := strings.Join(append(printings(d), printings(last)...), "\n")
		if strings.Contains(printed, "ada") || strings.Contains(printed, "ticket") {
			t.Errorf("printed:\n%s", printed)
		}
	}
}

// Printed decisions and events fit on one short line.
func TestPrintedDecision(t *testing.T) {
	d := core.Decision{
		Allowed: false, Remaining: 0, Used: 3, RetryAfter: 12*time.Second + 7, ResetAfter: 12 * time.Second,
		Policy: "api", Violated: []string{"a", "b"}, Banned: true, Degraded: true,
	}
	const want = "Decision{policy=api allowed=false remaining=0 used=3 retry_after=12s reset_after=12s " +
		"violated=a,b banned=true degraded=true}"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if got := fmt.Sprintf(verb, d); got != want {
			t.Errorf("%s: %s\nwant %s", verb, got, want)
		}
		if got := fmt.Sprintf(verb, &d); got != want {
			t.Errorf("%s of a pointer: %s\nwant %s", verb, got, want)
		}
	}
	if got := fmt.Sprintf("%q", d); got != `"`+want+`"` {
		t.Errorf("%%q: %s", got)
	}
	if got := fmt.Sprintf("%5.12s|", d); got != want[:12]+"|" {
		t.Errorf("%%5.12s: %s", got)
	}
	if got := fmt.Sprint((*core.Decision)(nil), (*core.Limiter)(nil), core.Decision{}); strings.Contains(got, "PANIC") {
		t.Error(got)
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("denied", "decision", d)
	for _, want := range []string{"decision.policy=api ", "decision.allowed=false ", "decision.retry_after=12s ",
		"decision.violated=a,b "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the log lacks %s: %s", want, b.String())
		}
	}
	e := core.Event{
		Decision: d,
		Err:      &core.StoreError{Err: errors.New("of ada"), Class: "timeout"},
		Key:      "ada",
		Policy:   "api", Outcome: event.Refunded, Cost: 2, Took: time.Second,
		Shadow: &core.Decision{Allowed: true},
	}
	const wantEvent = "Event{policy=api outcome=refunded source=none mode=charge cost=2 took=1s " +
		"decision={policy=api allowed=false remaining=0 used=3 retry_after=12s " +
		"reset_after=12s violated=a,b banned=true degraded=true} " +
		`error="*store.StoreError(timeout) *errors.errorString" ` +
		"shadow={allowed=true remaining=0 used=0 retry_after=0s reset_after=0s}}"
	if got := fmt.Sprintf("%+v", e); got != wantEvent {
		t.Errorf("%s\nwant %s", got, wantEvent)
	}
	limited := &core.LimitedError{Decision: d}
	for _, got := range []string{fmt.Sprint(limited), fmt.Sprint(*limited), fmt.Sprintf("%#v", limited),
		fmt.Errorf("%w", limited).Error()} {
		if got != limited.Error() {
			t.Errorf("%s, want %s", got, limited.Error())
		}
	}
	l := newLimiterBy(t, core.Limits{core.PerMinute(2), core.PerHour(5)}, core.ByIP(), core.WithName("api"))
	if got, want := fmt.Sprint(l), "Limiter{policy=api limits=2/minute,5/hour store=*core.MemoryStore}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A store.Key prints as its policy and kind, whatever the verb.
func TestPrintedKey(t *testing.T) {
	var key store.Key
	logs := &double{Full: core.NewMemoryStore(), take: func(takes []store.Take, ask func() error) error {
		key = takes[0].Key
		return ask()
	}}
	l := newLimiter(t, core.PerMinute(2), core.WithStore(logs), core.WithName("api"))
	if _, err := l.Allow(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if name := key.String(); !strings.HasPrefix(name, "api:own.by:") {
		t.Errorf("the name is %s", name)
	}
	const want = "Key[policy=api kind=by]"
	for verb, want := range map[string]string{
		"%v": want, "%s": want, "%q": `"` + want + `"`, "%x": want, "%+v": want, "%#v": want, "%d": want,
	} {
		if got := fmt.Sprintf(verb, key); got != want {
			t.Errorf("%s: %s, want %s", verb, got, want)
		}
	}
}
