package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/internal/filters"
	"github.com/postroom/postroom/schema"
)

// An Intake is a part of a service that accepts events for a handler, such as a receiver or a sender
// of webhooks. It is safe for concurrent use.
type Intake struct {
	in      *Inbox
	handler string
	check   func(ctx context.Context, i *Intake) error
	filter  *filters.Filter
}

// AddIntake registers a part that accepts events for a handler. From then on [Inbox.Check] and
// [Inbox.Run] also call the function check, with the new Intake, and return its error. The name is
// the name of the part in the findings of 'postroom status'. Package webhook calls AddIntake for
// each receiver and each sender. Run checks only the parts that were registered before.
func (in *Inbox) AddIntake(handler, name string, check func(ctx context.Context, i *Intake) error) *Intake {
	tables, err := schema.Name(in.cfg.Schema)
	if err != nil { // Check returns this fault
		tables = schema.DefaultName
	}
	i := &Intake{in: in, handler: handler, check: check, filter: filters.New(in.pool, tables, filters.Receiver, name, in.cfg.Logger)}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.intakes = append(in.intakes, i)
	return i
}

// Types returns the types that the handler takes, or nil if it takes all types.
func (i *Intake) Types() []string {
	if h, known := i.in.acceptor.Handlers[i.handler]; known {
		return h.Types()
	}
	return nil
}

// Tables returns the pool of the inbox, and the name of the schema that holds its tables, for a part
// that has its own tables there.
func (in *Inbox) Tables() (pool *pgxpool.Pool, name string) {
	return in.pool, cmp.Or(in.cfg.Schema, schema.DefaultName)
}

// Memory returns how many bytes the events of the handler that this process runs at the same time may
// have: its share of Config.PullBytes. Call Memory after all handlers are registered.
func (i *Intake) Memory() int {
	_, held := share.Bytes(i.in.needs(), i.in.cfg.PullBytes)
	return held
}

// Harmless says that no event of the handler can end the process that runs it. So no event of the
// handler ever runs alone, even if many processes die. Call Harmless before [Inbox.Run].
func (i *Intake) Harmless() {
	if c := i.in.byName(i.handler); c != nil {
		c.harmless = true
	}
}

// Note notes that an event of this type came, and whether it was taken. So 'postroom status' finds a
// part that takes nothing while events come.
func (i *Intake) Note(ctx context.Context, eventType string, taken bool) {
	verdict := filters.Excluded
	if taken {
		verdict = filters.Taken
	}
	i.filter.Note(ctx, eventType, verdict)
}

// checkIntakes returns the faults of the parts that accept events.
func (in *Inbox) checkIntakes(ctx context.Context) error {
	in.mu.Lock()
	all := slices.Clone(in.intakes)
	in.mu.Unlock()
	var faults []error
	for _, i := range all {
		if err := i.check(ctx, i); err != nil {
			faults = append(faults, fmt.Errorf("intake of handler %s: %w", i.handler, err))
		}
	}
	return errors.Join(faults...)
}
