package browser

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const patience = time.Minute // until the test gives up waiting for something on a page

// startProgram builds and starts the example, and returns the address of its page.
func startProgram(t *testing.T) (address string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "dashboard")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), "PORT=0")
	run.Stderr = os.Stderr
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.Process.Kill() //nolint:errcheck // it may have ended
		run.Wait()         //nolint:errcheck // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// browser is a tab. What the page reports as an error fails the test.
type browser struct {
	*testing.T
	ctx context.Context
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("SASH_REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.WSURLReadTimeout(patience),
		chromedp.NoSandbox) // which containers and root do not have; the pages are our own
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(cancel)
	b := &browser{t, ctx}
	var mu sync.Mutex
	chromedp.ListenTarget(ctx, func(e any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %v", e.ExceptionDetails)
		case *log.EventEntryAdded: // such as what the Content-Security-Policy has blocked
			mistake := strings.HasSuffix(e.Entry.URL, "/override") && strings.Contains(e.Entry.Text, "422") // a person's
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.URL, "favicon") && !mistake {
				t.Errorf("the page: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	if err := chromedp.Run(ctx, log.Enable()); err != nil { // without a timeout, at whose end the browser would end
		t.Fatal(err)
	}
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// sees waits until a JavaScript expression is true.
func (b *browser) sees(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience))); err != nil {
		var text string
		chromedp.Run(b.ctx, chromedp.Text("body", &text)) //nolint:errcheck // it has failed already
		b.Fatalf("%s: %v\n%s", expression, err, text)
	}
}

// is returns the value of a JavaScript expression.
func is[T any](b *browser, expression string) (value T) {
	b.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

// picture saves a picture of the page for the documentation, in light and dark, and the words that are always on it, if
// SASH_IMAGES names a directory. Otherwise it compares these words with those that were saved.
func (b *browser) picture(name string) {
	b.Helper()
	const always = `h1, h2, thead th, label, form button, #buttons button, .lane b`
	text := is[string](b, `[...document.querySelectorAll('`+always+`')]`+
		`.map(e => e.innerText.trim()).filter(text => text).join('\n') + '\n'`)
	dir := os.Getenv("SASH_IMAGES")
	if dir == "" {
		saved, err := os.ReadFile("../../../docs/images/" + name + ".txt")
		if err != nil || string(saved) != text {
			b.Errorf("docs/images/%s.png shows another page, %v; run make images\n%s", name, err, text)
		}
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	for scheme, suffix := range map[string]string{"light": "", "dark": "-dark"} {
		var picture []byte
		scheme := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{scheme}),
			chromedp.FullScreenshot(&picture, 100))
		if err := os.WriteFile(filepath.Join(dir, name+suffix+".png"), picture, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// send starts traffic of a kind, as a button of the example does.
func (b *browser) send(address, kind string) {
	b.Helper()
	r, err := http.Post(address+"traffic/"+kind, "", nil) //nolint:noctx // it returns at once
	if err != nil {
		b.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusAccepted {
		b.Fatal(r.Status)
	}
}

// row is an expression for the text of a policy's row.
func row(policy string) string {
	const find = `[...document.querySelectorAll('#policies tbody tr')]` +
		`.find(r => r.cells[0].innerText.startsWith(%q))?.innerText`
	return fmt.Sprintf(find, policy)
}

const windowButton = `#keys button[aria-label="Show the window of visitor, sliding-log"]`

// A burst is decided as the buttons' page and the dashboard say; the window of a key fills, drains and is reset.
func TestDashboard(t *testing.T) {
	b := startBrowser(t)
	address := startProgram(t)

	b.run(chromedp.EmulateViewport(1100, 900), chromedp.Navigate(address+"limits/"))
	b.sees(`document.getElementById('state').innerText === 'Live'`)
	b.sees(`document.getElementById('no-keys').innerText.startsWith('No requests since this page was opened.')`)
	b.send(address, "burst")
	// Averages of ten seconds stand behind what a second had at most, of one or two.
	b.sees(`[...document.querySelectorAll('#policies tbody tr')].filter(r => ` +
		`r.innerText.match(/10 admitted, 20 denied, at most \d+ in a second\s+1\s+2\s+0.2\s+0$/)).length === 4`)
	b.run(chromedp.Click(windowButton))
	const entries = `document.querySelector('.limit .entry').getAttribute('d')`
	b.sees(`document.querySelector('.limit .text')?.innerText` +
		`.startsWith('10 of 10 requests used, 0 left. Room comes in ') && ` + entries + `.split('M').length - 1 === 10`)
	b.sees(`document.querySelector('.limit .text').innerText === '0 of 10 requests used, 10 left.'`) // it drains
	if drawn := is[string](b, entries); drawn != "" {
		t.Errorf("%q is still drawn", drawn)
	}

	b.send(address, "burst")
	b.sees(`document.querySelector('.limit .text').innerText.startsWith('10 of 10 requests used')`)
	b.run(chromedp.Click(`.limit button`))
	b.sees(`document.querySelector('.limit button').innerText === 'Delete this log?'`)
	b.run(chromedp.Click(`.limit button`))
	b.sees(`document.querySelector('.limit .text').innerText === '0 of 10 requests used, 10 left.'`)
	b.send(address, "burst")
	b.sees(row("sliding-log") + `?.includes('30 admitted, 60 denied')`)
	b.sees(row("fixed-window") + `?.includes(' admitted, ')`)

	b.run(
		chromedp.SetValue(`#find select`, "token-bucket"), chromedp.SendKeys(`#find input`, "somebody"+kb.Enter))
	b.sees(`document.getElementById('window-title').innerText === 'Window of somebody, token-bucket'`)
	b.sees(`document.querySelector('.limit .text').innerText === '0 of 10 requests used, 10 left.'`)
	b.run(chromedp.Click(`#close`))
	b.sees(`document.getElementById('window').hidden`)
}

// A limit whose quota and window change, as when a file of rules is loaded again, is described as it is now.
func TestChangedLimit(t *testing.T) {
	b := startBrowser(t)
	b.run(chromedp.Navigate(startProgram(t) + "limits/"))
	b.sees(`document.getElementById('state').innerText === 'Live'`)
	for changed, want := range map[string]string{
		"quota: 10, window: 60":   "60 s ago, Dashed: the quota, 10 requests",
		"quota: 20, window: 3600": "60 min ago, Dashed: the quota, 20 requests",
	} {
		b.run(chromedp.Evaluate(`showWindow({limits: [{name: 'all', key: '', used: 0, remaining: 1, reset: 0, `+
			`marks: [], algorithm: 'sliding log', unit: 'requests', `+changed+`}]})`, nil))
		if text := is[string](b, `document.querySelector('.axis span').textContent + ', ' + `+
			`document.querySelector('.limit p:last-child').textContent.split('.')[0]`); text != want {
			t.Errorf("%s: %q, want %q", changed, text, want)
		}
	}
}

// field fills in a field of the form for overrides.
func (b *browser) field(name, value string) {
	b.Helper()
	b.run(chromedp.SetValue(`#override [name=`+name+`]`, value))
}

const overrideRow = `document.querySelector('#overrides tbody tr')`

// An override is set, decides, is shown as text whatever its note is, and is removed. Mistakes are told.
func TestOverrides(t *testing.T) {
	b := startBrowser(t)
	address := startProgram(t)
	b.run(chromedp.EmulateViewport(1100, 900), chromedp.Navigate(address+"limits/"))
	b.sees(`!document.getElementById('override').hidden`)
	b.sees(`document.getElementById('no-overrides').innerText === 'No overrides are in force.'`)
	b.run(chromedp.SetValue(`#override [name=of]`, `{"policy":"sliding-log","name":"sliding-log"}`))
	b.field("key", "visitor")
	b.field("limits", "25/10s, 5/fortnight, 7")
	b.field("for", "soon")
	b.field("note", `<img src=x onerror="document.title='evil'"> 4711`)
	b.run(chromedp.Click(`#override button`))
	b.sees(`document.getElementById('override-error').innerText.split('\n').length === 3`)
	b.field("limits", "25/10s")
	end := time.Now().AddDate(0, 0, 3).Format(time.DateOnly)
	b.field("for", end+" 18:30")
	b.run(chromedp.Click(`#override button`))
	b.sees(overrideRow + `?.innerText.includes('4711')`)
	b.sees(overrideRow + `?.innerText.includes('` + end + ` 18:30')`)
	b.sees(`['key', 'limits', 'for', 'note'].every(name => document.getElementById('override')[name].value === '')`)
	if text := is[string](b, overrideRow+`.innerText.replace(/\s+/g, ' ')`); !strings.Contains(text,
		`visitor sliding-log 25/10s 20`) || !strings.Contains(text, `<img src=x onerror="document.title='evil'"> 4711`) {
		t.Errorf("the override is shown as %q", text)
	}
	b.sees(`document.getElementById('override-done').innerText === 'The override is in force.'`)
	b.sees(`document.getElementById('override-error').innerText === '' && document.title === 'Rate limits'`)
	b.send(address, "burst")
	b.sees(row("sliding-log") + `?.includes('25 admitted, 5 denied')`)
	b.run(chromedp.SetValue(`#override [name=of]`, `{"policy":"token-bucket","name":"token-bucket"}`))
	b.field("key", "a very long name of a customer, which no screen of a phone has room for in one line")
	b.field("kind", "denied")
	b.field("for", "1h")
	b.field("note", strings.Repeat("a long note ", 16))
	b.run(chromedp.Click(`#override button`))
	b.sees(`document.querySelectorAll('#overrides tbody tr').length === 2`)
	const longest = `s => s.append(new Option('n'.repeat(48)))` // the name of a policy
	b.run(chromedp.Evaluate(`document.querySelectorAll('form select').forEach(`+longest+`)`, nil))
	b.checkPage("overrides")
	b.run(chromedp.EmulateViewport(1100, 900))
	const remove = `#overrides tbody tr:last-child button`
	b.run(chromedp.Focus(remove), chromedp.KeyEvent(kb.Enter))
	b.sees(`document.querySelector('` + remove + `').innerText === 'Remove it?'`)
	later := is[float64](b, `performance.now()`) + 450
	b.sees(fmt.Sprintf(`performance.now() > %f`, later)) // before that, it is a double press
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees(`document.querySelectorAll('#overrides tbody tr').length === 1`)
	b.sees(`document.activeElement.id === 'overrides-title'`)
	b.sees(`document.getElementById('override-done').innerText === 'The override was removed.'`)
}

// Each control is reached with the keyboard, shows that it is, and does with it what it does with a mouse.
func TestKeyboard(t *testing.T) {
	b := startBrowser(t)
	address := startProgram(t)
	b.run(chromedp.Navigate(address + "limits/"))
	b.sees(`document.getElementById('state').innerText === 'Live'`)
	b.send(address, "burst")
	b.sees(`document.querySelectorAll('#keys button').length === 4`)
	b.tabThrough([]string{"BUTTON", "BUTTON", "BUTTON", "BUTTON", "SELECT", "INPUT", "BUTTON"})
	b.run(chromedp.Focus(windowButton), chromedp.KeyEvent(kb.Enter))
	b.sees(`document.activeElement.id === 'window-title'`)
	b.sees(`document.querySelector('.limit button')`)
	b.run(chromedp.KeyEvent(kb.Tab))
	b.sees(`document.activeElement.innerText === 'Reset'`)
	b.run(chromedp.KeyEvent(kb.Tab))
	b.sees(`document.activeElement.id === 'close'`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees(`document.getElementById('window').hidden`)

	b.run(chromedp.Navigate(address))
	b.sees(`document.querySelectorAll('.lane').length === 4`)
	b.tabThrough([]string{"BUTTON", "BUTTON", "BUTTON", "BUTTON", "A"})
	b.run(chromedp.Focus(`button[data-kind=burst]`), chromedp.KeyEvent(kb.Enter))
	b.sees(`[...document.querySelectorAll('.lane span')].every(e => e.innerText === '10 of 10 in one window')`)
	b.sees(`document.getElementById('scale').innerText === 'The tallest bar is 30 requests in a quarter of a second.'`)
	b.run(chromedp.Reload())
	b.sees(`document.getElementById('state').innerText.startsWith('Burst: 30 at once.')`)
	if d := is[string](b, `document.querySelector('.lane .border').getAttribute('d')`); strings.Count(d, "M") != 3 {
		t.Errorf("the ends of periods are drawn as %q, want 3 in 30 seconds", d)
	}
}

// tabThrough presses the tabulator key, which must lead to elements of these kinds.
func (b *browser) tabThrough(want []string) {
	b.Helper()
	for i, kind := range want {
		b.run(chromedp.KeyEvent(kb.Tab))
		got := is[string](b, `document.activeElement.tagName`)
		outline := is[string](b, `getComputedStyle(document.activeElement).outlineStyle`)
		if got != kind || outline == "none" {
			b.Errorf("after %d tabs: %s with outline %s, want %s", i+1, got, outline, kind)
		}
	}
}

// The pages can be read by everybody: names for what can be used, enough contrast, nothing wider than the screen.
func TestAccessibility(t *testing.T) {
	b := startBrowser(t)
	address := startProgram(t)
	b.run(chromedp.EmulateViewport(1100, 900), chromedp.Navigate(address+"limits/"))
	b.sees(`document.getElementById('state').innerText === 'Live'`)
	b.send(address, "edge")
	b.send(address, "flood")
	b.sees(`document.querySelectorAll('#keys button').length === 4`)
	b.run(chromedp.Click(windowButton))
	b.sees(`document.querySelector('.limit button')`)
	b.sees(row("fixed-window") + `?.match(/(\d+) admitted/)?.[1] >= 20`)
	if os.Getenv("SASH_IMAGES") != "" { // of a window that fills
		b.send(address, "steady")
		b.sees(`document.querySelector('.limit .text').innerText.match(/^[5-8] of 10 requests used/)`)
	}
	b.picture("dashboard")
	b.checkPage("dashboard")
	b.run(chromedp.EmulateViewport(1100, 900))
	address = startProgram(t) // where nothing was admitted in the period that edge begins in
	b.run(chromedp.Navigate(address))
	b.send(address, "edge")
	b.sees(`[...document.querySelectorAll('.lane p')].some(e => ` +
		`e.innerText.startsWith('It counts each period by itself. The end of one period and the beginning of the next ' +` +
		`'have together admitted 20 requests within 10 seconds'))`)
	b.picture("algorithms")
	b.checkPage("algorithms")
}

// checkPage checks the page in light and dark, on a screen and on a phone.
func (b *browser) checkPage(name string) {
	b.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for device, size := range map[string][2]int64{"screen": {1100, 900}, "phone": {360, 740}} {
			scheme := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
			desc := fmt.Sprintf("%s-%s-%s", name, scheme.Value, device)
			b.run(
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{scheme}),
				chromedp.EmulateViewport(size[0], size[1]),
			)
			if wide := is[int64](b, `document.documentElement.scrollWidth`); wide > size[0] {
				b.Errorf("%s is %d pixels wide", desc, wide)
			}
			for _, problem := range is[[]string](b, "("+lowContrast+")()") {
				b.Errorf("%s: %s", desc, problem)
			}
			b.checkNames(desc)
		}
	}
}

// lowContrast finds texts whose contrast is below 4.5:1, which WCAG 2.2 asks for (1.4.3).
const lowContrast = `() => {
	const parse = color => color.match(/[\d.]+/g).map(Number);
	const linear = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
	const behind = e => {
		for (; e; e = e.parentElement) {
			const color = parse(getComputedStyle(e).backgroundColor);
			if (color.length < 4 || color[3] > 0) return color;
		}
		return [255, 255, 255];
	};
	const problems = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.textContent.trim() || !e.checkVisibility() || e.closest('noscript')) continue;
		const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(behind(e))];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) problems.push(contrast.toFixed(2) + ': ' + texts.currentNode.textContent.trim());
	}
	if (texts.root.innerText.length < 100) problems.push('there is hardly any text');
	return problems;
}`

type axValue struct {
	Value any `json:"value"`
}

// checkNames looks at what the browser tells a screen reader.
func (b *browser) checkNames(desc string) {
	b.Helper()
	var tree struct { // not that of package accessibility, which fails on what newer browsers add
		Nodes []struct {
			Ignored bool    `json:"ignored"`
			Role    axValue `json:"role"`
			Name    axValue `json:"name"`
		} `json:"nodes"`
	}
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
	}))
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		role, name := fmt.Sprint(n.Role.Value), n.Name.Value
		if n.Ignored {
			continue
		}
		roles[role]++
		switch role {
		case "button", "link", "textbox", "combobox", "heading", "columnheader", "rowheader":
			if name == nil || name == "" {
				b.Errorf("%s: a %s has no name", desc, role)
			}
		}
	}
	for _, role := range []string{"button", "heading", "main", "status"} {
		if roles[role] == 0 {
			b.Errorf("%s has no %s: %v", desc, role, roles)
		}
	}
}
