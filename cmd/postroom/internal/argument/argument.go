// Package argument reads and checks what a command line gives: ids, times, limits, names of streams.
package argument

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// ID reads the id of an event.
func ID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, exit.Usagef("an id is a number, as 'postroom dead list' shows it; for the id that its producer gave the event there is --event")
	}
	return id, nil
}

// Time reads a time, or how long ago it was.
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

// Stamp reads a time.
func Stamp(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// Conditions makes flags that select events refuse an empty value. It would be no condition,
// so a script whose variable is empty would act on all.
func Conditions(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if f.DefValue == "[]" {
			f.DefValue = "" // as help knows that there is none
		}
		f.Value = condition{f.Value}
	}
}

// condition is the value of a flag that selects events.
type condition struct {
	value interface {
		String() string
		Set(s string) error
		Type() string
	}
}

func (c condition) Set(s string) error {
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

// IDs is an argument check: any number of ids.
func IDs(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := ID(arg); err != nil {
			return err
		}
	}
	return nil
}

// OneID is an argument check: one id. what names its kind.
func OneID(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usagef("give one id of %s", what)
		}
		return IDs(cmd, args)
	}
}

// Limit checks the limit of a page.
func Limit(n int) error {
	if n < 1 || n > 1000 {
		return exit.Usagef("--limit is %d, want 1 to 1000", n)
	}
	return nil
}

// StreamNames checks names. Its error does not contain an invalid name, which may be a
// misplaced URL.
func StreamNames(names []string) error {
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, " .*>/\\\t\r\n") {
			return exit.Usagef("this is no name of a stream; leave out white space, '.', '*', '>', '/' and '\\'")
		}
	}
	return nil
}
