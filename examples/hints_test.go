package examples_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// commands returns what an example tells to type.
func commands(t *testing.T, out *printed, n int) (found []string) {
	t.Helper()
	until(t, fmt.Sprintf("it prints %d commands", n), func() bool {
		found = regexp.MustCompile(`(?m)^  .*\n`).FindAllString(out.String(), -1)
		return len(found) == n
	})
	return found
}

// typed runs a command as a newcomer does who copies it, and returns what it prints with the statuses in it.
func typed(t *testing.T, command string) (text string, statuses []string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	c := exec.Command("sh", "-c", command)
	c.Env = append(os.Environ(), "no_proxy=*")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	for _, found := range regexp.MustCompile(`(?m)(?:HTTP/1\.1 |^)(\d{3})\b`).FindAllSubmatch(out, -1) {
		statuses = append(statuses, string(found[1]))
	}
	return string(out), statuses
}

// What examples print at their start can be typed, and has the answers that it promises.
func TestHints(t *testing.T) {
	type answer struct {
		statuses string
		texts    []string // in what is printed
	}
	behind := onHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	hello := []answer{{"200 200 200 429", []string{"Hello!\n", "Retry-After: "}}}
	for _, c := range []struct {
		name    string
		window  time.Duration
		args    []string
		says    []string
		answers []answer
	}{
		{"gin", window, nil, []string{"fourth", "429"}, hello},
		{"echo", window, nil, []string{"fourth", "429"}, hello},
		{"chi", window, nil, []string{"fourth", "429"}, hello},
		{"fiber", window, nil, []string{"fourth", "429"}, hello},
		{"nethttp", window, nil, []string{"fourth", "429"}, hello},
		{"login", time.Minute, nil, []string{"429"}, []answer{
			{"200", []string{"Hello!\n"}},
			{"401 401 401 401 401 429", []string{"wrong name or password", "5-per-minute"}},
		}},
		{"tiers", time.Minute, nil, []string{"3 requests a minute", "10, of which 3 are used"}, []answer{
			{"200 200 200 429", []string{`Ratelimit: "3-per-minute";r=0;`}},
			{"200 200 200 200", []string{`Ratelimit: "10-per-minute";r=6;`}},
		}},
		{"tokens", time.Minute, nil, []string{"695", "685", "429"}, []answer{
			{"200", []string{`"1000-tokens-per-minute";r=695;`, "(10 tokens)"}},
			{"200", []string{"(1000 tokens)"}},
		}},
		{"llm", time.Minute, nil, []string{"301", "401", "/limits/"}, []answer{
			{"200", []string{
				"X-Ratelimit-Remaining-Tokens: 695", "X-Ratelimit-Remaining-Concurrent-Requests: 3", "(10 tokens)",
			}},
			{"401", []string{"Bearer realm"}},
		}},
		{"overage", 28 * 24 * time.Hour, nil, []string{"Ann", "3 requests", "4 more"}, []answer{
			{"200 200 200 429", []string{`Ratelimit: "3-per-month";r=0;`}},
			{"200 200 200 200 200 200 200 200 200 429", []string{`Ratelimit: "4-per-month";r=0;`, "X-Billed: 4"}},
		}},
		{"support", time.Minute, nil, []string{"Three requests", "five"}, []answer{
			{"200 200 200 429", []string{`Ratelimit: "3-per-minute";r=0;`}},
			{"", nil},
			{"200 200 429", []string{`Ratelimit: "5-per-minute";r=0;`}},
			{"", []string{"ann [5/minute] ", " ticket 4711\n"}},
		}},
		{"metrics", time.Minute, nil, []string{"/metrics", "last 5", `outcome="denied",policy="login"`}, []answer{
			{strings.Repeat("200 ", 30) + "429 429 429 429 429", nil},
			{"", []string{`sash_decisions_total{outcome="denied",policy="login"`}},
		}},
		{
			"gateway", time.Minute, []string{"-rules", sample, "-to", behind, "-listen", ":0"},
			[]string{"502", "429", behind},
			[]answer{{"200", []string{`Ratelimit-Policy: "other-300-per-minute"`}}},
		},
		{
			"service", time.Minute, []string{"-rules", sample, "-listen", ":0"},
			[]string{`"allowed"`, `"policy"`, sample},
			[]answer{{"200", []string{`"allowed":true,"policy":"login"`}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := start(t, exec.Command(compile(t, c.name), c.args...))
			typing := commands(t, out, len(c.answers))
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %s:\n%s", want, out)
				}
			}
			begin := time.Now()
			for i, command := range typing {
				text, statuses := typed(t, command)
				if took := time.Since(begin); took >= c.window {
					t.Skipf("curl took %v, which is longer than the window", took)
				}
				if got := strings.Join(statuses, " "); got != c.answers[i].statuses {
					t.Errorf("%s: statuses %s, want %s", command, got, c.answers[i].statuses)
				}
				for _, want := range c.answers[i].texts {
					if !strings.Contains(text, want) {
						t.Errorf("%s: it printed\n%s\nwant %s", command, text, want)
					}
				}
			}
		})
	}
}
