package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/wire"
)

// Position identifies a message of the stream. Another message can have the same sequence, for
// instance if the stream was created again, but then its id or its time differs.
type Position struct {
	Seq    uint64
	ID     string
	Stored time.Time // zero if the time was not recorded
}

// MaxID is the largest number of bytes that a Position keeps of a message's id.
const MaxID = 960

// PositionOf returns the Position that identifies a message.
func PositionOf(seq uint64, header map[string][]string, stored time.Time) Position {
	if _, odd := header["Status"]; odd { // when IsIn looks up a message with this header, the client library may take it for an error
		return Position{Seq: seq}
	}
	//guard:a-message-that-cannot-be-looked-up-is-its-sequence false
	if _, odd := header[wire.Unreadable]; odd { // GetMsg would return an error
		return Position{Seq: seq}
	}
	p := Position{Seq: seq, Stored: stored}
	if ids := header[wire.MsgID]; len(ids) > 0 {
		p.ID = guard.Clean(ids[0], MaxID)
	}
	return p
}

// IsIn reports whether a stream in the given state has the message, or had the message and dropped
// it. It returns false if the stream has another message at the sequence, or has not reached the
// sequence: then the broker has lost data.
func (p Position) IsIn(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState) (bool, error) {
	switch {
	case p.Seq > state.LastSeq:
		return false, nil
	case p.Seq < state.FirstSeq || p.Stored.IsZero(): // the stream dropped the message, or the position has only a sequence
		return true, nil
	}
	msg, err := GetMsg(ctx, stream, p.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // the message was deleted
		return true, nil
	case IsUnreadable(err): // it is another message: the position of such a message has only a sequence
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look up message %d: %w", p.Seq, err)
	}
	//guard:floor-check 1 true
	return p.isSame(PositionOf(p.Seq, msg.Header, msg.Time)), nil
}

// GetMsg is GetMsg of a stream. If the stream allows direct gets, the server adds headers with the place of the
// message. The client library takes the first value of each: if the message was in another stream before, that
// may be its place there.
func GetMsg(ctx context.Context, stream jetstream.Stream, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetMsg(ctx, seq, opts...)
	//guard:a-message-has-its-place-in-its-own-stream 1 true
	if err != nil || !stream.CachedInfo().Config.AllowDirect {
		return msg, err //nolint:wrapcheck // callers expect the errors of the library
	}
	seqs, times := msg.Header[jetstream.SequenceHeader], msg.Header[jetstream.TimeStampHeaer]
	if len(seqs) == 0 || len(times) == 0 {
		return msg, nil
	}
	if msg.Sequence, err = strconv.ParseUint(seqs[len(seqs)-1], 10, 64); err == nil {
		msg.Time, err = time.Parse(time.RFC3339Nano, times[len(times)-1])
	}
	if err != nil {
		return nil, fmt.Errorf("read the place of the message: %w", err)
	}
	return msg, nil
}

// IsUnreadable reports whether GetMsg returned an error because the client library cannot read the headers
// of the message, which another program wrote. The stream has the message.
func IsUnreadable(err error) bool {
	if err == nil || errors.Is(err, nats.ErrBadHeaderMsg) {
		return err != nil
	}
	// If the stream allows direct gets, the library has no error values for it.
	for _, text := range []string{"response should have headers", "invalid sequence header", "invalid timestamp header"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// isSame reports whether two positions identify the same message: their ids are equal, and their
// times are equal to the microsecond. The database does not store smaller fractions of a second.
func (p Position) isSame(other Position) bool {
	return p.ID == other.ID && p.Stored.Truncate(time.Microsecond).Equal(other.Stored.Truncate(time.Microsecond))
}
