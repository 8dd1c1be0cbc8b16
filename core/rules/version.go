package rules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
)

// Version is a version of the file that processes enforce; see [Set.Versions].
type Version struct {
	Hash      string    // as [Set.Hash]
	File      string    // its name in one of these processes
	Loaded    time.Time // when the latest of these processes has loaded it
	Processes int
}

// String has the beginning of the hash, as logs and a page show it.
func (v Version) String() string {
	processes := "processes"
	if v.Processes == 1 {
		processes = "process"
	}
	return fmt.Sprintf("%.12s in %d %s, loaded %s", v.Hash, v.Processes, processes, v.Loaded.Format(time.RFC3339))
}

// Versions returns which versions of the file are enforced by the processes that share the store: to see whether all
// have loaded a new one. Those of most processes come first.
//
// Processes tell it in the store while [Set.Watch] runs: when they load a file, and once a minute. One that has not
// told it for five minutes is forgotten. Files of one domain are versions of each other. There is room for
// [store.MaxPauses] processes, and further ones are not counted. Versions returns none if the store keeps no overrides
// ([store.Overrider]), or is a core.MemoryStore.
//
// [store.MaxPauses]: https://pkg.go.dev/github.com/sashlimit/sash/core/store#MaxPauses
// [store.Overrider]: https://pkg.go.dev/github.com/sashlimit/sash/core/store#Overrider
func (s *Set) Versions(ctx context.Context) (own []Version, err error) {
	all, err := s.limiter.Inside().Engine().Versions(ctx)
	domain := s.active.Load().domain
	for _, v := range all {
		if v.Domain == domain {
			own = append(own, Version{v.Hash, v.File, v.Loaded, v.Processes})
		}
	}
	return own, err
}

// tellEvery is how often a process tells which rules it enforces. It may fail some times before it is forgotten.
const tellEvery = engine.VersionLasts / 5

// teller tells other processes which rules this one enforces.
type teller struct {
	set     *Set
	process string
	told    *document // or nil
	at      time.Time
}

func newTeller(s *Set) *teller {
	return &teller{set: s, process: strconv.FormatUint(rand.Uint64(), 36)}
}

// tell does so if that is due. It is tried again in a minute, since an outage is reported elsewhere.
func (t *teller) tell(ctx context.Context) {
	e, doc := t.set.limiter.Inside().Engine(), t.set.active.Load()
	if !e.TellsVersions() || doc == t.told && time.Since(t.at) < tellEvery {
		return
	}
	t.told, t.at = doc, time.Now()
	v := engine.Version{Domain: doc.domain, File: t.set.name, Hash: doc.hash, Loaded: doc.loaded}
	e.TellVersion(ctx, t.process, &v) //nolint:errcheck // see above
}

// end tells that this process enforces none any more.
func (t *teller) end(ctx context.Context) {
	if t.told != nil {
		e := t.set.limiter.Inside().Engine()
		e.TellVersion(context.WithoutCancel(ctx), t.process, nil) //nolint:errcheck // it is forgotten then
	}
}
