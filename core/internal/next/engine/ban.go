package engine

import "time"

// Ban is when clients are banned, for core.WithBan.
type Ban struct {
	Denials int           // of which the last begins a ban
	Within  time.Duration // these denials
	First   time.Duration // how long the first ban lasts; each further one lasts twice as long, up to 64 times First
}

// LongestFirst is the longest first ban: one is forgotten 128 times First after it began.
const LongestFirst = 365 * 24 * time.Hour / 128
