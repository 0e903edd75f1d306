package deadcmd

import (
	"regexp"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/deadletter"
)

// filterFlags has the flags that select dead events.
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
		{&w.f.Handler, "handler", "events of this handler; outbox for events that could not be published"},
		{&w.f.Type, "type", "events of this type"},
		{&w.f.Key, "key", "events with this key"},
		{&w.f.Class, "class", "events whose last failure has this class"},
		{&w.f.Cause, "cause", "events with this cause, as 'postroom dead groups' shows it"},
		{&w.f.Source, "source", "events of this source"},
		{&w.f.EventID, "event", "events with this event id, which the producer chose"},
		{&w.f.Text, "text", "events with this text in the body or in a failure"},
		{&w.since, "since", "events that died at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)"},
		{&w.until, "until", "events that died before this time"},
	} {
		flags.StringVar(flag.to, flag.name, "", flag.usage)
		command.NoFileCompletion(cmd, flag.name)
	}
	cause := regexp.MustCompile(`^[0-9a-f]{32}$`)
	argument.Check(cmd, "cause", "want 32 hexadecimal digits, as 'postroom dead groups' shows them", func() bool { return cause.MatchString(w.f.Cause) })
	for _, name := range []string{"handler", "type", "key", "class", "cause", "source", "event", "text", "since", "until"} {
		argument.Conditions(cmd, name)
	}
}

// addAll adds the flag --all to a command that changes events.
func (w *filterFlags) addAll(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&w.all, "all", false, usage)
}

// filter returns the filter that the flags and the ids, the command's arguments, give.
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
	f.Since, f.Until, err = argument.Span("since", w.since, "until", w.until)
	return f, err
}

// required returns the filter for a command that changes events. It returns an error if there are
// no ids, no conditions and no --all, or if there is --all with ids or conditions.
func (w *filterFlags) required(ids []string) (deadletter.Filter, error) {
	f, err := w.filter(ids)
	switch {
	case err != nil:
		return f, err
	case f.IsZero() && !w.all:
		return f, exit.Usagef("which events? Give their ids, or select them, for instance with --cause or --handler, or give --all")
	case !f.IsZero() && w.all:
		return f, exit.Usagef("--all selects all events: leave out the other conditions")
	}
	f.All = w.all
	return f, nil
}
