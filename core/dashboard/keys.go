package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-kratos/aegis/topk"

	"github.com/sashlimit/sash/core"
)

const (
	topKeys   = 20   // that are known
	shownKeys = 10   // of these
	sketchRow = 4096 // counters of 8 bytes
	sketch    = 4    // rows
	decay     = 0.92 // as in the paper
	fade      = 30   // ticks after which earlier requests count half
)

// keys finds the keys with the most requests, while pages are open. It needs the same memory however many keys there
// are: a HeavyKeeper (Gong et al., "HeavyKeeper: An Accurate Algorithm for Finding Top-k Elephant Flows", USENIX ATC
// 2018) of 128 kB. Its counts may be too small, and are hardly ever too large.
type keys struct {
	watched atomic.Bool

	mu     sync.Mutex
	top    topk.Topk
	latest map[string]core.Decision // the latest about each of the top keys
	ticks  int
}

// hotKey is a key with many requests.
type hotKey struct {
	ID       string `json:"id"` // a hash of the name
	Policy   string `json:"policy"`
	Name     string `json:"name,omitempty"` // if identities are shown
	Requests uint32 `json:"requests"`
}

const separator = "\x00" // of a policy and a key in what the sketch counts

// watch begins to count, or goes on.
func (k *keys) watch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.top == nil {
		k.top = topk.NewHeavyKeeper(topKeys, sketchRow, sketch, decay, 0)
		k.latest = make(map[string]core.Decision)
	}
	k.watched.Store(true)
}

// forget ends counting.
func (k *keys) forget() {
	k.watched.Store(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.top, k.latest = nil, nil
}

// add counts a decision.
func (k *keys) add(e *core.Event) {
	if !k.watched.Load() {
		return
	}
	name := e.Policy + separator + e.Key
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.top == nil {
		return
	}
	if _, in := k.top.Add(name, 1); !in {
		return
	}
	if _, known := k.latest[name]; known && e.Decision.Degraded {
		return // FailOpen has asked no limit
	}
	if k.latest[name] = e.Decision; len(k.latest) > 2*topKeys {
		k.prune()
	}
}

// prune forgets the keys that the sketch has expelled, or has not taken although it said so, as it does with a key that
// has as few requests as the last one. The lock must be held.
func (k *keys) prune() {
	in := make(map[string]bool, topKeys)
	for _, item := range k.top.List() {
		in[item.Key] = true
	}
	maps.DeleteFunc(k.latest, func(name string, _ core.Decision) bool { return !in[name] })
}

// remove forgets the keys of a policy. The sketch keeps their counts until they fade.
func (k *keys) remove(policy string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.latest, func(name string, _ core.Decision) bool {
		return strings.HasPrefix(name, policy+separator)
	})
}

// tick is called once a second.
func (k *keys) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ticks++; k.ticks%fade == 0 && k.top != nil {
		k.top.Fading()
	}
}

// hottest returns the keys with the most requests, the first one first.
func (k *keys) hottest(identities bool) []hotKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	hot := make([]hotKey, 0, shownKeys)
	if k.top == nil {
		return hot
	}
	for _, item := range k.top.List() {
		policy, key, _ := strings.Cut(item.Key, separator)
		if len(hot) == shownKeys || item.Count == 0 {
			break
		}
		if _, known := k.latest[item.Key]; !known {
			continue // its policy was removed
		}
		h := hotKey{ID: hash(item.Key), Policy: policy, Requests: item.Count}
		if identities {
			h.Name = key
		}
		hot = append(hot, h)
	}
	return hot
}

// find returns the latest decision about a key by its hash.
func (k *keys) find(id string) (d core.Decision, name string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, d := range k.latest {
		if hash(name) == id {
			return d, name, true
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
