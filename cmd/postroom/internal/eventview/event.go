// Package eventview prints the results of package inspect: one event, a page of events, or a tree
// of events.
package eventview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// Report is the JSON document about one event. Scripts read it.
type Report struct {
	*inspect.EventTrace

	Timeline []inspect.TimelineEntry `json:"timeline"`
}

// Event prints everything that the inspector found out about an event.
func Event(out io.Writer, asJSON bool, j *inspect.EventTrace) error {
	if asJSON {
		return output.JSON(out, Report{j, j.Timeline()})
	}
	if err := output.Facts(out, factRows(j)); err != nil {
		return err
	}
	if err := output.Block(out, handlerRows(j)); err != nil {
		return err
	}
	if err := output.Block(out, timelineRows(j.Timeline())); err != nil {
		return err
	}
	notes := make([]string, 0, len(j.Notes)+1)
	for _, note := range j.Notes {
		notes = append(notes, "note: "+output.Flat(note))
	}
	if len(j.CausedBy)+len(j.Caused) > 0 {
		notes = append(notes, "causes and effects: postroom events tree "+output.Quoted(j.EventID))
	}
	if len(notes) == 0 {
		return nil
	}
	return output.Text(out, "\n"+strings.Join(notes, "\n")+"\n")
}

// factRows returns the properties of the event, and its places in the log and in the streams.
func factRows(j *inspect.EventTrace) [][]string {
	rows := [][]string{{"EVENT", output.Cell(j.EventID, 255)}}
	for _, s := range j.Sources {
		rows = append(rows, []string{"SOURCE", output.Cell(s, 255)})
	}
	for _, l := range j.LogEntries {
		rows = append(rows, []string{"TYPE", l.Type}, []string{"LOG", fmt.Sprintf("seq %d, %s%s", l.Seq, published(l.State), ofSource(j, l.Source))})
		if l.Subject != l.Type {
			rows = append(rows, []string{"SUBJECT", l.Subject})
		}
		if l.Key != "" {
			rows = append(rows, []string{"KEY", output.Cell(l.Key, 255)})
		}
		if l.CorrelationID != "" {
			rows = append(rows, []string{"CORRELATION", output.Cell(l.CorrelationID, 255)})
		}
	}
	if len(j.LogEntries) == 0 {
		rows = append(rows, []string{"LOG", "not in this log: another service wrote it, or retention removed it"})
	}
	for _, s := range j.Streams {
		rows = append(rows, []string{"STREAM", inStream(s)})
	}
	if !j.Broker.Asked || j.Broker.Fault != "" {
		rows = append(rows, []string{"BROKER", BrokerLine(j.Broker)})
	}
	for _, c := range j.CausedBy {
		rows = append(rows, []string{"CAUSED BY", fmt.Sprintf("%s %s of %s", c.Type, output.Cell(c.EventID, 255), output.Cell(c.Source, 255))})
	}
	for _, c := range j.Caused {
		rows = append(rows, []string{"CAUSED", fmt.Sprintf("%s %s of %s", c.Type, output.Cell(c.EventID, 255), output.Cell(c.Source, 255))})
	}
	for _, s := range j.Sagas {
		rows = append(rows, []string{"SAGA", fmt.Sprintf("%s; 'postroom saga show %s %s'", output.Cell(s.String(), 700), output.Quoted(s.Saga), output.Quoted(s.Key))})
	}
	return rows
}

// ofSource returns a text with the source of an event, or an empty text if the trace has only one
// source.
func ofSource(j *inspect.EventTrace, source string) string {
	if len(j.Sources) < 2 {
		return ""
	}
	return ", of " + output.Cell(source, 255)
}

func published(p inspect.PublishState) string {
	switch p {
	case inspect.Published:
		return "published"
	case inspect.Unpublished:
		return "not published yet: 'postroom status' says what the relay waits for"
	case inspect.Pending:
		return "read by a relay, and not yet recorded as acknowledged"
	case inspect.PublishHeld:
		return "held on its way to the broker"
	case inspect.PublishDiscarded:
		return "discarded before it was published"
	}
	return string(p)
}

func inStream(s inspect.StreamSearch) string {
	switch {
	case s.Found:
		return fmt.Sprintf("%s, sequence %d", s.Stream, s.Seq)
	case s.Complete:
		return fmt.Sprintf("%s does not have it: the command examined all %s since %s", s.Stream, output.Plural(s.Examined, "message"), output.Stamp(s.From))
	}
	return fmt.Sprintf("not found in %s, in the part that was searched: %s since %s", s.Stream, output.Plural(s.Examined, "message"), output.Stamp(s.From))
}

// handlerRows returns a row for each handler. The row has the state of the event at that handler.
func handlerRows(j *inspect.EventTrace) [][]string {
	rows := [][]string{{"HANDLER", "EVENT IS", "WHY"}}
	for _, h := range j.Held {
		why := fmt.Sprintf("waits behind an earlier event of key %s", output.Cell(h.BlockedKey, 60))
		if n := len(h.Failures); n > 0 {
			why = fmt.Sprintf("%s, %s: %s", output.Plural(h.Attempts, "attempt"), h.Class, output.Cell(h.Failures[n-1].Text, 100))
		} else if h.State != held.Waiting {
			why = "-"
		}
		if !h.NextAt.IsZero() {
			why += "; next at " + output.Stamp(h.NextAt)
		}
		rows = append(rows, []string{output.Cell(h.Handler, 60), string(h.State), why})
	}
	for _, h := range j.Discarded {
		rows = append(rows, []string{output.Cell(h.Handler, 60), string(h.State), fmt.Sprintf("audit %d, was dead: %s", h.AuditID, h.Class)})
	}
	for _, d := range j.Decisions {
		switch {
		case d.State == "":
			rows = append(rows, []string{output.Cell(d.Handler, 60), "done", cmp.Or(output.Cell(d.Result, 100), "-")})
		case d.State == held.Discarded && !slices.ContainsFunc(j.Discarded, func(h held.Row) bool { return h.Handler == d.Handler }):
			rows = append(rows, []string{output.Cell(d.Handler, 60), string(d.State), "purged since then"})
		}
	}
	for _, h := range j.Undecided {
		rows = append(rows, []string{output.Cell(h, 60), "not decided", "not delivered yet (see 'postroom handlers'), or the handler has a DedupeKey"})
	}
	return rows
}

func timelineRows(all []inspect.TimelineEntry) [][]string {
	rows := [][]string{{"TIME", "LATER BY", "WHERE", "WHAT"}}
	for n, m := range all {
		later := ""
		if n > 0 {
			later = "+" + gap(m.At.Sub(all[n-1].At).Seconds())
		}
		rows = append(rows, []string{m.At.Format("2006-01-02T15:04:05.000Z"), later, output.Cell(m.Where, 60), output.Cell(m.Text, 160)})
	}
	return slices.Clip(rows)
}

// gap formats a time span, with milliseconds if it is shorter than ten seconds.
func gap(seconds float64) string {
	if seconds < 10 {
		return fmt.Sprintf("%.3fs", seconds)
	}
	return output.Span(time.Duration(seconds * float64(time.Second)))
}

// BrokerLine says whether the broker answered. If not, it says why.
func BrokerLine(b inspect.Broker) string {
	switch {
	case b.Fault != "":
		return "could not be asked: " + output.Flat(b.Fault)
	case !b.Asked:
		return "not asked: give --nats-url or set POSTROOM_NATS_URL"
	}
	return "answers"
}
