package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/sameschema"
	"github.com/postroom/postroom/outbox"
)

// SourceHeader is the header in which [Forward] names the source of the webhook.
const SourceHeader = "webhook-source"

// Forward returns a transactional handler that writes each event to an outbox, for other services.
// The new event has the type, key, time, headers and data of the webhook, a new id, and the
// provider's id as its CausationID. If a webhook is repeated, Forward writes no second event: the
// inbox remembers webhooks for 30 days by default. An id derived from the provider's id would not
// suffice: some providers repeat a webhook after retention has removed the event from the log. A
// webhook whose body has more than postroom.MaxData bytes (960 KiB) cannot go through a broker, so it
// becomes dead: if that can happen, set [ReceiverConfig.MaxBody] to postroom.MaxData.
//
//	in.Handle(inbox.Subscription{Name: "webhooks.forward"}, webhook.Forward(out))
//
// The inbox refuses the handler if the outbox has another schema than the inbox.
func Forward(out *outbox.Outbox) postroom.Handler { return forward{out} }

type forward struct{ out *outbox.Outbox }

// Check returns the fault of the outbox's Config, and an error if the outbox has another schema than the
// inbox that calls it.
func (f forward) Check(ctx context.Context) error {
	if f.out == nil {
		return postroom.Unrecoverable(errors.New("webhook: Forward: there is no outbox"))
	}
	//guard:webhook-forward-tells-the-fault-of-its-outbox false
	if err := f.out.Queue(new(pgx.Batch)); err != nil { // without an event, it only looks for that
		return postroom.Unrecoverable(fmt.Errorf("webhook: Forward: %w", err))
	}
	//guard:webhook-forward-has-the-schema-of-its-inbox = sameschema.Check(context.Background(), "", "")
	return sameschema.Check(ctx, "the outbox of webhook.Forward", f.out.Schema())
}

// Handle writes the event.
func (f forward) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	//guard:webhook-forward-has-an-id-of-its-own do @; next.ID = ev.ID
	next := ev.Follow(ev.Type, nil)
	next.Time, next.ContentType, next.Data = ev.Time, ev.ContentType, ev.Data
	next.Headers = maps.Clone(ev.Headers)
	if next.Headers == nil {
		next.Headers = make(map[string]string, 1)
	}
	next.Headers[SourceHeader] = ev.Source
	//guard:webhook-forward-writes = nil
	return f.out.Write(ctx, tx, next)
}
