// Package verdict has the results of a program that tests something: the test passed, it failed, or
// it is undecided because it showed nothing.
package verdict

import (
	"errors"
	"fmt"
)

// UndecidedError says that a run showed nothing: its time ran out before its work was done, or the
// situation that it tests did not occur. The run found no fault, but there may be faults.
type UndecidedError struct{ Why string }

// NewUndecided returns an [UndecidedError] with a formatted reason.
func NewUndecided(format string, args ...any) error {
	return &UndecidedError{fmt.Sprintf(format, args...)}
}

func (u *UndecidedError) Error() string { return u.Why }

// Exit statuses of a program that tests something.
const (
	StatusFailed    = 1
	StatusUndecided = 3
)

// Words for the results. A program that tests something writes one of them in the last line of its
// output.
const (
	WordOK        = "ok"
	WordFailed    = "FAILED"
	WordUndecided = "undecided"
)

// ExitStatus returns the exit status for a run that ended with err: 0 if err is nil, 3 if
// each of the errors that are joined in err is an [UndecidedError], otherwise 1.
func ExitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case IsUndecided(err):
		return StatusUndecided
	}
	return StatusFailed
}

// Of returns the word for a run that ended with err.
func Of(err error) string {
	switch ExitStatus(err) {
	case 0:
		return WordOK
	case StatusUndecided:
		return WordUndecided
	}
	return WordFailed
}

// IsUndecided reports whether each of the errors that are joined in err is an
// [UndecidedError]. It returns false for nil.
func IsUndecided(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := err.(*UndecidedError); ok { //nolint:errorlint // the chain is walked here
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := joined.Unwrap()
		for _, e := range all {
			if !IsUndecided(e) {
				return false
			}
		}
		return len(all) > 0
	}
	return IsUndecided(errors.Unwrap(err))
}
