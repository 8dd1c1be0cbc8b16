package nethttp

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// Transport keeps a client within a quota, and waits when a server answers with Retry-After (RFC 9110, 10.2.3). It is
// safe for concurrent use; do not change its fields while it is in use. Keep it: a new one does not have its pauses.
//
//	client := &http.Client{Transport: &nethttp.Transport{Limiter: limiter}}
//
// A request waits for one unit of its key, see [core.Limiter.Wait], and is then sent. If that is impossible before its
// context or [http.Client].Timeout ends, it fails at once with [context.DeadlineExceeded].
//
// A response 429 or 503 with Retry-After, in seconds or as a date, pauses its key: no request for it is sent until
// then. The refused request is sent again, at most three times, each for a unit of its own, if its body can be read
// again (no body, or GetBody), and after 503 only if its method is idempotent or it has an Idempotency-Key (RFC 9110,
// 9.2.2). However short the pause is, it is sent again after 100 ms at the earliest, then 200 and 400 ms, and up to
// half as long again by chance. Otherwise the response is returned unchanged, and so it is if that does not end before
// the context or if the pause is longer than an hour, the longest one. If the limiter has [core.WithOverrides], the
// pause is for all processes that share its store: within a second none of them sends a request for the key, see
// [core.Limiter.Pause].
//
// Under [core.InFlight], a request holds its permit until the response's body has been read to its end or closed.
type Transport struct {
	// Limiter sets how much is allowed. Only its policy and its store are used here, not its key. Without a Limiter
	// each request fails.
	Limiter *core.Limiter

	// Key returns whose quota a request uses. The default is the host of its URL, with the port if it has one, in lower
	// case. An empty key is an error, [core.ErrNoKey].
	Key func(*http.Request) string

	// Base sends the requests. The default is [http.DefaultTransport].
	Base http.RoundTripper

	once   sync.Once
	byText *core.Limiter

	mu     sync.Mutex
	pauses map[string]time.Time // until when
	warned time.Time            // of one that others do not learn of
}

const (
	resends      = 3
	floor        = 100 * time.Millisecond // before the first; it doubles
	longestPause = time.Hour
	warnsEvery   = 10 * time.Second
	mostDrained  = 64 << 10 // bytes that are read of a discarded response, so that its connection is reused
)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := strings.ToLower(r.URL.Host)
	if t.Key != nil {
		key = t.Key(r)
	}
	for sent := 1; ; sent++ {
		d, err := t.wait(r.Context(), key)
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		response, err := t.roundTrip(r, &d)
		if err != nil {
			return response, err
		}
		pause, asked := retryAfter(response)
		if !asked {
			return response, nil
		}
		t.pause(r.Context(), key, min(pause, longestPause))
		least := floor << (sent - 1)
		least += rand.N(least / 2) // clients that are refused together do not come back together
		if sent > resends || pause > longestPause || endsWithin(r.Context(), max(pause, least)) {
			return response, nil
		}
		again := replay(r, response.StatusCode)
		if again == nil {
			return response, nil
		}
		if response.Body != nil {
			io.CopyN(io.Discard, response.Body, mostDrained) //nolint:errcheck // it is thrown away in any case
			response.Body.Close()
		}
		if r = again; pause < least { // a server that says "now" is not to be asked as fast as it answers
			sleep(r.Context(), least)
		}
	}
}

// roundTrip sends a request of a decision, and ends what that holds with the response.
func (t *Transport) roundTrip(r *http.Request, d *core.Decision) (response *http.Response, err error) {
	release := d.Deferred()
	if release == nil {
		return t.base().RoundTrip(r)
	}
	held := false
	defer func() {
		if !held {
			release()
		}
	}()
	response, err = t.base().RoundTrip(r)
	if err != nil || response.Body == nil || response.Body == http.NoBody {
		return response, err
	}
	held = true
	body := heldBody{response.Body, release}
	if w, ok := response.Body.(io.Writer); ok { // of a connection that was taken over
		response.Body = heldConn{body, w}
	} else {
		response.Body = body
	}
	return response, nil
}

// heldBody is the body of a response whose request holds something until the body ends.
type heldBody struct {
	io.ReadCloser

	release func()
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type heldConn struct {
	heldBody
	io.Writer
}

// CloseIdleConnections closes those of Base. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() { (&http.Client{Transport: t.Base}).CloseIdleConnections() }

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// limiter returns what decides about hosts. It is nil without a Limiter, which is an error of each call.
func (t *Transport) limiter() *core.Limiter {
	t.once.Do(func() {
		if t.Limiter != nil {
			t.byText = t.Limiter.Inside().ByText()
		}
	})
	return t.byText
}

// wait returns when a request for key may be sent, and has its unit.
func (t *Transport) wait(ctx context.Context, key string) (core.Decision, error) {
	for {
		if left := t.paused(key); left > 0 {
			if endsWithin(ctx, left) {
				return core.Decision{}, fmt.Errorf("sash: the server has asked for a pause of another %v, "+
					"but the context ends earlier: %w",
					left.Round(time.Microsecond), context.DeadlineExceeded)
			}
			sleep(ctx, left)
		}
		d, err := t.limiter().Wait(ctx, key)
		if err != nil || t.paused(key) <= 0 {
			return d, err
		}
		// A pause has begun meanwhile, and a unit counts from when it is used.
		if err = d.Undo(context.WithoutCancel(ctx)); err != nil {
			return core.Decision{}, err
		}
	}
}

// pause stops requests for key until d is over, those of other processes as well if the limiter has overrides.
func (t *Transport) pause(ctx context.Context, key string, d time.Duration) {
	until := time.Now().Add(d)
	if d <= 0 || !t.pauseHere(key, d, until) {
		return
	}
	_, err := t.limiter().Pause(context.WithoutCancel(ctx), key, until)
	if err != nil && !store.IsOutage(err) && t.mayWarn() { // an outage is in the log already
		slog.Default().WarnContext(ctx, "sash: the pause that a server has asked for applies to this process only",
			slog.Any("error", err))
	}
}

// mayWarn reports whether a line is due: thousands of servers may ask for pauses.
func (t *Transport) mayWarn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.warned) < warnsEvery {
		return false
	}
	t.warned = time.Now()
	return true
}

// pauseHere stops requests for key in this process, unless they are stopped until then anyway, and removes its own
// entry when d is over.
func (t *Transport) pauseHere(key string, d time.Duration, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !until.After(t.pauses[key]) {
		return false
	}
	if t.pauses == nil {
		t.pauses = make(map[string]time.Time)
	}
	t.pauses[key] = until
	time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.pauses[key].Equal(until) {
			delete(t.pauses, key)
		}
	})
	return true
}

func (t *Transport) paused(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.pauses[key])
}

// sleep returns early if the context ends, as Wait will tell.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func endsWithin(ctx context.Context, pause time.Duration) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) <= pause
}

// retryAfter returns the pause that a response asks for, if it does; a date in the past gives a negative pause. A date
// is compared with the server's own clock if the response has a Date.
func retryAfter(r *http.Response) (pause time.Duration, asked bool) {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := r.Header.Get("Retry-After")
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, _ := strconv.ParseInt(text, 10, 64) // what is too large is the largest
		return time.Duration(min(seconds, int64(2*longestPause/time.Second))) * time.Second, true
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return until.Sub(now), true
}

// replay is the same request once more, or nil if it cannot be had or must not be sent twice.
func replay(r *http.Request, status int) *http.Request {
	if status == http.StatusServiceUnavailable && !idempotent(r) { // its work may be half done
		return nil
	}
	again := r.WithContext(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return again
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again.Body = body
	return again
}

func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}
