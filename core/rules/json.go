package rules

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sashlimit/sash/core"
)

// duration is a text in JSON, such as "1m30s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// explanationJSON is an Explanation in JSON.
type explanationJSON struct {
	Decision struct {
		core.Decision

		RetryAfter, ResetAfter duration
	}
	Err   *string
	Rules []RuleExplanation
}

// MarshalJSON writes durations as texts such as "1m30s", and the error as its text, or null. The text is for operators:
// it may contain what a key's function returns about a client.
func (e Explanation) MarshalJSON() ([]byte, error) {
	out := explanationJSON{Rules: e.Rules}
	d := &out.Decision
	d.Decision = e.Decision
	d.RetryAfter, d.ResetAfter = duration(e.Decision.RetryAfter), duration(e.Decision.ResetAfter)
	if e.Err != nil {
		text := e.Err.Error()
		out.Err = &text
	}
	return json.Marshal(out) //nolint:musttag // the names in JSON are those of the fields
}

// UnmarshalJSON reads what MarshalJSON writes. Of the error there is only its text, and of the decision its fields.
func (e *Explanation) UnmarshalJSON(text []byte) error {
	var in explanationJSON
	if err := json.Unmarshal(text, &in); err != nil { //nolint:musttag // as above
		return err
	}
	d := &in.Decision
	*e = Explanation{Decision: d.Decision, Rules: in.Rules}
	e.Decision.RetryAfter, e.Decision.ResetAfter = time.Duration(d.RetryAfter), time.Duration(d.ResetAfter)
	if in.Err != nil {
		e.Err = errors.New(*in.Err)
	}
	return nil
}

type plainLimit LimitExplanation

// limitJSON is a LimitExplanation in JSON.
type limitJSON struct {
	plainLimit

	RetryAfter duration
}

// MarshalJSON writes RetryAfter as a text such as "1m30s".
func (l LimitExplanation) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitJSON{plainLimit(l), duration(l.RetryAfter)}) //nolint:musttag // as above
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *LimitExplanation) UnmarshalJSON(text []byte) error {
	var in limitJSON
	err := json.Unmarshal(text, &in) //nolint:musttag // as above
	*l = LimitExplanation(in.plainLimit)
	l.RetryAfter = time.Duration(in.RetryAfter)
	return err
}
