//go:build linux || darwin

package main

import (
	"bytes"
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/outbox"
)

// These constants decide whether all work has stopped. The time alone proves nothing, because on a
// busy machine the processes may have got no processor time. So the signs of life of the processes
// count too.
const (
	lookEvery = time.Second

	// If nothing is queued and an effect is missing, the effect is lost. Before chaos concludes
	// that, the processes must have worked for this time, and a later event must have reached every
	// handler.
	lostAfter = 20 * time.Second

	// If work is queued and no process does any of it for this time, the work is stuck.
	stuckAfter = 2 * time.Minute

	// perSecond is how many signs of life ([checker.Signals]) each process must give in a second,
	// on average over lostAfter or stuckAfter. A process that always gets the processor gives four.
	perSecond = 2
)

// patience returns the longest wait. It grows with the amount of work.
func (o options) patience(work int) time.Duration {
	base := 3*time.Minute + time.Duration(o.seconds)*time.Second/2
	const slowest = 100 // if the machine is fast enough for a run, the handlers decide at least this many events in a second; an event counts once for each handler
	return time.Duration(o.more * float64(base+time.Duration(work)*time.Second/slowest))
}

// progress is the state of all work at one moment.
type progress struct {
	queued  []string // work that some process still has to do, with its amount
	missing []string // how many events each handler has not decided
	done    int      // rises with each piece of work that is done
	left    int      // the undecided pairs of an event and a handler, plus the queued work in the databases
}

func (p progress) over() bool { return len(p.queued)+len(p.missing) == 0 }

// pending returns all unfinished work.
func (p progress) pending() []string { return slices.Concat(p.queued, p.missing) }

// poller reads the progress.
type poller struct{ *stage }

// settle waits until look finds no work left, or until the outcome is known.
func (s poller) settle(ctx context.Context, since time.Time, look func(ctx context.Context) (progress, error)) (checker.Wait, error) {
	w, err := settle(ctx, &signs{stage: s.stage}, s.opt.patience, look)
	w.Took = time.Since(since).Round(time.Millisecond)
	return w, err
}

// settle waits until the outcome is known, but not longer than patience allows for the work left.
func settle(ctx context.Context, seen evidence, patience func(left int) time.Duration, look func(ctx context.Context) (progress, error)) (w checker.Wait, err error) {
	began, q, last := time.Now(), &quiet{seen: seen, least: math.MaxInt}, progress{}
	most := patience(0)
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		now, err := look(attempt)
		cancel()
		switch {
		case ctx.Err() != nil:
			return w, context.Cause(ctx)
		case err != nil: // a server does not answer, so nothing is known about this moment
			last.queued, last.missing = []string{err.Error()}, nil
		case now.over():
			return w, nil
		default:
			most, last = max(most, patience(now.left)), now
			verdict, err := q.judge(ctx, now)
			if err != nil {
				return w, err
			}
			switch verdict {
			case lost:
				return w, nil // the checker reports the missing effects
			case stuck:
				w.Stuck = now.pending()
				return w, nil
			}
		}
		if time.Since(began) > most {
			w.Pending = last.pending()
			return w, nil
		}
		childproc.Sleep(ctx, lookEvery)
	}
}

// verdict is the meaning of a time without progress.
type verdict int

const (
	unclear verdict = iota // unknown so far
	lost                   // no work is queued, and an effect is missing
	stuck                  // there is queued work, and no process does it
)

// quiet is a time without progress.
type quiet struct {
	seen    evidence
	since   time.Time // when the quiet time began; zero before the first call of judge
	most    int       // the largest amount of done work before that time
	least   int       // the smallest amount of unfinished work before that time
	control string    // an event that the rig wrote during that time
}

// evidence is what settle must know before it draws a conclusion from a time without progress.
type evidence interface {
	begin() error                                         // only evidence after this call counts
	atWork(signs int) (bool, error)                       // every process has given this many signs of life since begin
	write(ctx context.Context) (event string, err error)  // writes an event, as producers do
	arrived(ctx context.Context, event string) (yes bool) // the event took effect at every handler
}

// judge draws a conclusion from the progress.
func (q *quiet) judge(ctx context.Context, now progress) (verdict, error) {
	if q.since.IsZero() || now.done > q.most || now.left < q.least {
		q.most, q.least = max(now.done, q.most), min(now.left, q.least)
		q.since, q.control = time.Now(), ""
		return unclear, q.seen.begin()
	}
	need := stuckAfter
	if len(now.queued) == 0 {
		need = lostAfter
	}
	took := time.Since(q.since)
	if took >= need/2 && q.control == "" {
		// A later event must arrive before the missing effect counts as lost. If the method write
		// fails, the next call of judge tries again.
		q.control, _ = q.seen.write(ctx)
		return unclear, nil
	}
	if took < need {
		return unclear, nil
	}
	if at, err := q.seen.atWork(perSecond * int(need.Seconds())); err != nil || !at {
		return unclear, err
	}
	switch {
	case len(now.queued) > 0:
		return stuck, nil
	case q.seen.arrived(ctx, q.control):
		return lost, nil
	}
	return unclear, nil
}

// signs are the evidence of a run.
type signs struct {
	*stage

	sizes map[string]int64 // the sizes of the journals when the quiet time began
}

func (s *signs) begin() (err error) {
	s.sizes, err = s.journalSizes()
	return err
}

func (s *signs) arrived(ctx context.Context, event string) bool {
	n, err := s.db.books.Number(ctx, "SELECT count(*) FROM effect WHERE event = $1", event)
	return err == nil && n == len(workload.Handlers()) // a server that does not answer proves nothing
}

// controlKey is the key of the rig's own events. No producer uses it.
const controlKey = workload.Keys

// write writes one of the rig's own events.
func (s *signs) write(ctx context.Context) (string, error) {
	id := uuid.Must(uuid.NewV7()).String()
	r := checker.Record{What: checker.Transaction, Phase: checker.Invoked, ID: id, Shape: workload.Single}
	out := outbox.New(outbox.Config{Source: workload.Source})
	err := pgx.BeginFunc(ctx, s.db.shop.Pool, func(tx pgx.Tx) error {
		b := workload.Body{Key: controlKey, Secret: s.canary}
		if err := tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", b.Key).Scan(&b.N); err != nil {
			return err
		}
		r.Events = []checker.Event{b.Event(id)}
		s.journal.Note(r)
		if _, err := tx.Exec(ctx, "INSERT INTO change (event, key, n, poison) VALUES ($1, $2, $3, '')", id, b.Key, b.N); err != nil {
			return err
		}
		return out.Write(ctx, tx, workload.EventOf(id, b))
	})
	if err != nil {
		return "", fmt.Errorf("write one of the rig's own events: %w", err)
	}
	r.Phase = checker.OK
	s.journal.Note(r)
	return id, nil
}

// journalSizes returns the sizes of the journals of live processes.
func (s *signs) journalSizes() (map[string]int64, error) {
	sizes := make(map[string]int64)
	for _, m := range s.crew {
		child := m.Now()
		if child == nil || child.Ended() {
			continue
		}
		name := checker.JournalName(s.dir, m.job.Process, child.PID())
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, os.ErrNotExist): // the process has only just begun
			sizes[name] = 0
		case err != nil:
			return nil, fmt.Errorf("look at a journal: %w", err)
		default:
			sizes[name] = info.Size()
		}
	}
	return sizes, nil
}

// atWork reports whether every process has given at least this many signs of life since the quiet
// time began.
func (s *signs) atWork(n int) (bool, error) {
	for name, size := range s.sizes {
		text, err := os.ReadFile(name)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return false, nil
			}
			return false, fmt.Errorf("look at a journal: %w", err)
		}
		if bytes.Count(text[min(size, int64(len(text))):], []byte(`"what":"`+checker.Signals+`"`)) < n {
			return false, nil
		}
	}
	return len(s.sizes) > 0, nil
}

// leading reads whether a relay leads. If none leads, it returns that as queued work.
func (s poller) leading(ctx context.Context) (now progress, err error) {
	n, err := s.db.shop.Number(ctx, "SELECT count(*) FROM postroom.relay WHERE owner IS NOT NULL AND expires_at > now()")
	if err == nil && n == 0 {
		now.queued = []string{"no relay holds the lease"}
	}
	return now, err
}

//go:embed sql/unpublished.sql
var unpublishedSQL string

//go:embed sql/undecided.sql
var undecidedSQL string

//go:embed sql/decided.sql
var decidedSQL string

// drained reads all unfinished work. It counts the decided events before it reads the queues. So it
// finds an event that moves meanwhile at least once: as undecided, or in a queue.
func (s poller) drained(ctx context.Context) (now progress, err error) {
	events, err := s.db.shop.Number(ctx, `SELECT count(*) FROM change WHERE key <> $1
		AND event NOT IN (SELECT event_id FROM postroom.archive WHERE handler = 'outbox')`, controlKey)
	if err != nil {
		return now, err
	}
	decided, err := rig.Collect[struct {
		Handler string
		N       int
	}](ctx, s.db.books, decidedSQL, controlKey)
	if err != nil {
		return now, err
	}
	of := make(map[string]int)
	for _, d := range decided {
		of[d.Handler] = d.N
	}
	for _, h := range workload.Handlers() {
		now.done += of[h]
		if n := events - of[h]; n != 0 {
			now.left += n
			now.missing = append(now.missing, fmt.Sprintf("undecided at %s: %d", h, n))
		}
	}
	return now, errors.Join(s.addCounts(ctx, &now, s.db.shop, unpublishedSQL),
		s.addCounts(ctx, &now, s.db.books, undecidedSQL, workload.Leave), s.addDeliveries(ctx, &now))
}

// addCounts runs a statement that returns counts, and adds each count that is not zero, with the
// name of its column. All counts of a statement are of the same moment.
func (s poller) addCounts(ctx context.Context, now *progress, d *rig.Database, sql string, args ...any) error {
	rows, err := d.Pool.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	counts, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if n, ok := counts[what].(int64); !ok || n != 0 {
			now.queued = append(now.queued, fmt.Sprintf("%s: %v", what, counts[what]))
			now.left += int(n)
		}
	}
	return nil
}

// addDeliveries adds the messages that the broker must still deliver, and those that are delivered
// and not acknowledged. The ordered handler has no durable consumer. For this handler, the function
// adds the messages after the floor. Up to the floor, all messages are decided.
func (s poller) addDeliveries(ctx context.Context, now *progress) error {
	var instance string
	var floor uint64
	err := s.db.books.Pool.QueryRow(ctx, "SELECT i.id::text, s.floor FROM postroom.instance AS i, postroom.subscription AS s WHERE s.handler = $1", workload.Books).
		Scan(&instance, &floor)
	if err != nil {
		return fmt.Errorf("look at the subscriptions: %w", err)
	}
	str, err := s.client.JS.Stream(ctx, workload.Stream)
	if err != nil {
		return fmt.Errorf("look at the stream: %w", err)
	}
	last, err := str.GetLastMsgForSubject(ctx, workload.Subject)
	if err != nil {
		return fmt.Errorf("look at the end of the stream: %w", err)
	}
	if floor < last.Sequence {
		now.queued = append(now.queued, fmt.Sprintf("to be read by %s: the messages after %d, up to %d", workload.Books, floor, last.Sequence))
	}
	for _, h := range workload.Handlers() {
		if h == workload.Books {
			continue
		}
		c, err := str.Consumer(ctx, identity.Consumer(instance, h))
		if err != nil {
			return fmt.Errorf("look at the consumer of %s: %w", h, err)
		}
		info := c.CachedInfo()
		if n := info.NumPending + uint64(info.NumAckPending); n > 0 { //nolint:gosec // not negative
			now.queued = append(now.queued, fmt.Sprintf("to be delivered to %s: %d, and %d that are not acknowledged", h, info.NumPending, info.NumAckPending))
		}
	}
	return nil
}

// started waits until each handler has had an effect.
func (s poller) started(ctx context.Context) error {
	return rig.Again(ctx, s.opt.patience(0), "wait for every handler's first effects", func(ctx context.Context) error {
		with, err := rig.Collect[struct{ Handler string }](ctx, s.db.books, "SELECT DISTINCT handler FROM effect")
		if err != nil {
			return err
		}
		var without []string
		for _, h := range workload.Handlers() {
			if !slices.Contains(with, struct{ Handler string }{h}) {
				without = append(without, h)
			}
		}
		if len(without) > 0 {
			return fmt.Errorf("none yet at %s", strings.Join(without, ", "))
		}
		return nil
	})
}
