//go:build linux || darwin

package operators

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// event returns the id of the event with the given number.
func event(n int) string { return fmt.Sprintf("event-%010d", n) }

// questions asks all questions.
func (o *office) questions(ctx context.Context, c *clerk) error {
	all := []question{o.late(), o.dead()}
	all = append(all, o.where()...)
	all = append(all, o.replayed(), o.replays(), o.safe(), o.forecast(), o.keys(), o.handlers(), o.lost(), o.grows())
	all = append(all, o.searches()...)
	for _, q := range all {
		if err := c.ask(ctx, q); err != nil {
			return err
		}
	}
	return o.pages(ctx, c)
}

func (o *office) late() question {
	return question{
		asks: "1 what is late?", args: []string{"status"}, want: "a handler and a replay that no process runs, dead events",
		read: reading(func(s inspect.Status) (string, bool) {
			found := map[string]int{}
			var texts []string
			for _, f := range s.Findings {
				found[f.Code]++
				texts = append(texts, f.Text)
			}
			return strings.Join(texts, "; "), s.Relay.Leads && len(found) == 3 &&
				found[inspect.FoundNoProcess] == 1 && found[inspect.FoundReplayIdle] == 1 && found[inspect.FoundDead] == 3
		}),
	}
}

func (o *office) dead() question {
	type groups struct{ Groups []deadletter.Group }
	return question{
		asks: "2 what is dead, and why?", args: []string{"dead", "groups"}, want: figures.Grouped(40*o.unit) + " of 5 causes",
		read: reading(func(v groups) (string, bool) {
			all, texts := int64(0), []string{}
			for _, g := range v.Groups {
				all += g.Events
				texts = append(texts, fmt.Sprintf("%s of %s (%s)", figures.Grouped(g.Events), g.Handler, g.Class))
			}
			return fmt.Sprintf("%s of %d causes: %s", figures.Grouped(all), len(v.Groups), strings.Join(texts, ", ")), all == int64(40*o.unit) && len(v.Groups) == 5
		}),
	}
}

// where asks for an old event, a dead event, and an event that just came.
func (o *office) where() []question {
	old := 30*(o.rows/600) + 14 // a move that caused another event
	dead := 6 * (o.rows / 6 / 4)
	fresh := o.rows + o.fresh/2
	fresh += 6 - fresh%6 // a charge
	journey := func(asks string, n int, want string, right func(j inspect.EventTrace) bool) question {
		return question{
			asks: asks, args: []string{"events", "show", event(n)}, want: want,
			read: reading(func(j inspect.EventTrace) (string, bool) { return way(j), len(j.LogEntries) == 1 && right(j) }),
		}
	}
	return []question{
		journey("3 where is event X, of two days ago?", old, "published, done at one handler, caused one", func(j inspect.EventTrace) bool {
			return len(j.Decisions) == 1 && j.Decisions[0].State == "" && len(j.Caused) == 1 && j.Caused[0].EventID == event(old+1)
		}),
		journey("3 where is event X, which is dead?", dead, "published, dead at one handler", func(j inspect.EventTrace) bool {
			return len(j.Held) == 1 && j.Held[0].State == held.Dead && len(j.Held[0].Failures) == 1
		}),
		journey("3 where is event X, which just came?", fresh, "published, in the stream, done at one handler", func(j inspect.EventTrace) bool {
			return len(j.Decisions) == 1 && len(j.Streams) == 1 && j.Streams[0].Found
		}),
	}
}

// way describes in one line where an event is and what happened to it.
func way(j inspect.EventTrace) string {
	var parts []string
	for _, l := range j.LogEntries {
		parts = append(parts, string(l.State))
	}
	for _, s := range j.Streams {
		if s.Found {
			parts = append(parts, fmt.Sprintf("sequence %d of %s", s.Seq, s.Stream))
			continue
		}
		parts = append(parts, fmt.Sprintf("not among %s messages of %s since (all: %t)", figures.Grouped(s.Examined), s.Stream, s.Complete))
	}
	for _, d := range j.Decisions {
		if d.State == "" {
			parts = append(parts, "done at "+d.Handler)
		}
	}
	for _, h := range j.Held {
		parts = append(parts, fmt.Sprintf("%s at %s, attempts %d: %s", h.State, h.Handler, h.Attempts, h.Failures[len(h.Failures)-1].Text))
	}
	for _, c := range j.Caused {
		parts = append(parts, "caused "+c.EventID)
	}
	return strings.Join(parts, "; ")
}

func (o *office) replayed() question {
	return question{
		asks: "4 who replayed what?", args: []string{"audit", "--action", "replay"}, want: "the last two replays or more",
		read: reading(func(a inspect.AuditPage) (string, bool) {
			var texts []string
			for _, a := range a.Entries {
				texts = append(texts, fmt.Sprintf("%s %s: %s (%s)", a.Actor, a.At.Format("02 15:04"), figures.Grouped(a.Events), a.Reason))
			}
			return strings.Join(texts, ", "), len(texts) >= 2
		}),
	}
}

// replays asks for the whole list of replays. The audit also has the replays, but among all other
// actions.
func (o *office) replays() question {
	return question{
		asks: "4 who replayed what, and how did it go?", args: []string{"replay", "list"}, want: "all four replays",
		read: reading(func(all struct{ Replays []deadletter.Replay }) (string, bool) {
			var texts []string
			for _, j := range all.Replays {
				texts = append(texts, fmt.Sprintf("%s: %s, %d of %d succeeded", j.Actor, j.State, j.Succeeded, j.Events))
			}
			return strings.Join(texts, "; "), len(texts) == 4
		}),
	}
}

func (o *office) safe() question {
	return question{
		asks: "5 is the set-up safe?", args: []string{"doctor"}, want: "the handler that no process runs is found",
		read: reading(func(v doctor.Report) (string, bool) {
			var texts []string
			unknown := false
			for _, f := range v.Findings {
				if f.Severity == doctor.Fault || f.Severity == doctor.Warning {
					texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Check, f.Subject)))
				}
				unknown = unknown || f.Subject == builds
			}
			return fmt.Sprintf("%s; %d checks passed", strings.Join(texts, ", "), len(v.Of(doctor.OK))), unknown
		}),
	}
}

func (o *office) forecast() question {
	type preview struct {
		Events  int64
		Groups  []deadletter.PreviewGroup
		DryRuns []deadletter.DryRun `json:"dry_runs"`
	}
	print := hex.EncodeToString(o.causes[0].fingerprint())
	want := int64(15 * o.unit) // a sixteenth is in a replay that is idle
	return question{
		asks: "6 what would a replay do?", args: []string{"dead", "replay", "--cause", print, "--dry-run", "--try", "1"},
		want: figures.Grouped(want) + " events; the one that is tried passes, with one effect",
		read: reading(func(p preview) (string, bool) {
			if len(p.Groups) != 1 || len(p.DryRuns) != 1 {
				return fmt.Sprintf("%d groups, %d dry runs", len(p.Groups), len(p.DryRuns)), false
			}
			f, t := p.Groups[0], p.DryRuns[0]
			var changes []string
			for _, c := range t.Changes {
				changes = append(changes, fmt.Sprintf("%d inserted into %s", c.Inserted, c.Name))
			}
			return fmt.Sprintf("%s events of %s, %s more are in another replay; tried %s: %s, %s", figures.Grouped(f.Events), f.Handler, figures.Grouped(f.InReplay), t.EventID, t.Verdict, strings.Join(changes, ", ")),
				f.Events == want && t.Verdict == deadletter.DryRunPasses && len(t.Changes) == 1 && t.Changes[0].Inserted == 1
		}),
	}
}

func (o *office) keys() question {
	return question{
		asks: "7 which key is held?", args: []string{"keys", "--limit", "1000"}, want: figures.Grouped(o.accounts) + " keys",
		read: reading(func(k inspect.Keys) (string, bool) {
			if len(k.Keys) == 0 {
				return "none", false
			}
			first := k.Keys[0]
			return fmt.Sprintf("%d of %s; %s behind %s, which is %s: %s", len(k.Keys), first.Handler, figures.Grouped(first.Behind), first.Head.EventID, first.Head.State, first.Head.Failure),
				len(k.Keys) == o.accounts && first.Behind == int64(60*o.unit/o.accounts)
		}),
	}
}

func (o *office) handlers() question {
	return question{
		asks: "8 how far is each handler?", args: []string{"handlers"}, want: "4 handlers, 3 of them run",
		read: reading(func(h inspect.Handlers) (string, bool) {
			var texts []string
			run := 0
			for _, h := range h.Handlers {
				if len(h.Processes) > 0 {
					run++
				}
				text := fmt.Sprintf("%s: %s held, no process runs it", h.Name, figures.Grouped(h.Held.Events()))
				if h.Broker != nil {
					text = fmt.Sprintf("%s: %d pending, %s held", h.Name, h.Broker.Pending, figures.Grouped(h.Held.Events()))
				}
				texts = append(texts, text)
			}
			return strings.Join(texts, "; "), len(h.Handlers) == 4 && run == 3
		}),
	}
}

func (o *office) lost() question {
	return question{
		asks: "9 did the broker lose anything?", args: []string{"stream", "check"}, want: "nothing, of 200 events",
		read: reading(func(l doctor.Losses) (string, bool) {
			if len(l.Streams) != 1 {
				return fmt.Sprintf("%d streams", len(l.Streams)), false
			}
			t := l.Streams[0]
			return strings.TrimSpace(fmt.Sprintf("%d of the %d newest events are missing in %s; %d handlers compared %s", len(t.Missing), t.Compared, t.Stream, len(l.Handlers), t.Note)),
				!l.Any() && t.Compared == 200 && len(l.Handlers) == 3
		}),
	}
}

func (o *office) grows() question {
	return question{
		asks: "10 what grows?", args: []string{"tables"}, want: "the log first",
		read: reading(func(v inspect.Tables) (string, bool) {
			var texts []string
			for _, t := range v.Tables[:min(3, len(v.Tables))] {
				text := fmt.Sprintf("%s %s, about %s rows", t.Name, figures.Megabytes(t.Bytes+t.IndexBytes), figures.Grouped(t.EstimatedRows))
				if t.OldestAgeSeconds > 0 {
					text += fmt.Sprintf(", the oldest %.0f h", t.OldestAgeSeconds/3600)
				}
				texts = append(texts, text)
			}
			return strings.Join(texts, "; "), len(v.Tables) > 2 && v.Tables[0].Name == "outbox"
		}),
	}
}

// found is a page of dead events.
type found struct {
	Events []deadletter.Letter
	Next   string
}

// searches returns searches for dead events, as questions.
func (o *office) searches() []question {
	type count struct {
		Count int
		More  bool
	}
	counts := func(want int) func(out []byte) (string, bool, error) {
		return reading(func(v count) (string, bool) { return figures.Grouped(v.Count), v.Count == want })
	}
	finds := func(want int) func(out []byte) (string, bool, error) {
		return reading(func(v found) (string, bool) { return figures.Grouped(len(v.Events)), len(v.Events) == want })
	}
	return []question{
		{"how many are dead?", []string{"dead", "list", "--count"}, figures.Grouped(40 * o.unit), counts(40 * o.unit)},
		{"how many of a handler?", []string{"dead", "list", "--handler", mails, "--count"}, figures.Grouped(8 * o.unit), counts(8 * o.unit)},
		{"those of a handler", []string{"dead", "list", "--handler", moves, "--limit", "1000"}, "a page", finds(min(6*o.unit, 1000))},
		// A count with a text reads only the events that died last. pages finds all of them.
		{"how many have a text, at least?", []string{"dead", "list", "--text", fundsText, "--count"}, "at most " + figures.Grouped(16*o.unit), reading(func(v count) (string, bool) {
			if !v.More {
				return figures.Grouped(v.Count), v.Count == 16*o.unit
			}
			return figures.Grouped(v.Count) + " or more", v.Count > 0 && v.Count < 16*o.unit
		})},
		{"how many have a text that none has?", []string{"dead", "list", "--text", "no such thing", "--count"}, "0", counts(0)},
		{"the last actions", []string{"audit"}, "100", reading(func(a inspect.AuditPage) (string, bool) {
			return figures.Grouped(len(a.Entries)), len(a.Entries) == min(100, 40*o.unit)
		})},
	}
}

// fundsText is in the failures of 16 of 40 dead events.
const fundsText = "insufficient FUNDS"

// pages lists dead events, page by page: all of them, those with a text that many have, and the one
// whose id is in its failure.
func (o *office) pages(ctx context.Context, c *clerk) error {
	size := stage.Pick(o.stage, 1000, 30)
	for _, list := range []struct {
		what string
		args []string
		want int
	}{
		{"all of them", nil, 40 * o.unit},
		{"those with a text", []string{"--text", fundsText}, 16 * o.unit},
		{"those with a text that one has", []string{"--text", event(6 * (o.rows / 6 / 4))}, 1},
	} {
		args := append([]string{"dead", "list", "--limit", fmt.Sprint(size)}, list.args...)
		seen, took, err := o.follow(ctx, c, args)
		if err != nil {
			return err
		}
		o.stage.Check(list.what+", page by page", figures.Grouped(seen), figures.Grouped(list.want), seen == list.want)
		o.stage.Note(list.what+", a page of "+figures.Grouped(size), "%s", took)
		c.judge(typed(append(args, "--after", "…")), took.Most())
	}
	return nil
}

// follow runs a command that lists dead events until there is no next page. It returns how many
// events the pages have, and how long each page took.
func (o *office) follow(ctx context.Context, c *clerk, args []string) (events int, took *figures.Durations, err error) {
	seen, after := map[int64]bool{}, ""
	took = &figures.Durations{}
	for range 40*o.unit + 10 { // enough even if each page has one event, and ten pages have none
		page := args
		if after != "" {
			page = append(slices.Clip(args), "--after", after)
		}
		out, d, err := c.run(ctx, page...)
		if err != nil {
			return 0, took, err
		}
		took.Add(d)
		_, _, err = reading(func(v found) (string, bool) {
			for _, l := range v.Events {
				seen[l.ID] = true
			}
			after = v.Next
			return "", true
		})(out)
		if err != nil || after == "" {
			return len(seen), took, err
		}
	}
	return 0, took, errors.New("the pages of dead events have no end")
}
