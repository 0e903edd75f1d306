package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// Position identifies a message of the stream. If another message has the same sequence,
// its id or its time is different.
type Position struct {
	Seq    uint64
	ID     string
	Stored time.Time // zero if that was not recorded
}

// MaxID is the largest number of bytes of a message's id that are kept.
const MaxID = 960

// PositionOf returns the Position that identifies a message.
func PositionOf(seq uint64, header map[string][]string, stored time.Time) Position {
	if _, odd := header["Status"]; odd { // the client library may take it for an error if it is looked up
		return Position{Seq: seq}
	}
	p := Position{Seq: seq, Stored: stored}
	if ids := header[wire.MsgID]; len(ids) > 0 {
		p.ID = guard.Clean(ids[0], MaxID)
	}
	return p
}

// IsIn reports whether a stream in the given state has the message, or had it and dropped
// it. If the stream has another message at that sequence, or has not reached the
// sequence, the broker has lost data.
func (p Position) IsIn(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState) (bool, error) {
	switch {
	case p.Seq > state.LastSeq:
		return false, nil
	case p.Seq < state.FirstSeq || p.Stored.IsZero(): // the message was dropped, or no message was recorded
		return true, nil
	}
	msg, err := stream.GetMsg(ctx, p.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was deleted
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look up message %d: %w", p.Seq, err)
	}
	return p.isSame(PositionOf(p.Seq, msg.Header, msg.Time)), nil
}

// isSame reports whether two positions are the same message, as far as the recorded data
// shows.
func (p Position) isSame(other Position) bool {
	return p.ID == other.ID && p.Stored.Truncate(time.Microsecond).Equal(other.Stored.Truncate(time.Microsecond))
}
