package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/errtypes"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

const (
	maxQuestion = 4 << 10 // bytes
	maxMarks    = 400     // of one log; entries beyond are drawn together
)

// question is what a page asks about a key, or asks for.
type question struct {
	ID     string `json:"id"`     // of a hot key, or of an override that is to be removed
	Policy string `json:"policy"` // a limiter that was added
	Key    string `json:"key"`    // by its name
	Name   string `json:"name"`   // of the limit that is to be reset, or one of overrideKey

	// The limit that is to be reset. The limits of a key may have changed since the page got them.
	Limit int    `json:"limit"`
	Of    string `json:"of"` // the limit's key

	// An override.
	Kind   string `json:"kind"`   // limits, denied or unlimited
	Limits string `json:"limits"` // such as "600/minute, 9000/day"
	For    string `json:"for"`    // such as "3d", or an instant in RFC 3339
	Note   string `json:"note"`
}

// answer is the answer to a question.
type answer struct {
	Policy string         `json:"policy"`
	Name   string         `json:"name"`   // of the key, or what stands for it
	Banned bool           `json:"banned"` // by WithBan, whatever the limits have left
	Denied bool           `json:"denied"` // by an override, likewise
	Limits []limitMessage `json:"limits"`
}

// limitMessage is a limit and its log. Times are in seconds.
type limitMessage struct {
	Name      string  `json:"name"`
	Key       string  `json:"key"` // or what stands for it
	Algorithm string  `json:"algorithm"`
	Unit      string  `json:"unit"` // what it counts, such as requests
	Quota     int     `json:"quota"`
	Used      int     `json:"used"`
	Remaining int     `json:"remaining"`
	Window    float64 `json:"window"`
	Reset     float64 `json:"reset"` // until the oldest unit leaves the window
	Marks     []mark  `json:"marks"` // oldest first; none unless it is a sliding log
}

// mark is one entry, or several that are close to each other: how old it is, and its units.
type mark [2]float64

// refusal is an error with the status of its answer.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// window answers with the windows of a key. Keys with many requests may be looked at by everybody; others are found by
// their names, which is an action, since it would tell whether somebody has made requests.
func (h *handler) window(r *http.Request, q *question) (any, error) {
	a, windows, err := h.ask(r, q)
	a.Limits = make([]limitMessage, len(windows))
	for i := range windows {
		a.Limits[i] = h.limit(a.Policy, &windows[i])
	}
	return a, err
}

// reset deletes the log of one limit of a key.
func (h *handler) reset(r *http.Request, q *question) (any, error) {
	a, windows, err := h.ask(r, q)
	switch {
	case err != nil:
	case q.Limit < 0 || q.Limit >= len(windows) || windows[q.Limit].Name != q.Name ||
		h.shown(a.Policy, windows[q.Limit].Of) != q.Of:
		err = &refusal{http.StatusConflict, "the key's limits have changed"}
	default:
		err = windows[q.Limit].Clear(r.Context())
	}
	return nil, err
}

var (
	errNotAuthorised = &refusal{http.StatusForbidden, "WithActions does not authorise this request"}
	errNotJSON       = &refusal{http.StatusBadRequest, "the request is not JSON with a few short fields"}
	errNoLimiter     = &refusal{http.StatusNotFound, "no limiter of this policy was given to Board.Add"}
)

// answered returns a route for questions of pages, which f answers with a value to be sent as JSON, or with nil. An
// action is for those who may act.
func answered(action bool, f func(*handler, *http.Request, *question) (any, error)) route {
	return route{http.MethodPost, func(h *handler, w http.ResponseWriter, r *http.Request) {
		var q question
		var a any
		var err error
		switch {
		case action && !h.mayAct(r):
			err = errNotAuthorised
		case json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&q) != nil:
			err = errNotJSON
		default:
			err = adapter.Guard(func() (err error) { // a callback may need the context of a request of its own
				a, err = f(h, r, &q)
				return err
			})
		}
		switch {
		case err != nil:
			refuse(w, err)
		case a == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Write(encode(a))
		}
	}}
}

// refuse answers with an error. The text of an error from elsewhere may have an identity in it, so the answer has only
// its types.
func refuse(w http.ResponseWriter, err error) {
	status, text := http.StatusBadGateway, "the request failed: "+errtypes.Of(err)
	var refused *refusal
	var failed *store.StoreError
	var config *core.ConfigError
	var panicked *adapter.PanicError
	switch {
	case errors.As(err, &panicked):
		status, text = http.StatusInternalServerError, "a callback panicked, which has no request here but that of "+
			"this page: "+panicText(panicked.Value)
	case errors.As(err, &refused):
		status, text = refused.status, refused.text
	case errors.As(err, &failed):
		text = "the store does not answer: " + cmp.Or(failed.Class, "unknown error")
	case errors.As(err, &config):
		status, text = http.StatusUnprocessableEntity, config.Error()
	case errors.Is(err, core.ErrNoKey):
		status, text = http.StatusBadRequest, "enter the name of a key"
	}
	http.Error(w, text, status)
}

// panicText is the text of a panic of the language, and of others, which may have an identity in it, the type.
func panicText(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", value)
}

// ask asks the store for the windows of a key.
func (h *handler) ask(r *http.Request, q *question) (a answer, windows []engine.Window, err error) {
	var d core.Decision
	switch {
	case q.ID != "":
		found, name, ok := h.board.keys.find(q.ID)
		if !ok {
			return a, nil, &refusal{http.StatusNotFound, "this key is no longer among those with the most requests"}
		}
		policy, key, _ := strings.Cut(name, separator)
		d, a.Policy, a.Name = found, policy, h.shown(policy, key)
	case !h.mayAct(r):
		return a, nil, errNotAuthorised
	default:
		l := named(h.board.limiterOfEach(), q.Policy)
		if l == nil {
			return a, nil, errNoLimiter
		}
		if d, err = l.Inside().LookUp(r.Context(), q.Key); err != nil {
			return a, nil, err
		}
		a.Policy, a.Name = q.Policy, q.Key
	}
	a.Banned, a.Denied = d.Banned, !d.Allowed && d.Overridden != nil && d.Overridden.Denied
	windows, err = d.Inside().Windows(r.Context())
	return a, windows, err
}

// shown returns a key as pages have it.
func (h *handler) shown(policy, key string) string {
	if h.identities {
		return key
	}
	return hash(policy + separator + key)
}

func (h *handler) limit(policy string, w *engine.Window) limitMessage {
	m := limitMessage{
		Name: w.Name, Key: h.shown(policy, w.Of), Algorithm: w.Algorithm(), Unit: limittext.UnitName(w.Unit),
		Quota: w.Quota, Used: w.Used, Remaining: w.Left,
		Window: w.Window.Seconds(), Reset: w.State.Reset.Seconds(), Marks: []mark{},
	}
	width := w.Window / maxMarks
	for i, e := range w.Entries {
		age := w.Now.Sub(e.At)
		if n := len(m.Marks); i > 0 && len(w.Entries) > maxMarks && m.Marks[n-1][0]-age.Seconds() < width.Seconds() {
			m.Marks[n-1][1] += float64(e.Cost)
			continue
		}
		m.Marks = append(m.Marks, mark{age.Seconds(), float64(e.Cost)})
	}
	return m
}
