package dashboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/dashboard"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/core/store"
)

// overrides is the answer of the page about overrides.
type overrides struct {
	Keys      []struct{ Policy, Name string }
	Overrides []struct {
		ID, Of, Policy, Key, What, Note string
		Until                           time.Time
	}
	Others   int
	Failed   []string
	Versions []struct {
		File, Hash string
		Loaded     time.Time
		Processes  int
	}
}

func listed(t *testing.T, h http.Handler, header ...string) (o overrides) {
	t.Helper()
	w := serve(t, h, http.MethodPost, "/overrides", "{}", header...)
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	return o
}

// overridden has limiters that look for overrides, one of them with rules.
func overridden(t *testing.T, s core.Store) (p *shop, set *rules.Set) {
	t.Helper()
	p = newShop(t, s)
	limits := core.Limits{core.PerMinute(3), {Name: "all", Quota: 9, Window: time.Minute}}
	limits[1] = limits[1].By(core.Global())
	opts := []core.Option{core.WithOverrides(), core.WithStore(s), core.WithObserver(p.board.Observe)}
	api := newLimiter(t, limits, core.ByIP(), append(opts, core.WithName("api"))...)
	set, err := rules.Parse(
		[]byte("rules:\n- {name: search, match: {path: /s}, key: {value: user}, limits: [3/minute]}\n"+
			"- {name: rest, key: ip, limits: [3/minute, {limit: 9/hour, key: {value: org}, name: orgs}]}\n"),
		"limits.yaml",
		rules.WithOptions(opts...),
	)
	if err != nil {
		t.Fatal(err)
	}
	l, err := set.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	p.login = api
	p.board.Add(api, l)
	return p, set
}

// Overrides are set for each kind of key, listed, and removed. Names, addresses and notes are shown to those who may
// see them.
func TestOverrides(t *testing.T) {
	p, set := overridden(t, core.NewMemoryStore())
	admin := func(r *http.Request) bool { return r.Header.Get("X-User") == "admin" }
	h := dashboard.Handler(&p.board, dashboard.WithActions(admin))
	named := dashboard.Handler(&p.board, dashboard.WithActions(admin), dashboard.WithIdentities())
	const keys = "[{api api} {api api/all} {rules search} {rules rest} {rules rest/orgs}]"
	if got := fmt.Sprint(listed(t, h).Keys); got != keys {
		t.Errorf("keys: %s", got)
	}
	set1 := func(question string, header ...string) (int, string) {
		w := serve(t, h, http.MethodPost, "/override", question, header...)
		return w.Code, w.Body.String()
	}
	for _, question := range []string{
		`{"policy":"api","name":"api","key":"192.0.2.7","kind":"limits","limits":"600/minute, 9000/day","for":"3d",` +
			`"note":"<b>ticket</b> 4711"}`,
		`{"policy":"api","name":"api/all","key":"","kind":"unlimited","for":"30m"}`,
		`{"policy":"rules","name":"search","key":"<i>ann</i>","kind":"denied","for":" 1h "}`,
		`{"policy":"rules","name":"rest/orgs","key":"acme","kind":"limits","limits":"5/hour","for":"` +
			time.Now().Add(96*time.Hour).UTC().Format(time.RFC3339) + `"}`,
	} {
		if code, body := set1(question); code != http.StatusForbidden {
			t.Errorf("nobody: %d, %s", code, body)
		}
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
			if code, body := set1(question, append(header, "X-User", "admin")...); code != http.StatusForbidden {
				t.Errorf("another site: %d, %s", code, body)
			}
		}
		if code, body := set1(question, "X-User", "admin"); code != http.StatusNoContent {
			t.Errorf("%s: %d, %s", question, code, body)
		}
	}
	d, err := p.login.Peek(t.Context(), "192.0.2.7")
	if err != nil || d.Limits()[0].Quota != 600 { // the other is unlimited
		t.Error(d, err)
	}
	if all, err := set.Overrides(t.Context()); err != nil || len(all) != 2 {
		t.Error(all, err)
	}
	all := listed(t, named)
	var got []string
	for _, o := range all.Overrides {
		until := time.Until(o.Until).Round(time.Hour / 2).String()
		got = append(got, strings.Join([]string{o.Policy, o.Key, o.What, o.Note, until}, "|"))
	}
	if got := strings.Join(got, "\n"); got != "api||unlimited||30m0s\nsearch|<i>ann</i>|denied||1h0m0s\n"+
		"api|192.0.2.7|600/minute, 9000/day|<b>ticket</b> 4711|72h0m0s\nrest|acme|5/hour||96h0m0s" {
		t.Errorf("overrides:\n%s", got)
	}
	hidden, acting := listed(t, h), listed(t, h, "X-User", "admin")
	text := fmt.Sprint(hidden)
	for _, name := range []string{"192.0.2", "ann", "acme", "ticket"} {
		if strings.Contains(text, name) {
			t.Errorf("without identities: %s", text)
		}
	}
	if hidden.Overrides[1].Key == "" || acting.Overrides[2].Note != "<b>ticket</b> 4711" ||
		acting.Overrides[2].Key != hidden.Overrides[2].Key {
		t.Errorf("%+v, %+v", hidden, acting)
	}
	if w := ask(t, named, `{"policy":"api","key":"192.0.2.7"}`, "X-User", "admin"); w.Denied ||
		w.Limits[1].Quota != 600 {
		t.Errorf("%+v", w)
	}
	for i, o := range all.Overrides {
		question := fmt.Sprintf(`{"policy":%q,"id":%q}`, o.Of, o.ID)
		if w := serve(t, h, http.MethodPost, "/remove-override", question); w.Code != http.StatusForbidden {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
			if w := serve(t, h, http.MethodPost, "/remove-override", question, "X-User", "admin"); w.Code != want {
				t.Errorf("%s: %d, want %d: %s", question, w.Code, want, w.Body)
			}
		}
		if left := listed(t, h).Overrides; len(left) != len(all.Overrides)-1-i {
			t.Errorf("left: %+v", left)
		}
	}
}

// Every mistake is told as text. What a store says is not.
func TestOverrideMistakes(t *testing.T) {
	s := new(coretest.FakeStore)
	p, _ := overridden(t, s)
	h := dashboard.Handler(&p.board, dashboard.WithActions(anybody))
	long := strings.Repeat("n", 201)
	const right = `"policy":"api","name":"api","key":"192.0.2.7","kind":"denied","for":"1h"`
	for question, want := range map[string]struct {
		code  int
		texts []string
	}{
		`"kind":"limits","limits":"5/fortnight, x","for":"soon"`: {
			422, []string{
				"fortnight", `"x"`, `"soon"): this is neither a length of time nor a date; write one such as "30m"`,
			},
		},
		`"for":"400d","note":"` + long + `"`: {422, []string{"more than a year ahead", "201 bytes of Note"}},
		`"kind":""`:                          {422, []string{"exactly one must be set"}},
		`"for":""`:                           {422, []string{"neither a length"}},
		`"for":"-1h"`:                        {422, []string{"in the past"}},
		`"key":"ann"`:                        {422, []string{"ByIP finds no such key"}},
		`"key":""`:                           {400, []string{"enter the name of a key"}},
		`"name":"other"`:                     {422, []string{"other"}},
		`"policy":"rules"`:                   {422, []string{"no limits of this name deny"}},
		`"policy":"login"`:                   {422, []string{"core.WithOverrides()"}},
		`"policy":"none"`:                    {404, []string{"Board.Add"}},
		`{`:                                  {400, []string{"not JSON"}},
	} {
		w := serve(t, h, http.MethodPost, "/override", "{"+right+","+question+"}") // the last of two fields counts
		for _, text := range want.texts {
			if w.Code != want.code || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: %d, %s; want %d, %s", question, w.Code, w.Body, want.code, text)
			}
		}
	}
	s.Fail(&store.StoreError{Err: errors.New("192.0.2.7 is away"), Class: "timeout"})
	w := serve(t, h, http.MethodPost, "/override", "{"+right+"}")
	if text := strings.TrimSpace(w.Body.String()); w.Code != 502 || text != "the store does not answer: timeout" {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
	if got := listed(t, h); fmt.Sprint(got.Failed) != "[api rules]" || len(got.Keys) != 5 {
		t.Errorf("%+v", got)
	}
}

// The page tells how many processes enforce which version of a file of rules.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newShop(t, new(coretest.FakeStore))
		store := rules.WithOptions(core.WithStore(new(coretest.FakeStore)))
		for i, text := range []string{"1/minute", "1/minute", "2/minute"} {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			file := "rules:\n- {name: a, key: ip, limits: [" + text + "]}\n"
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := rules.Load(path, store)
			if err != nil {
				t.Fatal(err)
			}
			go set.Watch(t.Context()) // it ends with the test
			for range 2 - i {         // two limiters of one set tell the same
				l, err := set.Limiter()
				if err != nil {
					t.Fatal(err)
				}
				p.board.Add(l)
			}
		}
		time.Sleep(time.Second)
		got := listed(t, dashboard.Handler(&p.board)).Versions
		if len(got) != 2 || got[0].Processes != 2 || got[1].Processes != 1 || got[0].Hash == got[1].Hash ||
			!strings.HasSuffix(got[0].File, "limits.yaml") || time.Since(got[0].Loaded) != time.Second {
			t.Errorf("%+v", got)
		}
	})
}
