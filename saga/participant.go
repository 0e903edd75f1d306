package saga

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/sameschema"
	"github.com/postroom/postroom/outbox"
)

// Participant returns a handler that handles commands of a saga and answers them. The function f
// does the work in the transaction, and returns the reply, made with cmd.Follow. The handler writes
// the reply in the same transaction. If the reply is [NoReply], the handler writes none: write one
// later, with [Answer]. A zero Event is a permanent failure, because the saga would wait for a reply
// that was forgotten. The handler decodes the data of the command into a T. If it cannot, the failure
// is permanent.
//
// Give the command and its Undo to one ordered handler (inbox.HoldKey), with a postroom.Mux of
// participants, so that no Undo overtakes its command. The inbox refuses a participant whose
// subscription has another Order, or whose outbox has another schema than the inbox. If a participant calls a vendor, make it an external handler
// instead, which writes the reply in Attempt.OnSuccess: see the package's example. The inbox does
// not know that such a handler is a participant: set the Order of its subscription too.
func Participant[T any](out *outbox.Outbox, f func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, data T) (postroom.Event, error)) postroom.Handler {
	return &participant{out: out, Handler: postroom.JSON(func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, data T) error {
		reply, err := f(ctx, tx, cmd, data)
		if err != nil || reply.Type == NoReply.Type {
			return err
		}
		//guard:a-participant-that-forgets-its-reply-is-told false
		if reply.Type == "" {
			return postroom.Permanent(fmt.Errorf("the participant returned no reply to %s: return cmd.Follow, or saga.NoReply if the reply comes later", cmd.Type))
		}
		if reply.CausationID != cmd.ID || reply.Key != cmd.Key {
			return postroom.Permanent(fmt.Errorf("the reply %s to %s must have it as its cause, and its key: make it with cmd.Follow", reply.Type, cmd.Type))
		}
		return out.Write(ctx, tx, reply)
	})}
}

// NoReply is what a participant returns if its reply comes later.
var NoReply = postroom.Event{Type: "no reply"} // no event can have this type, because of the space

// participant is the handler of Participant.
type participant struct {
	postroom.Handler

	out *outbox.Outbox
}

// Check returns the fault of the outbox's Config, and an error if the outbox has another schema than
// the inbox that calls it.
func (p *participant) Check(ctx context.Context) error {
	if err := faultOf(p.out); err != nil {
		return postroom.Unrecoverable(fmt.Errorf("participant of a saga: %w", err))
	}
	//guard:a-participant-has-the-schema-of-its-inbox = sameschema.Check(context.Background(), "", "")
	return sameschema.Check(ctx, "the outbox of a saga's participant", p.out.Schema())
}

// CheckSubscription returns an error if the Undo of a command could overtake the command. The inbox
// calls it.
func (*participant) CheckSubscription(_ []string, order string) error {
	//guard:no-undo-overtakes-its-command false
	if order != "HoldKey" {
		return fmt.Errorf("its subscription has Order %s, and a participant of a saga needs HoldKey: otherwise an Undo could overtake its command", order)
	}
	return nil
}

// Answer returns a reply to a command, for a participant that answers later. Store the command's ID
// and Key, and write the reply in the transaction of the result.
func Answer(commandID, key, eventType string, data any) postroom.Event {
	ev := postroom.NewEvent(eventType, data)
	ev.Key, ev.CausationID = key, commandID
	return ev
}

// StepKey returns the key of a command's step. The Undo of the step has the same key, and so has a
// command that an operator sent again. If a vendor needs an idempotency key, make it from StepKey
// and a word for the action. Do not use the key of inbox.Step, which is different if a command
// was sent again. StepKey is empty for an event that is not a command of a saga.
func StepKey(cmd postroom.Event) string { return cmd.Headers[stepHeader] }

// Death says why a participant could not handle a command.
type Death struct {
	Class string `json:"class"` // class of the failure, as in a dead letter
	Error string `json:"error"`
}

// ReportDeath writes an event that says that a command is dead, for a step that has [Died]. The
// keys of types are the types of commands, and each value is the type of the event to write. For
// any other command ReportDeath writes nothing. Do not list the type of an Undo, because an Undo
// cannot fail. Call ReportDeath in the OnDead of the participant's inbox:
//
//	OnDead: func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error {
//		types := map[string]string{"payment.charge": "payment.died"}
//		return saga.ReportDeath(ctx, tx, out, types, l.Event, saga.Death{Class: l.Class, Error: l.Error})
//	}
func ReportDeath(ctx context.Context, tx pgx.Tx, out *outbox.Outbox, types map[string]string, cmd postroom.Event, d Death) error {
	eventType := types[cmd.Type]
	if StepKey(cmd) == "" || eventType == "" {
		return nil
	}
	return out.Write(ctx, tx, cmd.Follow(eventType, d))
}
