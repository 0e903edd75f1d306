package inbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// losing makes the inbox use connections that lose an answer.
func (b *bench) losing(l *devtest.Losing) *devtest.Losing {
	b.Helper()
	b.in = inbox.New(l.Pool(b.T, b.pool), b.nc, b.config())
	return l
}

// The answer to a statement of a step is lost, and the statement is repeated. The call is counted
// once and taken back once. So the record of the call before it, whose outcome is unknown, stays.
func TestACallIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, statement string
		answers         []answer // the vendor's; only the last one arrives
	}{
		{"begin", "start", []answer{lost, refuses}},
		{"refuse after one", "undo", []answer{lost, refuses}},
		{"refuse after two", "undo", []answer{lost, lost, refuses}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			losing := b.losing(&devtest.Losing{Mark: firstLine(b, tt.statement)})
			n := len(tt.answers)
			v := newVendor(t, tt.answers...)
			sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: n, VendorWindow: time.Hour, Schedule: postroom.Backoff{10 * time.Millisecond}}
			b.in.HandleExternal(sub, charging(v))
			b.accept("h", "e")
			b.run()
			b.eventually("its death", func() bool { return b.dead("h") == 1 })
			if !losing.Lost.Load() {
				t.Fatal("no answer was lost")
			}
			rows := b.receipts("h")
			if len(rows) != 1 || rows[0].Done || rows[0].Unanswered != n-1 || v.total() != n {
				t.Errorf("receipts %+v after %d calls, want %d without an answer", rows, v.total(), n-1)
			}
		})
	}
}

// The answer to the beginning of a step is lost, and the beginning is recorded again. Neither the
// vendor's window nor a Lookup is needed for the call, because no call was made before. The
// statement may have the steps of several events.
func TestAStepIsCalledIfTheAnswerToItsBeginningIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	losing := b.losing(&devtest.Losing{Mark: firstLine(b, "start")})
	v := newVendor(t)
	b.in.HandleExternal(inbox.Subscription{Name: "h", Attempts: 3, Schedule: postroom.Backoff{10 * time.Millisecond}}, charging(v))
	events := ids("e", 20)
	for _, id := range events {
		b.accept("h", id)
	}
	stop := b.run()
	b.eventually("an end of each event", func() bool { return len(b.effects("h"))+b.dead("h") == len(events) })
	stop()
	if !losing.Lost.Load() {
		t.Fatal("no answer was lost")
	}
	if dead, calls := b.dead("h"), v.total(); dead != 0 || calls != len(events) {
		t.Errorf("%d events are dead, and the vendor got %d calls; want 0 and %d", dead, calls, len(events))
	}
	for _, r := range b.receipts("h") {
		if r.Unanswered != 1 {
			t.Errorf("receipt %+v, want one call", r)
		}
	}
}

// The answer to the beginning of a step is lost, and the database cannot be reached until the time
// of the handler is up. No call was made, so the next attempt makes the call.
func TestAStepIsCalledAfterAnOutageInItsBeginning(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	losing := b.losing(&devtest.Losing{Mark: firstLine(b, "start")})
	losing.Down.Store(true)
	v := newVendor(t)
	handler := charging(v)
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Timeout: 500 * time.Millisecond, Schedule: postroom.Backoff{10 * time.Millisecond}, Attempts: 8},
		func(ctx context.Context, attempt *inbox.Attempt) error {
			err := handler(ctx, attempt)
			losing.Down.Store(false)
			return err
		})
	b.accept("h", "e")
	b.run()
	b.eventually("an end", func() bool { return len(b.held("h")) == 0 || b.dead("h") == 1 })
	if !losing.Lost.Load() {
		t.Fatal("no answer was lost")
	}
	if calls := v.total(); b.dead("h") != 0 || calls != 1 {
		t.Errorf("held: %+v, and %d calls; want the event done with one call", b.held("h"), calls)
	}
}

// A process lost its claim, and its call is refused after the next owner has made a call. The
// refusal says nothing about the next owner's call, whose answer is lost. So that call is looked up
// and not made again.
func TestLateRefusalLeavesALaterCallUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 10, Timeout: 30 * time.Second, Schedule: postroom.Backoff{10 * time.Millisecond}}
	var charges atomic.Int32
	finds := postroom.Lookup(func(context.Context, string) ([]byte, bool, error) {
		return []byte("ch"), charges.Load() > 0, nil
	})
	began, called, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begin, refuse := sync.OnceFunc(func() { close(began) }), sync.OnceFunc(func() { close(refused) })
	old := inbox.New(b.pool, b.nc, b.config())
	old.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		defer refuse()
		_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) ([]byte, error) {
			begin() // its request waits for a connection
			<-called
			return nil, postroom.NotApplied(errors.New("no connection"))
		}, finds)
		return err
	})
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) ([]byte, error) {
			if charges.Add(1) == 1 {
				close(called)
			}
			<-refused
			return nil, errors.New("EOF")
		}, finds)
		return err
	})
	b.accept("h", "e")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- old.Run(ctx) }()
	<-began
	b.exec("UPDATE postroom.held SET claimed_by = 'gone', next_at = now() - interval '1 s', epoch = epoch + 1") // its claim has run out
	b.run()
	b.waitUntilNoneHeld("h")
	if got := charges.Load(); got != 1 {
		t.Errorf("the next owner called %d times, want 1", got)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Run = %v", err)
	}
}
