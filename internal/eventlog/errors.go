package eventlog

import "errors"

var (
	// ErrLeaseHeld says that another process leads. Try again later.
	ErrLeaseHeld = errors.New("another process holds the lease")

	// ErrLeaseLost says that this process led and no longer leads. The process must forget what it
	// read from the log.
	ErrLeaseLost = errors.New("the lease was lost")

	// ErrLeaseShortened says that the lease of another process would have ended later than it can,
	// because the log's clock was set back. The lease now ends as if it had been renewed now.
	ErrLeaseShortened = errors.New("the lease would have ended later than it can: the clock of the log was set back")
)
