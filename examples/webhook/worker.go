package main

import (
	"context"
	"errors"
	"sync"

	"github.com/postroom/postroom/inbox"
)

// worker runs an inbox that can be stopped and started. In a company that is a
// process of its own, of which there are some.
type worker struct {
	inbox *inbox.Inbox

	mu     sync.Mutex
	cancel context.CancelFunc // nil while stopped
	ended  chan error
}

// start runs the inbox until stop is called. It does nothing if it runs.
func (w *worker) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.cancel, w.ended = cancel, ended
	go func() { ended <- w.inbox.Run(ctx) }() // ends with stop
}

// stop lets the inbox drain, and returns when it has. It does nothing if it is
// stopped.
func (w *worker) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel == nil {
		return nil
	}
	w.cancel()
	w.cancel = nil
	return <-w.ended
}

// failed returns the error of an inbox that ended by itself: of one that waiting
// does not mend.
func (w *worker) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-w.ended:
		w.cancel()
		w.cancel, w.ended = nil, nil
		return errors.Join(errors.New("the inbox ended"), err)
	default:
		return nil
	}
}
