// Package exit has the errors that choose the exit status of the program.
package exit

import (
	"errors"
	"fmt"

	"github.com/postroom/postroom"
)

// UsageError means that the command line is wrong.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error that says what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{Err: fmt.Errorf(format, args...)} }

// IsUsage reports whether the command line is wrong.
func IsUsage(err error) bool {
	var usage *UsageError
	return errors.As(err, &usage) || errors.Is(err, postroom.ErrPage)
}

// TodoError means that a command did its work and found something that the operator has to do.
type TodoError struct{ text string }

func (e *TodoError) Error() string { return e.text }

// Todof returns a TodoError.
func Todof(format string, args ...any) error { return &TodoError{fmt.Sprintf(format, args...)} }
