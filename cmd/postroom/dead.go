package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/operator"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
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
	d := &dead{operator.New(getenv)}
	cmd := command.Group("dead", "Look at dead events; replay, edit, discard them",
		newDeadGroups(d), newDeadList(d), newDeadShow(d),
		newDeadReplay(d), newDeadReplays(d), newDeadResume(d), newDeadCancel(d),
		newDeadDiscard(d), newDeadReopen(d), newDeadEdit(d), newDeadResolve(d),
		newDeadExport(d), newDeadPurge(d),
	)
	cmd.Long = deadHelp
	d.DB.AddSchemaFlag(cmd)
	return cmd
}

// dead has what the commands on dead events have in common.
type dead struct{ operator.Operator }

// with connects and calls do with the events.
func (d *dead) with(ctx context.Context, do func(store *deadletter.Store) error) error {
	return d.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		store := deadletter.New(conn, deadletter.Config{Schema: name})
		if err := store.Check(ctx); err != nil {
			return err
		}
		return do(store)
	})
}

func (d *dead) audit() deadletter.Audit { return deadletter.Audit{Actor: d.Who(), Reason: d.Reason} }

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
		command.NoFileCompletion(cmd, flag.name)
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
		id, err := argument.ID(arg)
		if err != nil {
			return f, err
		}
		f.IDs = append(f.IDs, id)
	}
	var err error
	if f.Since, err = argument.Time("since", w.since); err != nil {
		return f, err
	}
	f.Until, err = argument.Time("until", w.until)
	return f, err
}

// required is filter for a command that changes events: it must select some, or have --all.
func (w *deadFilter) required(ids []string) (deadletter.Filter, error) {
	f, err := w.filter(ids)
	switch {
	case err != nil:
		return f, err
	case f.IsZero() && !w.all:
		return f, exit.Usagef("which events? Give their ids, or say what they have in common, for instance --cause or --handler; or --all")
	case !f.IsZero() && w.all:
		return f, exit.Usagef("--all means all: leave the other conditions out")
	}
	return f, nil
}

// filterText describes a filter in a sentence.
func filterText(f deadletter.Filter) string {
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
	if len(parts) == 0 {
		return "all dead events"
	}
	return strings.Join(parts, ", ")
}
