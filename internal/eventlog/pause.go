package eventlog

import "time"

// Pause is an operator's pause of all relays of a log.
type Pause struct {
	Since  time.Time
	Until  time.Time // zero: until an operator resumes them
	Actor  string
	Reason string
}
