package webhook

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// Writer writes events in a transaction. An *outbox.Outbox is a Writer.
//
// It is an interface so that a handler can be tested without an outbox.
type Writer interface {
	Write(ctx context.Context, tx pgx.Tx, events ...postroom.Event) error
}

// SourceHeader is the header in which [Forward] names the source of the webhook.
const SourceHeader = "webhook-source"

// Forward returns a transactional handler that writes each event to an outbox, for other services.
// The new event has the type, key, time, headers and data of the webhook, a new id, and the
// provider's id as its CausationID. If a webhook is repeated, Forward writes no second event: the
// inbox remembers webhooks for 30 days by default. An id derived from the provider's id would not
// suffice: some providers repeat a webhook after retention has removed the event from the log. A
// webhook whose body has more than postroom.MaxData bytes (960 KiB) cannot go through a broker, so it
// becomes dead: if that can happen, set [Config.MaxBody] to postroom.MaxData.
//
//	in.Handle(inbox.Subscription{Name: "webhooks.forward"}, webhook.Forward(out))
func Forward(out Writer) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		//guard:webhook-forward-has-an-id-of-its-own do @; next.ID = ev.ID
		next := ev.Follow(ev.Type, nil)
		next.Time, next.ContentType, next.Data = ev.Time, ev.ContentType, ev.Data
		next.Headers = maps.Clone(ev.Headers)
		if next.Headers == nil {
			next.Headers = make(map[string]string, 1)
		}
		next.Headers[SourceHeader] = ev.Source
		//guard:webhook-forward-writes = nil
		return out.Write(ctx, tx, next)
	})
}
