package eventlog

import "errors"

var (
	// ErrLeaseHeld says that another process leads. Try again later.
	ErrLeaseHeld = errors.New("another process holds the lease")

	// ErrLeaseLost says that this process led and no longer leads. The process must forget what it
	// read from the log.
	ErrLeaseLost = errors.New("the lease was lost")
)
