package store

import "errors"

// ConfigError is one mistake in the configuration or the use of a limiter. Functions that find several mistakes join
// them; [errors.As] returns the first. A store puts no key into Problem and Remedy, since they are logged.
type ConfigError struct {
	Option  string // the function, option or argument, as it is written in code
	Value   string // its value, or empty
	Problem string // what is wrong
	Remedy  string // what to do
}

// Error returns "sash: Option(Value): Problem; Remedy".
func (e *ConfigError) Error() string {
	text := "sash: " + e.Option
	if e.Value != "" {
		text += "(" + e.Value + ")"
	}
	if text += ": " + e.Problem; e.Remedy != "" {
		text += "; " + e.Remedy
	}
	return text
}

func configError(option, value, problem, remedy string) error {
	return &ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}

// StoreError says that the store could not answer. Its text is for operators: it may hold addresses and is never sent
// to a client.
//
// A store that names a Class makes sure that Err and Advice contain no key: they are logged when an outage begins. If
// an error has no class, the log has only its type.
type StoreError struct { //nolint:revive // it is core.StoreError to most
	Err    error
	Class  string // the kind of error, in a word fit for a metric; redisstore lists its own
	Advice string // what an operator should do about it
	OneKey bool   // only this key is affected, so the store is still asked about others
}

func (e *StoreError) Error() string {
	text := "sash: store: " + e.Err.Error()
	if e.Class != "" {
		text = "sash: store (" + e.Class + "): " + e.Err.Error()
	}
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

func (e *StoreError) Unwrap() error { return e.Err }

// IsOutage reports whether an error of a store means that the store does not answer, and not only that it cannot answer
// this call.
func IsOutage(err error) bool {
	if err == nil || errors.As(err, new(*ConfigError)) {
		return false
	}
	var failed *StoreError
	return !errors.As(err, &failed) || !failed.OneKey
}

// Error returns err as a [StoreError], unless it is one already or a [ConfigError]. So faults of the store can be
// distinguished from mistakes in the request.
func Error(err error) error {
	if err == nil || errors.As(err, new(*ConfigError)) || errors.As(err, new(*StoreError)) {
		return err
	}
	return &StoreError{Err: err}
}
