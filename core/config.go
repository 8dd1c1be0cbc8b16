package core

import (
	"context"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/store"
)

// Option changes a default of a limiter. Giving one twice is an error, unless its documentation says that it adds up.
type Option func(*config)

type config struct {
	store         Store
	shared        bool // the store was given, so other limiters may use it as well
	name          string
	draft, legacy bool // the header fields of responses
	headers       bool // WithHeaders was given
	prefixes      prefixes
	secret        []byte
	guard         guard.Config
	failLocal     bool // FailLocal was asked for explicitly
	mode          store.Mode
	shadow        Policy
	ban           *ban
	lists         []*list
	cost          func(adapter.Request) int
	skip          func(adapter.Request) bool
	refunds       func(adapter.Request, int) bool
	observers     []func(context.Context, Event)
	inContext     bool
	deny, fail    any
	callbackTypes []callbackType
	given         []given // options that may be given only once
	faults        []error
}

func (c *config) fault(option, value, problem, remedy string) {
	c.faults = append(c.faults, fault{problem, remedy}.of(option, value))
}

// given is an option that was given.
type given struct {
	name    string
	answers bool   // it changes how requests are answered, and not how they are decided
	inRules string // what a file of rules has in its place, or empty
}

// once reports a mistake if option is given twice.
func (c *config) once(option string) { c.add(given{name: option}) }

// onceAnswering is once for an option that changes only how requests are answered.
func (c *config) onceAnswering(option string) { c.add(given{name: option, answers: true}) }

// onceUnlessRules is once for an option that is a mistake with rules, which have something in its place.
func (c *config) onceUnlessRules(option, inRules string) {
	c.add(given{name: option, inRules: inRules})
}

func (c *config) add(option given) {
	if slices.Contains(c.given, option) {
		c.fault(option.name, "twice", onlyOnce, removeOne)
	}
	c.given = append(c.given, option)
}

// callback notes the parameter type of a function given to option, or reports that the function is missing.
func (c *config) callback(option string, t callbackType, missing bool) {
	if missing {
		c.fault(option, "nil", noFunction, giveOne)
		return
	}
	c.callbackTypes = append(c.callbackTypes, t)
}

// configure applies opts to the defaults and collects all mistakes.
func configure(opts []Option) config {
	c := config{
		prefixes: prefixes{v4: 32, v6: 64},
		draft:    true,
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
