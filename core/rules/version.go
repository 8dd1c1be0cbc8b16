package rules

import (
	"context"
	"fmt"
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
// told it for five minutes is forgotten. Files of one domain are versions of each other. At most store.MaxPauses
// processes are counted, and none if the store is a core.MemoryStore or keeps no overrides (store.Overrider).
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

// tell tells other processes that the one with this name enforces a version, or none any more. It is tried again in a
// minute, since an outage is reported elsewhere.
func (s *Set) tell(ctx context.Context, process string, doc *document) {
	var v *engine.Version
	if doc != nil {
		v = &engine.Version{Domain: doc.domain, File: s.name, Hash: doc.hash, Loaded: doc.loaded}
	}
	s.limiter.Inside().Engine().TellVersion(ctx, process, v) //nolint:errcheck // it is told again, or forgotten
}
