// Package bridge has what packages rules and dashboard need of package core and users do not. Package core sets the
// variables. Type parameters stand for types of core, which this package cannot import.
package bridge

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Core is a *Rules of the types of package core.
var Core any

// Rules is what package rules needs of package core.
type Rules[Limiter, Option, Key, Limit, Failure, Decision any] struct {
	// NewLimiter makes a limiter that asks the rules which choose adds to a [Choice]; a request to which none is added
	// passes uncounted. An error refuses the request. Options that a rule has a field for are errors. The limiter is
	// for requests only: its methods that name a key return errors.
	NewLimiter func(name string, choose Chooser[Key], opts []Option) (Limiter, error)

	// InForce tells a limiter which rules there are, for overrides of their keys.
	InForce func(l Limiter, rules func() []plan.Named)

	// Answering returns a limiter that decides as l does, with the same logs, and answers in another way. The options
	// are WithDeny and WithError of an adapter, and WithHeaders.
	Answering func(l Limiter, opts []Option) (Limiter, error)

	// Prepare checks rules and makes them ready. A [Choice] is of rules that were prepared together. Rules with the
	// names and labels of others that this limiter has prepared before have the same logs. The errors are those of each
	// rule, in the same order.
	Prepare func(l Limiter, rules []Rule[Key, Limit, Failure]) ([]*plan.Part, []error)

	// Joins returns nil if the store can decide about rules together, and otherwise why not.
	Joins func(l Limiter) error

	// Preview returns what would be decided about a request if choose added the rules, and takes nothing. Observers get
	// no event.
	Preview func(l Limiter, r adapter.Request, choose Chooser[Key]) (Decision, error)

	// Exempt reports whether a list or WithSkip of the limiter passes a request before any rule is asked. If a deny
	// list names the client, the error is ErrForbidden.
	Exempt func(l Limiter, r adapter.Request) (passes bool, err error)

	// Reloaded reports to the observers that the rules have changed, or why they have not.
	Reloaded func(ctx context.Context, l Limiter, err error)

	// NewList makes a list of the clients that a key finds; see WithAllowList. The function reports whether the list
	// names the client of a request.
	NewList func(k Key, entries []string) (names func(*Choice[Key]) (bool, error), err error)

	// Check returns what is wrong with a key, which New would report.
	Check func(k Key) error

	// Labelled returns a copy of k that ends the names of logs with label: of [a-z0-9._-].
	Labelled func(k Key, label string) Key

	// FormOf returns a limit as it is decided.
	FormOf func(l Limit) plan.Limit
}

// Rule is the limits of a rule, or of a part of it that applies by itself.
type Rule[Key, Limit, Failure any] struct {
	Policy  string  // Decision.Policy
	Name    string  // of its logs, as that of WithName; Rules of one name have different Labels
	Label   string  // ends the names of its logs: of [a-z0-9._-], or empty
	Prefix  string  // begins the names of limits that have none
	Key     Key     // of limits that have none
	Limits  []Limit // to which By gives other keys
	Shadow  bool    // asked and reported, but never denies
	Failure Failure // while the store does not answer; of several Rules the strictest
	Detail  string  // of the problem document of a denial, or empty for the usual one
}

// Chooser adds the rules that apply to a request.
type Chooser[Key any] func(adapter.Request, *Choice[Key]) error

// Choice is which rules a request is asked about. It reads each key once.
type Choice[Key any] struct {
	Asker[Key]

	Cost        int            // units of the request, of limits without a unit; 1 if it is not set
	Tried       int            // as Cost if that is not set, because all rules are in shadow
	Costs       map[string]int // units of the request, by the unit of limits
	TriedCosts  map[string]int // as Costs, of units that only rules in shadow have
	CountDenied bool           // denials are recorded, as with WithCountDenied
	Listed      bool           // the request passes because of an allow list; used if no rule is added

	// Ambiguous says that the request's path can be read in several ways. If the rules of all of them cannot be decided
	// together, those in shadow are left out, and then the request is refused (400), since clients choose how a path is
	// spelled.
	Ambiguous bool
}

// Asker is the part of a [Choice] that core implements.
type Asker[Key any] interface {
	// Add adds a rule that applies to the request. One in shadow is left out if the request lacks a key of its limits.
	Add(p *plan.Part)

	// Fail notes that a rule in shadow could not be asked, or with core.ErrForbidden that its deny list would refuse the
	// request. Observers get the error or the denial, and the request is decided without the rule.
	Fail(policy string, err error)

	// Rules returns the rules that were added.
	Rules() []*plan.Part

	// Identity returns what a key finds in the request. An address has all its bits.
	Identity(k Key) (store.Identity, error)

	// Units returns what the request costs.
	Units() int
}

// RulesError is an error of the rules that apply to a request, as opposed to one of the request.
type RulesError struct{ Err error }

func (e *RulesError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RulesError) Unwrap() error { return e.Err }

// Limiters is a *Functions of the types of package core.
var Limiters any

// Functions is what package dashboard needs of limiters, and package rules for overrides.
type Functions[Limiter, Decision, Override any] struct {
	// OverrideKeys returns the names of the keys that overrides can be of: the policy or a rule for its own key, and
	// with a slash and the name of a limit for that limit's key. Without WithOverrides there are none.
	OverrideKeys func(l Limiter) []string

	// LimitsOf returns the limits of such a key, as users write them; none where requests choose them.
	LimitsOf func(l Limiter, name string) []string

	// LookUp is Peek for a text of the limiter's key. Where no text names a request's key, or LimitBy chooses the limits
	// of a request, it is an error in place of what a call with that text would find. Observers get no event.
	LookUp func(ctx context.Context, l Limiter, key string) (Decision, error)

	// Override is Override for a key with one of these names.
	Override func(ctx context.Context, l Limiter, name, key string, o Override) error

	// RemoveOverride ends such an override.
	RemoveOverride func(ctx context.Context, l Limiter, name, key string) error

	// NameOf returns the name of a limiter's policy, and its limits as users write them: none if a file has them.
	NameOf func(l Limiter) (policy, limits string)

	// Windows returns the limits that the request was asked about, as they stand now for the same keys, and the entries
	// of their logs. It looks at limits alone: neither at bans nor at lists. Nothing is counted, and observers get no
	// event.
	//
	// It asks the store twice about each log, so it is for pages that people look at and not for each request. If the
	// store does not answer it fails, whatever WithFailure says. Without limits, as for a skipped request, it returns
	// none.
	Windows func(ctx context.Context, d Decision) ([]Window, error)
}

// Window is a limit of a decision as it stands later.
type Window struct {
	Name       string // as in the header fields
	Unit       string // what it counts, such as "requests"
	Quota      int
	Used       int
	Remaining  int
	ResetAfter time.Duration

	Window    time.Duration // of the limit, or the lease of InFlight
	Algorithm string        // such as "sliding log", or "in flight"
	Key       string        // whose quota it is. It may be personal data

	// Entries of the sliding log in the window, oldest first. They are nil for other limits, which keep none; if more
	// than 10,000 units are used, since listing them would take long; and if the store cannot list a log.
	Entries []store.Entry

	// Now is when Entries were listed, on their clock, which is that of the store. It is the time of this process if
	// there are no entries, if some have come or left meanwhile, or if WithShadow looks further back.
	Now time.Time

	// Reset deletes what the log of the limit holds for this key, and with it what other limits of the same key have
	// counted. For the limiter's own key it lifts bans as well.
	Reset func(context.Context) error
}
