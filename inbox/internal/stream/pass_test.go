package stream

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
)

// If a message that the broker has sent does not come between two checks, the pass ends. Otherwise
// the loss would be noticed only when another message comes.
func TestPassEndsIfAMessageDoesNotCome(t *testing.T) {
	t.Parallel()
	r := &pass{term: &term{}, gap: make(chan struct{})}
	looks := []struct {
		received, sent uint64
		lost           bool
	}{
		{0, 0, false}, // nothing was sent
		{0, 2, false}, // two are on their way
		{1, 2, false}, // one has come
		{2, 2, false}, // and the other
		{2, 3, false},
		{3, 4, false}, // another is on its way now
		{3, 4, true},
		{3, 4, true},
	}
	for i, look := range looks {
		r.received.Store(look.received)
		r.await(look.sent)
		if lost := errors.Is(r.ended(), errGap); lost != look.lost {
			t.Errorf("look %d: lost is %v, want %v", i, lost, look.lost)
		}
	}
}

// hasty is a consumer that does not know yet of its stream's messages.
type hasty struct{ jetstream.Consumer }

func (h hasty) Info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info, err := h.Consumer.Info(ctx)
	if err == nil {
		info.NumPending = 0
	}
	return info, err
}

// The floor moves past other services' messages that were there at the previous check. It does not
// move past a message that is still to be read.
func TestFloorOfAnIdleReaderMoves(t *testing.T) {
	t.Parallel()
	js := devtest.JetStream(t, devtest.NATS(t))
	name := nats.NewInbox()[len("_INBOX."):]
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, FilterSubjects: []string{name + ".ours.*", name + ".mine"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &pass{
		term:     &term{reader: &OrderedReader{}, stream: stream, subjects: []string{name + ".ours.*", name + ".mine"}},
		consumer: hasty{pulled}, made: pulled.CachedInfo().Config,
	}
	for _, step := range []struct {
		subject string
		floor   uint64
	}{{"others", 0}, {"others", 1}, {"mine", 2}, {"others", 2}, {"ours.x", 2}} {
		if _, err := js.Publish(t.Context(), name+"."+step.subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		if floor := r.term.floor.now().Seq; floor != step.floor {
			t.Errorf("after %s the floor is at %d, want %d", step.subject, floor, step.floor)
		}
	}
}
