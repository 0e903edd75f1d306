package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/change"
)

// ErrEndpointDisabled says that an endpoint is disabled: enable it first.
var ErrEndpointDisabled = errors.New("the endpoint is disabled")

// resendAtOnce is how many events of the log one transaction accepts at most. Together these events
// have at most bytesAtOnce bytes.
const resendAtOnce = 500

// Resend sends to an endpoint the events of the log that FanOut did not accept for the endpoint,
// because the endpoint did not exist yet, or was disabled. Resend takes only events that were
// written at the given time or later, and that the log of this database still has. The log also has
// events that customers must not get. So SenderConfig.Types is required, and Resend sends only
// these types, even if the endpoint gets all types. Resend does not send an accepted event again:
// if that event is dead, replay it. Resend returns how many events it made due. Each of its
// transactions writes a row to the audit.
//
// The inbox recognises an accepted event only for the DedupeWindow of the handler that delivers. If
// the given time is earlier than that, Resend sends nothing and returns an error with the earliest
// time that you can give. To be sure, Resend uses only 29 thirtieths of the DedupeWindow.
//
// A process that resends needs the rights of an inbox and of an operator.
func (s *Sender) Resend(ctx context.Context, endpoint string, since time.Time, by postroom.Audit) (int64, error) {
	err := s.mustBeEnabled(ctx, endpoint, by)
	if err == nil && len(s.cfg.Types) == 0 {
		err = errors.New("SenderConfig.Types is empty: give the types that customers may get, because the log also has internal events")
	}
	if err == nil {
		err = s.mustRecognise(ctx, since)
	}
	if err != nil {
		return 0, fmt.Errorf("webhook: resend: %w", err)
	}
	var total, after int64
	for {
		events, last, err := s.owed(ctx, endpoint, after, since)
		if err == nil && len(events) > 0 {
			var stored int64
			stored, err = s.give(ctx, "webhook resend", endpoint, by, events)
			total += stored
		}
		if err != nil {
			return total, fmt.Errorf("webhook: resend: %w", err)
		}
		if last == 0 {
			return total, nil
		}
		after = last
	}
}

// Test makes an event of type webhook.test due for an endpoint, even if the endpoint gets only other
// types, and returns the event's id. The inbox delivers this event like any other event.
func (s *Sender) Test(ctx context.Context, endpoint string, by postroom.Audit) (id string, err error) {
	made, err := uuid.NewV7()
	if err == nil {
		err = s.mustBeEnabled(ctx, endpoint, by)
	}
	if err == nil {
		ev := postroom.Event{ID: made.String(), Source: "/webhooks/test", Type: "webhook.test", Time: time.Now(), Data: []byte(`{"test":true}`)}
		_, err = s.give(ctx, "webhook test", endpoint, by, []postroom.Event{ev})
	}
	if err != nil {
		return "", fmt.Errorf("webhook: test: %w", err)
	}
	return made.String(), nil
}

func (s *Sender) mustBeEnabled(ctx context.Context, endpoint string, by postroom.Audit) error {
	if err := errors.Join(s.err, s.endpoints.valid(by)); err != nil {
		return err
	}
	var enabled bool
	err := s.endpoints.db.QueryRow(ctx, s.endpoints.sql.Enabled, endpoint).Scan(&enabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrUnknownEndpoint
	case err != nil:
		return s.endpoints.explain(err)
	case !enabled:
		return ErrEndpointDisabled
	}
	return nil
}

// mustRecognise returns an error if the inbox may have removed its rows of events that were written
// at the given time or later: Resend would send these events again.
func (s *Sender) mustRecognise(ctx context.Context, since time.Time) error {
	var from *time.Time
	if err := s.endpoints.db.QueryRow(ctx, s.endpoints.sql.Recognised, s.cfg.Name).Scan(&from); err != nil {
		return s.endpoints.explain(err)
	}
	//guard:webhook-resend-takes-no-forgotten-event 2 = @1
	if from == nil || !since.Before(*from) {
		return nil
	}
	return fmt.Errorf("the inbox may no longer recognise events from before %s (%s ago), so the endpoint could get them twice: resend events from a later time",
		from.UTC().Truncate(time.Second).Add(time.Second).Format(time.RFC3339), time.Since(*from).Truncate(time.Minute))
}

// owed returns the next events of the log for an endpoint, and the seq of the last row. The seq is zero
// if there are no more rows. It leaves out rows that are no valid events: the relay did not publish
// these either, and the inbox would refuse all events together with one of them.
func (s *Sender) owed(ctx context.Context, endpoint string, after int64, since time.Time) (events []postroom.Event, last int64, err error) {
	rows, _ := s.endpoints.db.Query(ctx, s.endpoints.sql.Owed, after, endpoint, since, s.cfg.AccountHeader, resendAtOnce, s.cfg.Types, bytesAtOnce) // CollectRows reports the error
	events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ev postroom.Event, err error) {
		err = row.Scan(&last, &ev.Source, &ev.ID, &ev.Type, &ev.Subject, &ev.ContentType, &ev.CorrelationID, &ev.CausationID,
			&ev.Time, &ev.TraceParent, &ev.TraceState, &ev.Headers, &ev.Data)
		return ev, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the log: %w", s.endpoints.explain(err))
	}
	invalid := func(ev postroom.Event) bool { return ev.ValidateAccepted() != nil }
	//guard:resend-leaves-out-invalid-events do invalid = func(postroom.Event) bool { return false }; @
	return slices.DeleteFunc(events, invalid), last, nil
}

// give accepts events for an endpoint, and returns how many were not accepted before.
func (s *Sender) give(ctx context.Context, action, endpoint string, by postroom.Audit, events []postroom.Event) (stored int64, err error) {
	all := make([]inbox.Acceptance, len(events))
	for i, ev := range events {
		all[i] = s.acceptance(ev, endpoint)
	}
	err = s.endpoints.tables.InTx(ctx, func(tx pgx.Tx) error {
		stored = 0
		results, err := s.in.AcceptTx(ctx, tx, all...)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r == inbox.Stored {
				stored++
			}
		}
		_, err = s.endpoints.tables.Audit(ctx, tx, change.Action{
			Name: action, By: by, Events: stored, Handler: s.cfg.Name, Details: map[string]string{"endpoint": endpoint},
		})
		return err
	})
	if err != nil {
		return 0, s.endpoints.explain(err)
	}
	return stored, nil
}
