package invoke

import (
	"fmt"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// caller is a goroutine that runs handlers, one after the other: a new one for
// each event would grow its stack anew each time. One that a handler ended, or
// does not return to, is not used again.
type caller struct {
	calls chan func() error
	done  chan error // has room for one, so that a caller that was left behind ends
}

// pool has the idle ones of a handler.
type pool chan *caller

func (cs pool) get() *caller {
	select {
	case c := <-cs:
		return c
	default:
	}
	c := &caller{calls: make(chan func() error), done: make(chan error, 1)}
	go c.run()
	return c
}

func (cs pool) put(c *caller) {
	select {
	case cs <- c:
	default:
		close(c.calls)
	}
}

// close ends the idle ones.
func (cs pool) close() {
	for {
		select {
		case c := <-cs:
			close(c.calls)
		default:
			return
		}
	}
}

func (c *caller) run() {
	for call := range c.calls {
		c.one(call)
	}
}

// one runs a call, and describes the error that it returned: both with the guard up and
// within the time that the caller of this one waits. Its deferred function runs also
// where the call, or a method of its error, ends the goroutine.
func (c *caller) one(call func() error) {
	err := delivery.ErrGoexit
	defer func() { c.done <- err }()
	err = guarded(call)
}

// guarded calls a user's function. The error that it returns holds no value of the user's.
func guarded(call func() error) error {
	err := guard.Call(call)
	if err == nil {
		return nil
	}
	var described error
	if failed := guard.Call(func() error { described = returned(err); return nil }); failed != nil {
		return fmt.Errorf("a method of the returned error, of type %T: %w", err, failed)
	}
	return described
}
