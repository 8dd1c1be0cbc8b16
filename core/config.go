package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/guard"
)

// Option changes a default of a limiter. Giving one twice is an error, unless its documentation says that it adds up.
type Option func(*config)

type config struct {
	settings

	shared    bool // the store was given, so other limiters may use it as well
	name      string
	headers   bool // WithHeaders was given
	secret    []byte
	guard     guard.Config
	failLocal bool // FailLocal was asked for explicitly
	overrides bool // WithOverrides was given
	shadow    Policy
	given     []given // options that may be given only once
	faults    []error
}

func (c *config) fault(option, value, problem, remedy string) {
	c.faults = append(c.faults, configError(option, value, problem, remedy))
}

// given is an option that was given.
type given struct {
	name    string
	unit    string // of WithCostOf, which may be given for each unit
	answers bool   // it changes how requests are answered, and not how they are decided
	inRules string // what a file of rules has in its place, or empty
}

// once makes an option that may be given only once.
func once(name string, set Option) Option { return given{name: name}.option(set) }

// onceAnswering is once for an option that changes only how requests are answered.
func onceAnswering(name string, set Option) Option {
	return given{name: name, answers: true}.option(set)
}

// onceUnlessRules is once for an option that is a mistake with rules, which have something in its place.
func onceUnlessRules(name, inRules string, set Option) Option {
	return given{name: name, inRules: inRules}.option(set)
}

func (g given) option(set Option) Option {
	return func(c *config) {
		if slices.Contains(c.given, g) {
			c.fault(g.name, strings.TrimSpace(g.unit+" twice"), givenTwice, removeOne)
		}
		c.given = append(c.given, g)
		set(c)
	}
}

// onceWithin is once for an option whose value is least to most.
func onceWithin[T cmp.Ordered](name string, value, least, most T, wrong fault, set Option) Option {
	return once(name, func(c *config) {
		if value < least || value > most {
			c.fault(name, fmt.Sprint(value), wrong.problem, wrong.remedy)
			return
		}
		set(c)
	})
}

// callback notes that a function given to option takes a C, or reports that the function is missing.
func callback[C any](c *config, option string, missing bool) {
	if missing {
		c.fault(option, "nil", noFunction, giveOne)
		return
	}
	c.callbackTypes = append(c.callbackTypes, callbackTypeOf[C](option))
}

// configure applies opts to the defaults and collects all mistakes.
func configure(opts []Option) config {
	c := config{
		settings: settings{prefixes: prefixes{v4: 32, v6: 64}, draft: true},
		guard: guard.Config{
			Failure: guard.Local, Label: "FailLocal", Timeout: 100 * time.Millisecond, DenyCache: time.Second,
			LocalKeys: 524_288,
		},
	}
	for _, o := range opts {
		if o == nil {
			c.fault("Option", "nil", "the option is nil", "leave it out")
			continue
		}
		o(&c)
	}
	return c
}
