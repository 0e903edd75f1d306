package gate

import (
	"encoding/json"
	"time"

	"github.com/postroom/postroom/internal/guard"
)

// pauses has the handlers that paused because of failures. The row of the process in the table node
// has them, and package inspect reads them there.
type pauses map[string]pauseOf

type pauseOf struct {
	Since time.Time `json:"since"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
}

// mostText is the largest number of bytes of a failure's text in the row of a process.
const mostText = 300

// Set has the gates of all handlers of a process. Add all gates before you use the first gate.
type Set map[string]*Gate

// Add adds the gate of a handler, and returns it.
func (s Set) Add(handler string, cfg Config) *Gate {
	g := New(cfg)
	s[handler] = g
	return g
}

// SetOperator begins or ends an operator's pause of a handler.
func (s Set) SetOperator(handler string, paused bool) { s[handler].SetOperator(paused) }

// Report returns the handlers that paused because of failures, as JSON.
func (s Set) Report() string {
	all := make(pauses)
	for handler, g := range s {
		if now := g.State(); now.Paused {
			all[handler] = pauseOf{Since: now.Since.UTC(), Class: now.Cause.Class, Text: guard.Clean(now.Cause.Text, mostText)}
		}
	}
	text, err := json.Marshal(all)
	if err != nil { // texts and times can always be encoded
		return "{}"
	}
	return string(text)
}
