package deadview

import (
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

// Filter describes a filter in words.
func Filter(f deadletter.Filter) string {
	var c output.Conditions
	c.AddIDs(f.IDs)
	c.Add("handler", f.Handler)
	c.Add("type", f.Type)
	c.Add("key", f.Key)
	c.Add("class", f.Class)
	c.Add("cause", f.Cause)
	c.Add("source", f.Source)
	c.Add("event", f.EventID)
	c.Add("text", f.Text)
	c.AddTime("since", f.Since)
	c.AddTime("until", f.Until)
	if f.Discarded {
		return c.Or("all discarded events")
	}
	return c.Or("all dead events")
}
