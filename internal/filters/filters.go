// Package filters finds filters that let no event pass. A filter chooses the events that a receiver
// of webhooks stores, or that a sender of webhooks sends. If a filter is wrong, nothing fails: its
// program only passes over all events. So the program notes here what came, and status tells if a
// filter took nothing for a day while other events came.
package filters

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package. Each has a file in the directory sql.
type statements struct{ Note, Silent, Endpoints string }

var written = sqlfile.MustRead[statements](files)

// The kinds of filters.
const (
	Receiver = "receiver" // of webhooks; its name is the source of the events
	Sender   = "sender"   // of webhooks; its name is the handler that delivers
)

// Verdict says what a filter did with an event.
type Verdict int

// The verdicts of a filter.
const (
	Excluded Verdict = iota // the filter passed the event over because of its type
	Unwanted                // the filter lets the type pass, but no endpoint gets the event
	Taken
)

// often is how often a process notes the same fact. patience limits the time of one statement.
const (
	often    = time.Hour
	patience = time.Second
	maxFacts = 1000
)

// Filter notes what came to one filter. It is safe for concurrent use.
type Filter struct {
	pool       *pgxpool.Pool
	sql        string
	kind, name string
	log        *slog.Logger

	mu    sync.Mutex
	noted map[fact]time.Time
}

type fact struct {
	eventType string
	verdict   Verdict
}

// New returns a filter. The parameter schemaName is a name that schema.Name accepted. If pool is
// nil, the filter notes nothing.
func New(pool *pgxpool.Pool, schemaName, kind, name string, log *slog.Logger) *Filter {
	return &Filter{pool: pool, sql: schema.In(schemaName, written.Note), kind: kind, name: name, log: log, noted: make(map[fact]time.Time)}
}

// Note notes that an event came. It writes each fact once an hour, and waits for the database for a
// second at most. An error is only logged, because the event does not depend on it.
func (f *Filter) Note(ctx context.Context, eventType string, v Verdict) {
	if f.pool == nil || len(eventType) == 0 || len(eventType) > 255 || !text.Valid(eventType) || !f.isDue(fact{eventType, v}, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := f.pool.Exec(ctx, f.sql, f.kind, f.name, eventType, v == Taken, v != Excluded); err != nil {
		f.log.DebugContext(ctx, "not noted what came to a filter", "kind", f.kind, "filter", f.name, "error", err)
	}
}

// isDue reports whether a fact must be noted now, and remembers it.
func (f *Filter) isDue(what fact, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, known := f.noted[what]; known && now.Sub(at) < often {
		return false
	}
	if len(f.noted) >= maxFacts {
		clear(f.noted)
	}
	f.noted[what] = now
	return true
}

// Finding is a filter that took nothing for a day while other events came.
type Finding struct{ Text, Remedy string }

// Findings returns the filters that took nothing for a day while other events came, and the
// endpoints of webhooks whose types never came. The parameter name is the schema's name, which
// schema.Name accepted.
func Findings(ctx context.Context, tx pgx.Tx, name string) (all []Finding, err error) {
	rows, _ := tx.Query(ctx, schema.In(name, written.Silent)) // ForEachRow reports the error
	var kind, filter, passed string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&kind, &filter, &passed, &seconds}, func() error {
		since := time.Duration(seconds * float64(time.Second)).Round(time.Minute)
		switch kind {
		case Receiver:
			all = append(all, Finding{
				fmt.Sprintf("the receiver of webhooks %s has taken no event for %s, though others came, such as one of type %s", filter, since, passed),
				"compare Types of the receiver's Config, and the types of its handler, with the types that come: each begins with the name of the scheme",
			})
		default:
			all = append(all, Finding{
				fmt.Sprintf("the sender of webhooks %s has found no endpoint for an event for %s, though events came, such as one of type %s", filter, since, passed),
				"compare Types and AccountHeader of its SenderConfig with the events, and the accounts and types of the endpoints: 'postroom webhook endpoints'",
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read filters: %w", err)
	}
	one, err := endpoints(ctx, tx, name)
	if err != nil {
		return nil, fmt.Errorf("read the types of webhook endpoints: %w", err)
	}
	return append(all, one...), nil
}

func endpoints(ctx context.Context, tx pgx.Tx, name string) ([]Finding, error) {
	var n int64
	var first string
	var asked, came []string
	if err := tx.QueryRow(ctx, schema.In(name, written.Endpoints)).Scan(&n, &first, &asked, &came); err != nil || n == 0 {
		return nil, err
	}
	return []Finding{{
		fmt.Sprintf("webhook endpoints that get none of the types that come: %d, for instance %s, which gets %v; these come: %v", n, first, some(asked), some(came)),
		"ask their customers, and add them again with the right types: 'postroom webhook endpoints' lists them",
	}}, nil
}

// some returns the first few types.
func some(types []string) []string { return types[:min(len(types), 5)] }
