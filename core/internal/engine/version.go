package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Version is a version of a file of rules that processes with a store in common enforce.
type Version struct {
	Domain string    `json:"domain"` // of the file
	File   string    `json:"file"`   // its name
	Hash   string    `json:"hash"`   // of its content
	Loaded time.Time `json:"loaded"` // by the latest of these processes

	Processes int `json:"processes,omitempty"` // not in what one process tells
}

// VersionLasts is how long a version counts that a process has told.
const VersionLasts = 5 * time.Minute

// versionsMark ends the policy under which versions are kept, after the name of the limiter's.
const versionsMark = "~versions"

// tellsVersions reports whether processes can tell each other which rules they enforce: in a store outside the process
// that keeps overrides.
func (e *Engine) tellsVersions() bool { return e.store.isFar && e.store.overrider != nil }

// TellVersion tells other processes for [VersionLasts] which rules the one with that name enforces, or with nil that it
// enforces none any more. It is kept as a pause is, so that a store has places for [store.MaxPauses] processes. Stores
// that cannot keep it are told nothing.
func (e *Engine) TellVersion(ctx context.Context, process string, v *Version) error {
	if !e.tellsVersions() {
		return nil
	}
	o := store.Override{Name: process, Extend: true}
	if v != nil {
		value, err := json.Marshal(v)
		if err != nil {
			return err
		}
		o.Value, o.Until = string(value), time.Now().Add(VersionLasts).Truncate(time.Millisecond)
	}
	return e.store.overrider.SetOverride(ctx, e.config.Policy+versionsMark, o)
}

// Versions returns the versions that processes enforce, those of most processes first, and of these the latest.
func (e *Engine) Versions(ctx context.Context) (all []Version, err error) {
	if !e.tellsVersions() {
		return nil, nil
	}
	_, told, err := e.store.overrider.Overrides(ctx, e.config.Policy+versionsMark, "")
	if err != nil {
		return nil, store.Error(err)
	}
	for _, o := range told {
		var v Version
		if !time.Now().Before(o.Until) || json.Unmarshal([]byte(o.Value), &v) != nil {
			continue
		}
		i := slices.IndexFunc(all, func(of Version) bool { return of.Domain == v.Domain && of.Hash == v.Hash })
		if i < 0 {
			i, all = len(all), append(all, v)
		}
		if all[i].Processes++; v.Loaded.After(all[i].Loaded) {
			all[i].Loaded = v.Loaded
		}
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(cmp.Compare(b.Processes, a.Processes), b.Loaded.Compare(a.Loaded), cmp.Compare(a.Hash, b.Hash))
	})
	return all, nil
}
