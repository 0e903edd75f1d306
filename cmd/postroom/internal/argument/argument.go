// Package argument reads and checks values of a command line: ids, times, limits, names of streams.
package argument

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// ID parses the id of a held event, of a replay or of a republish.
func ID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, exit.Usagef("an id is a number, as 'postroom dead list' shows it; for the event id that the producer chose, use --event")
	}
	return id, nil
}

// Time parses the value of a flag: a time, or a duration that is counted back from now. For an
// empty value it returns the zero time.
func Time(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	if at, ok := Stamp(s); ok {
		return at, nil
	}
	return time.Time{}, exit.Usagef("--%s: write a time, 2026-01-31T03:00:00Z, or how long ago it was, 90m", flag)
}

// Stamp parses a time. A time without a time zone is in UTC.
func Stamp(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// Conditions is for flags that select events: it makes them refuse an empty value. An empty value
// would select all events, so a script with an empty variable would change all of them.
func Conditions(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if f.DefValue == "[]" {
			f.DefValue = "" // so that the help prints no default
		}
		f.Value = condition{f.Value}
	}
}

// A condition is the value of a flag that selects events.
type condition struct {
	value interface {
		String() string
		Set(s string) error
		Type() string
	}
}

func (c condition) Set(s string) error {
	//guard:an-empty-value-is-no-condition false
	if s == "" {
		return errors.New("it is empty; give a value, or leave the flag out")
	}
	return c.value.Set(s)
}

func (c condition) String() string {
	if s := c.value.String(); s != "[]" {
		return s
	}
	return ""
}

func (c condition) Type() string { return c.value.Type() }

// IDs accepts any number of arguments if each is an id.
func IDs(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := ID(arg); err != nil {
			return err
		}
	}
	return nil
}

// OneID accepts exactly one argument, the id of a thing. The parameter what names the thing in the
// error.
func OneID(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usagef("give one id of %s", what)
		}
		return IDs(cmd, args)
	}
}

// Limit returns a usage error if the value of --limit is not from 1 to 1000.
func Limit(n int) error {
	if n < 1 || n > 1000 {
		return exit.Usagef("--limit is %d, want 1 to 1000", n)
	}
	return nil
}

// StreamNames checks names of streams. Its error does not contain the invalid name, because a
// person may have typed a URL with a password in its place.
func StreamNames(names []string) error {
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, " .*>/\\\t\r\n") {
			return exit.Usagef("this is not the name of a stream: a name has no white space, '.', '*', '>', '/' or '\\'")
		}
	}
	return nil
}
