package deadview

import (
	"strings"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

// Filter describes a filter in words.
func Filter(f deadletter.Filter) string {
	var parts []string
	add := func(name, v string) {
		if v != "" {
			parts = append(parts, name+" "+output.Cell(v, 60))
		}
	}
	if len(f.IDs) > 0 {
		parts = append(parts, output.Plural(len(f.IDs), "id"))
	}
	add("handler", f.Handler)
	add("type", f.Type)
	add("key", f.Key)
	add("class", f.Class)
	add("cause", f.Cause)
	add("source", f.Source)
	add("event", f.EventID)
	add("text", f.Text)
	if !f.Since.IsZero() {
		add("since", output.Stamp(f.Since))
	}
	if !f.Until.IsZero() {
		add("until", output.Stamp(f.Until))
	}
	switch {
	case len(parts) == 0 && f.Discarded:
		return "all discarded events"
	case len(parts) == 0:
		return "all dead events"
	}
	return strings.Join(parts, ", ")
}
