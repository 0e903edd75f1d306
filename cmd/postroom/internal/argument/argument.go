// Package argument reads and checks values of a command line: ids, times, limits, names of streams.
package argument

import (
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
func Time(flag, s string) (time.Time, error) { return timeAt(time.Now(), flag, s) }

func timeAt(now time.Time, flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, ok := Stamp(s); ok {
		return at, nil
	}
	return time.Time{}, exit.Usagef("--%s: write a time, 2026-01-31T03:00:00Z, or how long ago it was, 90m", flag)
}

// Span parses the values of two flags with times, of which the first has to be before the second. For
// an empty value it returns the zero time.
func Span(sinceFlag, since, untilFlag, until string) (from, to time.Time, err error) {
	now := time.Now() // once, so that two equal durations are the same time
	if from, err = timeAt(now, sinceFlag, since); err != nil {
		return from, to, err
	}
	if to, err = timeAt(now, untilFlag, until); err != nil {
		return from, to, err
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return from, to, exit.Usagef("--%s must be before --%s", sinceFlag, untilFlag)
	}
	return from, to, nil
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
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usagef("give one id of %s", what)
		}
		if _, err := ID(args[0]); err != nil {
			return exit.Usagef("an id is a number: want that of %s", what)
		}
		return nil
	}
}

// OneName accepts exactly one argument that is not empty. The parameter want says what it names.
func OneName(want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return exit.Usagef("give %s", want)
		}
		return nil
	}
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
