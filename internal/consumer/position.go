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

// Position is a message of the stream: another one at its sequence has another id, or
// came at another time.
type Position struct {
	Seq    uint64
	ID     string
	Stored time.Time // zero if it was not noted
}

// MaxID is how much is kept of a message's id.
const MaxID = 960

// PositionOf returns what a message is recognised by.
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
// it. If it has another there, or none yet, the broker has lost data.
func (p Position) IsIn(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState) (bool, error) {
	switch {
	case p.Seq > state.LastSeq:
		return false, nil
	case p.Seq < state.FirstSeq || p.Stored.IsZero(): // it is gone, or none was noted
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

// isSame reports whether two messages are the same one, as far as the database can tell.
func (p Position) isSame(other Position) bool {
	return p.ID == other.ID && p.Stored.Truncate(time.Microsecond).Equal(other.Stored.Truncate(time.Microsecond))
}
