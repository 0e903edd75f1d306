package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/deadletter"
)

const deadHelp = `Look at events whose attempts failed for good, find out what they have in common,
and replay, edit or discard them.

A replay runs the event's own handler and no other, and what that did before it
does not do again. Each action is noted with who did it and why:
'postroom audit' lists it. Who is taken from --actor, POSTROOM_ACTOR, or the user
and machine.

At three in the morning:
  postroom dead groups                              what killed them, and how many
  postroom dead show 4711                           one of them, whole
  postroom dead replay --cause CAUSE --dry-run      would it work now?
  postroom dead replay --cause CAUSE --canary 10    ten first, then the rest`

func newDead(getenv func(string) string) *cobra.Command {
	d := &dead{newOperator(getenv)}
	cmd := group("dead", "Look at dead events; replay, edit, discard them",
		newDeadGroups(d), newDeadList(d), newDeadShow(d),
		newDeadReplay(d), newDeadReplays(d), newDeadResume(d), newDeadCancel(d),
		newDeadDiscard(d), newDeadReopen(d), newDeadEdit(d), newDeadResolve(d),
		newDeadExport(d), newDeadPurge(d),
	)
	cmd.Long = deadHelp
	d.db.addSchemaFlag(cmd)
	return cmd
}

// dead has what the commands on dead events have in common.
type dead struct{ operator }

// with connects and calls do with the events.
func (d *dead) with(ctx context.Context, do func(store *deadletter.Store) error) error {
	return d.db.with(ctx, func(conn *pgx.Conn, name string) error {
		store := deadletter.New(conn, deadletter.Config{Schema: name})
		if err := store.Check(ctx); err != nil {
			return err
		}
		return do(store)
	})
}

func (d *dead) audit() deadletter.Audit { return deadletter.Audit{Actor: d.who(), Reason: d.reason} }

// deadFilter has the flags of a filter.
type deadFilter struct {
	f            deadletter.Filter
	since, until string
	all          bool
}

func (w *deadFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, flag := range []struct {
		to          *string
		name, usage string
	}{
		{&w.f.Handler, "handler", "of this handler; outbox for events that could not be published"},
		{&w.f.Type, "type", "of this event type"},
		{&w.f.Key, "key", "with this key"},
		{&w.f.Class, "class", "whose last failure has this class"},
		{&w.f.Cause, "cause", "with this cause: see 'postroom dead groups'"},
		{&w.f.Source, "source", "of this source"},
		{&w.f.EventID, "event", "with this event id"},
		{&w.f.Text, "text", "with this text in the body or in a failure"},
		{&w.since, "since", "died at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)"},
		{&w.until, "until", "died before this time"},
	} {
		flags.StringVar(flag.to, flag.name, "", flag.usage)
		noFileCompletion(cmd, flag.name)
	}
}

// addAll adds the flag --all, for a command that changes events.
func (w *deadFilter) addAll(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.all, "all", false, "all dead events")
}

// filter returns the filter; ids are the arguments of the command.
func (w *deadFilter) filter(ids []string) (deadletter.Filter, error) {
	f := w.f
	for _, arg := range ids {
		id, err := eventID(arg)
		if err != nil {
			return f, err
		}
		f.IDs = append(f.IDs, id)
	}
	var err error
	if f.Since, err = parseTime("since", w.since); err != nil {
		return f, err
	}
	f.Until, err = parseTime("until", w.until)
	return f, err
}

// required is filter for a command that changes events: it must select some, or have --all.
func (w *deadFilter) required(ids []string) (deadletter.Filter, error) {
	f, err := w.filter(ids)
	switch {
	case err != nil:
		return f, err
	case f.IsZero() && !w.all:
		return f, usagef("which events? Give their ids, or say what they have in common, for instance --cause or --handler; or --all")
	case !f.IsZero() && w.all:
		return f, usagef("--all means all: leave the other conditions out")
	}
	return f, nil
}

func eventID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, usagef("an id is a number, as 'postroom dead list' shows it; for the id that its producer gave the event there is --event")
	}
	return id, nil
}

// parseTime reads a time, or how long ago it was.
func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	if at, ok := readStamp(s); ok {
		return at, nil
	}
	return time.Time{}, usagef("--%s: write a time, 2026-01-31T03:00:00Z, or how long ago it was, 90m", flag)
}

// readStamp reads a time.
func readStamp(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// ids is an argument check: any number of ids.
func ids(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := eventID(arg); err != nil {
			return err
		}
	}
	return nil
}

// oneID is an argument check: one id. what names its kind.
func oneID(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("give one id of %s", what)
		}
		return ids(cmd, args)
	}
}

// filterText describes a filter in a sentence.
func filterText(f deadletter.Filter) string {
	var parts []string
	add := func(name, v string) {
		if v != "" {
			parts = append(parts, name+" "+cell(v, 60))
		}
	}
	if len(f.IDs) > 0 {
		parts = append(parts, plural(len(f.IDs), "id"))
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
		add("since", stamp(f.Since))
	}
	if !f.Until.IsZero() {
		add("until", stamp(f.Until))
	}
	if len(parts) == 0 {
		return "all dead events"
	}
	return strings.Join(parts, ", ")
}
