package activities

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that reads and writes as text, such as "30s" or
// "1h15m", so that people can fill it into a form.
type Duration time.Duration

// Std returns the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Or returns the duration, or preset when it is zero.
func (d Duration) Or(preset time.Duration) Duration {
	if d == 0 {
		return Duration(preset)
	}
	return d
}

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String()) //nolint:wrapcheck // a string always encodes
}

// UnmarshalJSON reads text such as "30s". Anything else is an error that says so.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf(`%s is no duration: write a text such as "30s" or "1h15m"`, data)
	}
	if text == "" {
		*d = 0
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf(`%q is no duration: write a text such as "30s" or "1h15m"`, text)
	}
	*d = Duration(parsed)
	return nil
}

// clock returns the clock that was given, or time.Now.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}
