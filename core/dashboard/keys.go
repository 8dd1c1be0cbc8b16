package dashboard

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

const (
	mostKeys  = 256 // that are counted
	shownKeys = 10  // of these

	fade = 30 * time.Second // after which earlier requests count half
)

// keys finds the keys with the most requests, while pages are open. It needs the same memory however many keys there
// are, by the algorithm Space-Saving (Metwally et al., "Efficient Computation of Frequent and Top-k Elements in Data
// Streams", ICDT 2005): a new key takes the place of the one with the fewest requests, and their number. So each key
// that has more than one in 256 requests is found. What is shown leaves out what a key has taken over, so it may be too
// small, and is never too large.
type keys struct {
	watched atomic.Bool

	mu       sync.Mutex
	place    map[string]int // in the lists, of names
	top      []topKey
	requests []uint32
	faded    time.Time // when they were halved
}

type topKey struct {
	name   string // policy, separator, key; or empty
	others uint32 // requests of the keys that had its place
	denied uint32
	latest core.Decision
}

// hotKey is a key with many requests.
type hotKey struct {
	ID       string `json:"id"` // a hash of the name
	Policy   string `json:"policy"`
	Name     string `json:"name,omitempty"` // if identities are shown
	Requests uint32 `json:"requests"`
	Denied   uint32 `json:"denied"`
}

const separator = "\x00" // of a policy and a key in a name

// watch begins to count, or goes on.
func (k *keys) watch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.place == nil {
		k.place, k.faded = make(map[string]int), time.Now()
	}
	k.watched.Store(true)
}

// forget ends counting.
func (k *keys) forget() {
	k.watched.Store(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.place, k.top, k.requests = nil, nil, nil
}

// add counts a decision.
func (k *keys) add(e *core.Event) {
	if !k.watched.Load() {
		return
	}
	name := e.Policy + separator + e.Key
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.place == nil {
		return
	}
	k.age()
	i, known := k.place[name]
	if !known {
		if i = len(k.top); i < mostKeys {
			k.top, k.requests = append(k.top, topKey{}), append(k.requests, 0)
		} else {
			i = slices.Index(k.requests, slices.Min(k.requests))
			delete(k.place, k.top[i].name)
		}
		k.place[name], k.top[i] = i, topKey{name: name, others: k.requests[i]}
	}
	if e.Outcome == event.Denied || e.Outcome == event.Banned {
		k.top[i].denied++
	}
	if k.requests[i]++; !known || !e.Decision.Degraded { // FailOpen has asked no limit
		k.top[i].latest = e.Decision
	}
}

// remove forgets the keys of a policy.
func (k *keys) remove(policy string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, i := range k.place {
		if strings.HasPrefix(name, policy+separator) {
			delete(k.place, name)
			k.top[i], k.requests[i] = topKey{}, 0
		}
	}
}

// age halves what was counted every 30 seconds. The lock must be held.
func (k *keys) age() {
	for ; time.Since(k.faded) >= fade; k.faded = k.faded.Add(fade) {
		for i := range k.top {
			k.top[i].others /= 2
			k.top[i].denied /= 2
			k.requests[i] /= 2
		}
	}
}

// hottest returns the keys with the most requests, the first one first.
func (k *keys) hottest(identities bool) []hotKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.age()
	hot := make([]hotKey, 0, mostKeys)
	for i, of := range k.top {
		if n := k.requests[i] - of.others; n > 0 {
			hot = append(hot, hotKey{Name: of.name, Requests: n, Denied: min(of.denied, n)})
		}
	}
	slices.SortStableFunc(hot, func(a, b hotKey) int { return cmp.Compare(b.Requests, a.Requests) })
	hot = hot[:min(len(hot), shownKeys)]
	for i := range hot {
		h := &hot[i]
		h.ID = hash(h.Name)
		if h.Policy, h.Name, _ = strings.Cut(h.Name, separator); !identities {
			h.Name = ""
		}
	}
	return hot
}

// find returns the latest decision about a key by its hash.
func (k *keys) find(id string) (d core.Decision, name string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, i := range k.place {
		if hash(name) == id {
			return k.top[i].latest, name, true
		}
	}
	return d, "", false
}

// secret is known to no other process. Without it, nobody can tell a name by trying which one has a hash.
var secret = []byte(rand.Text())

// hash returns what stands for a name on pages.
func hash(name string) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(name))
	return hex.EncodeToString(h.Sum(nil)[:6])
}
