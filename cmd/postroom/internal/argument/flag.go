package argument

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// Check makes a flag refuse values. The function valid reports whether the flag may have the value
// that it has now. The text want says which values the flag may have.
func Check(cmd *cobra.Command, name, want string, valid func() bool) {
	f := cmd.Flag(name)
	if f.DefValue == "0s" || f.DefValue == "[]" {
		f.DefValue = "" // so that the help prints no default
	}
	f.Value = checked{f.Value, want, valid}
}

// A checked is the value of a flag that refuses some values.
type checked struct {
	pflag.Value

	want  string
	valid func() bool
}

func (c checked) Set(s string) error {
	//guard:a-flag-refuses-a-wrong-value 2 false
	if err := c.Value.Set(s); err != nil || !c.valid() {
		return errors.New(c.want)
	}
	return nil
}

func (c checked) String() string {
	if s := c.Value.String(); s != "[]" {
		return s
	}
	return ""
}

// Want says which values a flag may have.
func Want(f *pflag.Flag) string {
	v := f.Value
	if c, is := v.(*condition); is {
		v = c.Value
	}
	switch v := v.(type) {
	case checked:
		return v.want
	case interface{ IsBoolFlag() bool }:
		return "want true or false"
	}
	return "want " + v.Type()
}

// Fault returns the usage error for an error of the parser of flags. It does not contain the value,
// which may be a URL with a password, and no words of the Go API.
func Fault(err error) error {
	var invalid *pflag.InvalidValueError
	//guard:a-wrong-value-is-not-shown false
	if errors.As(err, &invalid) {
		flag, why := invalid.GetFlag(), invalid.Unwrap().Error()
		if flag.Value.Type() == "bool" {
			why = Want(flag)
		}
		err = fmt.Errorf("--%s: %s", flag.Name, why)
	}
	return &exit.UsageError{Err: err}
}

// A number is the type of a flag's number.
type number interface {
	int | int64 | float64 | time.Duration
}

// Between makes a flag refuse numbers that are not from low to high.
func Between[N number](cmd *cobra.Command, name string, value *N, low, high N) {
	Check(cmd, name, fmt.Sprintf("want %v to %v", low, high), func() bool { return *value >= low && *value <= high })
}

// AtLeast makes a flag refuse numbers below low.
func AtLeast[N number](cmd *cobra.Command, name string, value *N, low N) {
	what := "at least"
	if _, is := any(low).(time.Duration); is {
		what = "a duration of at least"
	}
	Check(cmd, name, fmt.Sprintf("want %s %v", what, low), func() bool { return *value >= low })
}

// Positive makes a flag refuse durations that are not above 0. The parameter example is a value that
// the flag may have.
func Positive(cmd *cobra.Command, name string, value *time.Duration, example string) {
	Check(cmd, name, "want a positive duration such as "+example, func() bool { return *value > 0 })
}

// Rate makes a flag refuse numbers that are no number of events in a second.
func Rate(cmd *cobra.Command, name string, value *float64) {
	const most = 1e6
	Check(cmd, name, "want a number above 0 and at most "+strconv.Itoa(most), func() bool { return *value > 0 && *value <= most })
}

// PageLimit makes the flag --limit refuse numbers that no page can have.
func PageLimit(cmd *cobra.Command, limit *int) { Between(cmd, "limit", limit, 1, 1000) }

// Words makes a flag refuse words that are not in the list, and makes the shell complete these
// words. The function given returns the words that the flag has now.
func Words(cmd *cobra.Command, name string, words []string, given func() []string) {
	command.CompleteWords(cmd, name, words)
	Check(cmd, name, "want one of "+strings.Join(words, ", "), func() bool {
		return !slices.ContainsFunc(given(), func(word string) bool { return !slices.Contains(words, word) })
	})
}

// Word is Words for a flag that has one word.
func Word(cmd *cobra.Command, name string, words []string, given *string) {
	Words(cmd, name, words, func() []string { return []string{*given} })
}

// AfterID makes the flag --after refuse what no list prints at its end whose places are ids.
func AfterID(cmd *cobra.Command, after *string) {
	Check(cmd, "after", "want the value that the last page printed at its end", func() bool {
		id, err := strconv.ParseInt(*after, 10, 64)
		return *after == "" || err == nil && id > 0
	})
}

// After makes the flag --after refuse a value that no page prints at its end. An empty value selects
// the first page.
func After(cmd *cobra.Command, after *string) {
	place := regexp.MustCompile(`^\{.*\}$|^\S+ `) // what inspect and saga encode
	Check(cmd, "after", "want the value that the last page printed at its end", func() bool {
		text, err := base64.RawURLEncoding.DecodeString(*after)
		return err == nil && (len(text) == 0 || place.Match(text))
	})
}

// Conditions is for flags that select events: it makes them refuse an empty value. An empty value
// would select all events, so a script with an empty variable would change all of them. A flag that
// takes one value refuses a second one, because it would take the place of the first.
func Conditions(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		f := cmd.Flag(name)
		if f.DefValue == "[]" {
			f.DefValue = "" // so that the help prints no default
		}
		f.Value = &condition{Value: f.Value}
	}
}

// A condition is the value of a flag that selects events.
type condition struct {
	pflag.Value

	given bool
}

func (c *condition) Set(s string) error {
	//guard:an-empty-value-is-no-condition false
	if s == "" {
		return errors.New("it is empty; give a value, or leave the flag out")
	}
	//guard:a-condition-is-given-once false
	if c.given && c.Type() == "string" {
		return errors.New("it is given twice; give one value")
	}
	c.given = true
	return c.Value.Set(s)
}

func (c *condition) String() string {
	if s := c.Value.String(); s != "[]" {
		return s
	}
	return ""
}
