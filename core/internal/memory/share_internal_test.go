package memory

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// crowd is a store with fewer places than keys, beside what the keys were admitted.
type crowd struct {
	*testing.T

	s      *Store
	r      *rand.Rand
	p      policy
	limits []*store.Limit
	held   map[string]map[*store.Limit][]held
	id     uint64
	joint  int // requests of several keys that were admitted
}

type held struct {
	id    uint64
	at    time.Time
	units int
}

// Keys that share logs have no more than their quotas, and each request is recorded in all logs or in none, whatever is
// asked, settled, merged, renewed and reset.
func TestCrowd(t *testing.T) {
	testlen.SkipRace(t)
	seed := rand.Uint64()
	shared, joint := uint64(0), 0
	for n := range testlen.Of(10, 100) {
		synctest.Test(t, func(t *testing.T) {
			c := crowd{T: t, s: New(1 + n%3), r: rand.New(rand.NewPCG(seed, uint64(n)))}
			c.p, c.held = newPolicy(c.s, "p", nil), make(map[string]map[*store.Limit][]held)
			permits := &store.Limit{Log: "permits", Quota: 4, Window: 20 * time.Second, Permits: true}
			c.limits = []*store.Limit{sliding(5, time.Second), sliding(20, time.Minute), permits}
			for range 3000 {
				c.step()
				if t.Failed() {
					t.Fatalf("seed %#x, store %d", seed, n)
				}
			}
			shared += c.s.Shared()
			joint += c.joint
		})
	}
	if shared < 1000 || joint < 100 {
		t.Errorf("%d requests of shared logs, %d of several keys: too few", shared, joint)
	}
}

func (c *crowd) step() {
	if c.r.IntN(10) == 0 {
		time.Sleep(time.Duration(c.r.Int64N(int64(3 * time.Second))))
	}
	if c.r.IntN(200) == 0 {
		time.Sleep(2 * time.Minute)
	}
	key, l := fmt.Sprint(c.r.IntN(40)), c.limits[c.r.IntN(len(c.limits))]
	of := c.of(key, l)
	switch k := c.r.IntN(20); {
	case k == 0 && len(of) > 0: // an entry is settled
		e := &of[c.r.IntN(len(of))]
		if e.units = c.r.IntN(3); l.Permits {
			e.units = min(e.units, 1)
		}
		c.s.Settle(&store.Settlement{Key: c.p.key(key), Limit: l, ID: e.id, Cost: e.units})
		c.held[key][l] = slices.DeleteFunc(of, func(e held) bool { return e.units == 0 })
	case k == 1 && l.Permits: // some are renewed, and one that is not there
		r := store.Renewal{Key: c.p.key(key), Limit: l}
		c.id++
		for _, e := range append(of, held{id: c.id}) {
			if c.r.IntN(2) == 0 {
				r.IDs = append(r.IDs, e.id)
			}
		}
		c.s.Renew(&r)
		of = slices.DeleteFunc(of, func(e held) bool { return slices.Contains(r.IDs, e.id) })
		for _, id := range r.IDs {
			of = append(of, held{id, time.Now(), 1})
		}
		c.held[key][l] = of
	case k == 2 && c.r.IntN(4) == 0:
		k, young := c.p.key(key), time.Duration(c.r.Int64N(int64(time.Second)))
		c.s.Reset(&k, c.limits, young)
		for _, l := range c.limits {
			c.held[key][l] = slices.DeleteFunc(c.of(key, l), func(e held) bool { return time.Since(e.at) >= young })
		}
	default:
		c.take()
	}
	c.compare(key)
}

// take takes of one key, or of several, under some of the limits.
func (c *crowd) take() {
	c.id++
	mode := []store.Mode{store.ModeCharge, store.ModeCharge, store.ModeAtMost, store.ModePeek}[c.r.IntN(4)]
	var takes []store.Take
	var keys []string
	for _, key := range c.r.Perm(40)[:1+c.r.IntN(3)] {
		for _, l := range c.limits[c.r.IntN(len(c.limits)):] {
			keys = append(keys, fmt.Sprint(key))
			takes = append(takes, store.Take{
				Key: c.p.key(fmt.Sprint(key)), Limit: l, Cost: 1 + c.r.IntN(3), ID: c.id, Mode: mode,
			})
		}
	}
	answers := make([]store.Answer, len(takes))
	c.s.Take(takes, answers)
	denied := slices.ContainsFunc(answers, func(a store.Answer) bool { return !a.Allowed })
	for i, a := range answers {
		l, units := takes[i].Limit, takes[i].Cost
		if mode == store.ModeAtMost {
			units = a.Granted
			if denied != (a.Granted == 0) {
				c.Errorf("%+v: granted %d, denied %v", takes[i], a.Granted, denied)
			}
		}
		switch {
		case !a.Allowed && a.Retry <= 0 && !l.NeverFits(units):
			c.Errorf("denied without a wait: %+v", a)
		case denied || mode == store.ModePeek:
			continue
		}
		if l.Permits {
			units = 1
		}
		of := append(c.of(keys[i], l), held{takes[i].ID, time.Now(), units})
		if c.held[keys[i]][l] = of; units > l.Quota-sum(of[:len(of)-1]) {
			c.Errorf("key %s has %d units of %v", keys[i], sum(of), l)
		}
	}
	if !denied && takes[0].Key.Text != takes[len(takes)-1].Key.Text {
		c.joint++
	}
	for _, key := range keys {
		c.compare(key)
	}
}

// of returns what a key was admitted within the window.
func (c *crowd) of(key string, l *store.Limit) []held {
	if c.held[key] == nil {
		c.held[key] = make(map[*store.Limit][]held)
	}
	c.held[key][l] = slices.DeleteFunc(c.held[key][l], func(e held) bool { return time.Since(e.at) >= l.Window })
	return c.held[key][l]
}

func sum(all []held) (units int) {
	for _, e := range all {
		units += e.units
	}
	return units
}

func (c *crowd) compare(key string) {
	for _, l := range c.limits {
		k, want, got := c.p.key(key), c.of(key, l), 0
		for _, e := range c.s.Log(&k, l) {
			got += e.Cost
		}
		if got != sum(want) {
			c.Errorf("key %s has %d units of %v, want %d", key, got, l, sum(want))
		}
	}
}

// Live entries keep their places: a flood of keys resets no log. No key gets more than its quota, and all together no
// more than the shared logs have, whatever the algorithm, alone or beside another. Afterwards all have theirs again.
func TestFullStoreKeepsEveryQuota(t *testing.T) {
	testlen.SkipRace(t)
	const places, quota = 50, 3
	for _, limit := range definition.Limits(quota, time.Minute) {
		for _, beside := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy(New(places), "p", limit)
				ask := func(key string, units int) (granted int) {
					takes := []store.Take{{Key: p.key(key), Limit: limit, Cost: units, Mode: store.ModeAtMost}}
					if beside {
						takes = append(takes, takes[0])
						takes[1].Limit = sliding(9, time.Second)
					}
					answers := make([]store.Answer, len(takes))
					p.s.Take(takes, answers)
					return answers[0].Granted
				}
				ask("victim", quota)
				admitted, total := make(map[string]int), 0
				for n := range 6000 {
					key := fmt.Sprint("attacker ", n%2000)
					granted := ask(key, 1+n%3)
					if admitted[key] += granted; admitted[key] > quota || n%500 == 0 && ask("victim", 1) > 0 {
						t.Fatalf("%v: %s has %d, or the victim's log was reset", limit, key, admitted[key])
					}
					total += granted
				}
				most := (places + shardCount*sharedTexts) * quota
				if total > most || p.s.Keys() != places || p.s.Shared() == 0 {
					t.Errorf("%v: %d admitted of %d at most, %d keys, %d takes of shared logs",
						limit, total, most, p.s.Keys(), p.s.Shared())
				}
				time.Sleep(5 * time.Minute)
				if synctest.Wait(); p.s.Keys() != 0 {
					t.Errorf("%v: %d keys in the end", limit, p.s.Keys())
				}
				for _, key := range []string{"attacker 1", "attacker 1999"} { // also of logs that were shared
					if n := ask(key, quota); n != quota {
						t.Errorf("%v: %s is granted %d in the end", limit, key, n)
					}
				}
			})
		}
	}
}

// A new key gets the place of a void entry before the timer removes that. A shared entry has no place: the sweep goes
// on to one that has.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(New(2), "p", sliding(5, time.Second))
		inShard := func(shard uint64) string {
			for i := 0; ; i++ {
				if k := p.key(fmt.Sprint(i)); k.Hash()%shardCount == shard {
					return k.Text
				}
			}
		}
		policy{p.s, p.ns, sliding(5, time.Hour)}.allow(inShard(50))
		p.allow(inShard(20))
		p.allow(inShard(10)) // there is no place
		time.Sleep(2 * time.Second)
		if p.allow(inShard(30)); p.s.Shared() != 1 || p.s.Keys() != 2 {
			t.Errorf("%d keys share logs, %d do not", p.s.Shared(), p.s.Keys())
		}
	})
}

// Who has units in a shared log stays with it until they have left. What he gets then begins no earlier.
func TestNoSecondQuotaOutOfASharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(New(1), "p", sliding(1, time.Minute))
		take := func(key string, want bool) {
			t.Helper()
			if got := p.allow(key); got != want {
				t.Errorf("%s: allowed %v, want %v", key, got, want)
			}
		}
		take("a", true)
		time.Sleep(30 * time.Second)
		take("b", true)
		p.reset("a")
		take("b", false)
		time.Sleep(30 * time.Second)
		take("b", false)
		time.Sleep(29 * time.Second)
		later := p.s.clock() + int64(2*time.Second)
		// As after a take that came later and was first: by then the unit has left.
		e := p.s.of(p.key("b"), func(e *entry) { e.now = later })
		take("b", true)
		take("b", false)
		if own := p.s.of(p.key("b"), nil); own == e || own.Oldest() != later {
			t.Errorf("its own log begins at %v, want %v", own.Oldest(), later)
		}
	})
}

// The same holds for numbers: with the next free place the key would have a second quota.
func TestNoSecondQuotaOutOfSharedNumbers(t *testing.T) {
	for _, limit := range definition.Limits(1, time.Minute)[1:] {
		synctest.Test(t, func(t *testing.T) {
			p := newPolicy(New(1), "p", limit)
			take := func(key string, want bool) store.Answer {
				t.Helper()
				_, a := p.take(key, 1, store.ModeCharge)
				if a.Allowed != want {
					t.Errorf("%v: %s: %+v, want allowed %v", limit, key, a, want)
				}
				return a
			}
			time.Sleep(10 * time.Second)
			take("a", true)
			take("b", true)
			if p.reset("a"); p.s.Keys() != 0 {
				t.Errorf("%v: %d keys after a reset", limit, p.s.Keys())
			}
			wait := take("b", false).Retry
			time.Sleep(wait - time.Microsecond)
			take("b", false)
			time.Sleep(time.Microsecond)
			take("b", true)
			take("b", false)
			time.Sleep(3 * time.Minute)
			if take("b", true); p.s.Keys() != 1 {
				t.Errorf("%v: %d keys, want b's own numbers now", limit, p.s.Keys())
			}
		})
	}
}

// pair returns two keys that share an entry, after it has filled the only place of s.
func (p policy) pair() (a, b string) {
	newPolicy(p.s, "filler", sliding(1, 24*time.Hour)).allow("x")
	known := make(map[string]string)
	for n := 0; ; n++ {
		text := fmt.Sprint(n)
		k := p.key(text)
		shares := p.s.sharedKey(&k, k.Hash())
		name := fmt.Sprint(k.Hash()%shardCount, shares.Addr)
		if a, ok := known[name]; ok {
			return a, text
		}
		known[name] = text
	}
}

// Two keys that share a log need room for both in it.
func TestTwoKeysOfOneSharedLog(t *testing.T) {
	for _, l := range definition.Limits(9, time.Minute) {
		synctest.Test(t, func(t *testing.T) { twoKeysOfOneSharedLog(t, l) })
	}
}

func twoKeysOfOneSharedLog(t *testing.T, l *store.Limit) {
	t.Helper()
	p := newPolicy(New(1), "p", l)
	a, b := p.pair()
	ask := func(first, second int, mode store.Mode) []store.Answer {
		takes := []store.Take{
			{Key: p.key(a), Limit: p.limit, Cost: first, Mode: mode},
			{Key: p.key(b), Limit: p.limit, Cost: second, Mode: mode},
		}
		answers := make([]store.Answer, 2)
		p.s.Take(takes, answers)
		return answers
	}
	for _, c := range []struct {
		costs   [2]int
		allowed bool // whether the second has room beside the first
		used    int
	}{
		{[2]int{1, 4}, true, 0},
		{[2]int{3, 2}, false, 5},
		{[2]int{1, 7}, false, 5},
		{[2]int{2, 1}, true, 5},
	} {
		for _, mode := range []store.Mode{store.ModePeek, store.ModeCharge} {
			got := ask(c.costs[0], c.costs[1], mode)
			for i := range got {
				if got[i].Used != c.used || got[i].Allowed != (i == 0 || c.allowed) ||
					!got[i].Allowed && got[i].Retry <= 0 {
					t.Errorf("%v, %v, costs %d: %+v, want room for the second %v, %d used",
						l.Algorithm, mode, c.costs, got, c.allowed, c.used)
				}
			}
		}
	}
	if got := ask(4, 4, store.ModeAtMost); got[0].Granted != 0 || !got[0].Allowed || got[1].Allowed {
		t.Errorf("%+v, want room for a unit of one of them", got)
	}
	if l.Algorithm != store.SlidingLog { // of numbers that keys share, nobody knows whose they are
		return
	}
	p.reset(a)
	if got := ask(4, 4, store.ModeAtMost); got[0].Granted != 2 || got[1].Granted != 2 || p.used(a) != 9 {
		t.Errorf("%+v, want 2 units granted to both; %d are used", got, p.used(a))
	}
}

// In a shared log neither the denied takes of one key nor the recorded ones trim the entries of another.
func TestSharedLogsAreNotTrimmed(t *testing.T) {
	p := newPolicy(New(1), "p", sliding(5, time.Hour))
	a, b := p.pair()
	for range 3 {
		p.allow(a)
	}
	for _, mode := range []store.Mode{store.ModeChargeDenied, store.ModeRecord} {
		_, got := p.take(b, 4, mode)
		if records := mode == store.ModeRecord; got.Allowed != records || p.used(a) != 3 && !records {
			t.Errorf("%v: %+v, %d used", mode, got, p.used(a))
		}
	}
	p.take(b, 2*store.MaxRecorded, store.ModeRecord)
	k := p.key(a)
	if n := len(p.s.Log(&k, p.limit)); n != 3 {
		t.Errorf("%d entries are left of 3", n)
	}
}

// A flood of addresses from one prefix denies no client from elsewhere, unless he is in the same group.
func TestFloodFromAPrefix(t *testing.T) {
	for flood, other := range map[string]string{"2001:db8::": "2001:%x::", "198.51.100.0": "203.%d.113.9"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPolicy(New(100), "p", sliding(3, time.Hour))
			allow := func(a netip.Addr) bool {
				takes := []store.Take{{Key: p.key(""), Limit: p.limit, Cost: 1}}
				takes[0].Key.Addr, takes[0].Key.Bits = a, a.BitLen()
				answers := make([]store.Answer, 1)
				p.s.Take(takes, answers)
				return answers[0].Allowed
			}
			r := rand.New(rand.NewPCG(1, 2))
			b := netip.MustParseAddr(flood).AsSlice()
			for range 10_000 {
				for i := len(b) / 2; i < len(b); i++ { // behind the /32 or /16
					b[i] = byte(r.Uint32())
				}
				a, _ := netip.AddrFromSlice(b)
				allow(a)
			}
			denied := 0
			for i := range 200 {
				if a := netip.MustParseAddr(fmt.Sprintf(other, i)); !allow(a) {
					denied++
				}
			}
			if denied > 200/8 || p.s.Shared() == 0 {
				t.Errorf("%s: %d of 200 other clients are denied, %d shared", flood, denied, p.s.Shared())
			}
		})
	}
}

// Takes of several keys of one shard wait for no lock that they hold themselves, whichever entries are swept meanwhile.
func TestKeysOfOneShard(t *testing.T) {
	for _, places := range []int{3, 100_000} {
		p := newPolicy(New(places), "p", sliding(2, time.Millisecond))
		groups := make(map[uint64][]store.Key)
		for n := range 20 * shardCount {
			k := p.key(fmt.Sprint(n))
			groups[k.Hash()%shardCount] = append(groups[k.Hash()%shardCount], k)
		}
		for _, keys := range groups {
			for i := range len(keys) - 3 {
				var takes []store.Take
				for _, k := range keys[i : i+3] {
					takes = append(takes, store.Take{Key: k, Limit: p.limit, Cost: 1})
				}
				for range 4 {
					answers := make([]store.Answer, 3)
					p.s.Take(takes, answers)
					for _, a := range answers {
						if a.Used > 2 {
							t.Fatalf("%d places: %d units used of 2", places, a.Used)
						}
					}
				}
			}
		}
	}
}
