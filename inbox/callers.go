package inbox

import "runtime/debug"

// caller is a goroutine that runs handlers, one after the other: a new one for
// each event would grow its stack anew each time. One that a handler ended, or
// does not return to, is not used again.
type caller struct {
	calls chan func() error
	done  chan error // has room for one, so that a caller that was left behind ends
}

// callers are the idle ones of a handler.
type callers chan *caller

func (cs callers) get() *caller {
	select {
	case c := <-cs:
		return c
	default:
	}
	c := &caller{calls: make(chan func() error), done: make(chan error, 1)}
	go c.run()
	return c
}

func (cs callers) put(c *caller) {
	select {
	case cs <- c:
	default:
		close(c.calls)
	}
}

// close ends the idle ones.
func (cs callers) close() {
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

// one runs a call. Its deferred function runs also where the call ends the
// goroutine.
func (c *caller) one(call func() error) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, frame: panicFrame(), stack: debug.Stack()}
		}
		c.done <- err
	}()
	err = call()
}
