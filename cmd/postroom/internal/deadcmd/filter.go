package deadcmd

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/deadletter"
)

// filterFlags has the flags of a filter.
type filterFlags struct {
	f            deadletter.Filter
	since, until string
	all          bool
}

func (w *filterFlags) addFlags(cmd *cobra.Command) {
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
		argument.Conditions(cmd, flag.name)
	}
}

// addAll adds the flag --all, for a command that changes events.
func (w *filterFlags) addAll(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.all, "all", false, "all dead events")
}

// filter returns the filter; ids are the arguments of the command.
func (w *filterFlags) filter(ids []string) (deadletter.Filter, error) {
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
func (w *filterFlags) required(ids []string) (deadletter.Filter, error) {
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
