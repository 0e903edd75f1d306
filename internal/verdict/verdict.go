// Package verdict says how a program ends that proves something: well, not, or without
// having shown anything.
package verdict

import (
	"errors"
	"fmt"
)

// UndecidedError is how a run ended that shows nothing: its time ran out while there was work
// left to do, or it did not meet what it is about. It found no fault, and rules none out.
type UndecidedError struct{ Why string }

// NewUndecided returns an [UndecidedError] that says why.
func NewUndecided(format string, args ...any) error {
	return &UndecidedError{fmt.Sprintf(format, args...)}
}

func (u *UndecidedError) Error() string { return u.Why }

// Exit statuses of a program that proves something.
const (
	StatusFailed    = 1
	StatusUndecided = 3
)

// Words of such a program, as its last line has them.
const (
	WordOK        = "ok"
	WordFailed    = "FAILED"
	WordUndecided = "undecided"
)

// ExitStatus returns how a program ends whose run ended with err: 0 without one, 3 where
// each of the errors that are joined in it is an [UndecidedError], and else 1.
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
// [UndecidedError]. Nil is not.
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
