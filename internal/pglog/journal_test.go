package pglog_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// journal has the events that terms published, in the order of publishing.
type journal struct {
	ids     []string
	seqs    map[int64]map[string]bool // the ids that were published under a seq
	times   map[string]int
	changes []change
}

func newJournal() *journal {
	return &journal{times: map[string]int{}, seqs: map[int64]map[string]bool{}}
}

func (j *journal) add(t *testing.T, events []broker.Event) (seqs []int64) {
	t.Helper()
	for _, ev := range events {
		var c change
		if err := json.Unmarshal(ev.Data, &c); err != nil {
			t.Error(err)
		}
		if c.N > 0 {
			j.changes = append(j.changes, c)
		}
		if j.seqs[ev.Seq] == nil {
			j.seqs[ev.Seq] = map[string]bool{}
		}
		j.seqs[ev.Seq][ev.ID] = true
		j.ids = append(j.ids, ev.ID)
		j.times[ev.ID]++
		seqs = append(seqs, ev.Seq)
	}
	return seqs
}

// drain publishes until a pass finds no event, and returns the ids.
func (j *journal) drain(t *testing.T, term *pglog.Term, limit int) []string {
	t.Helper()
	from := len(j.ids)
	for {
		_, _, page := read(t, term, limit)
		record(t, term, j.add(t, page.Events)...)
		if len(page.Events) == 0 && page.Missing == 0 {
			return j.ids[from:]
		}
	}
}

// lost reports rows of the log that were not published. doubled reports those that were
// published more than once.
func (j *journal) lost(t *testing.T, log []string) {
	t.Helper()
	for _, id := range log {
		if j.times[id] == 0 {
			t.Errorf("lost: %s is in the log and was not published", id)
		}
	}
}

func (j *journal) doubled(t *testing.T) {
	t.Helper()
	for id, n := range j.times {
		if n > 1 {
			t.Errorf("%s was published %d times", id, n)
		}
	}
}

// ghosts reports published events that are not in the log.
func (j *journal) ghosts(t *testing.T, log []string) {
	t.Helper()
	for id := range j.times {
		if _, ok := slices.BinarySearch(log, id); !ok {
			t.Errorf("ghost: %s was published and is not in the log", id)
		}
	}
}

// outOfOrder reports accounts whose changes were published out of order. Only the first publication
// of a change counts.
func (j *journal) outOfOrder(t *testing.T) {
	t.Helper()
	last, seen := map[int]int{}, map[change]bool{}
	for _, c := range j.changes {
		if seen[c] {
			continue
		}
		seen[c] = true
		if c.N != last[c.Account]+1 {
			t.Errorf("out of order: account %d, change %d after %d", c.Account, c.N, last[c.Account])
		}
		last[c.Account] = c.N
	}
}

// logged returns the ids that are in the log, sorted.
func logged(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), "SELECT event_id FROM postroom.outbox") // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// reused returns how many seqs named more than one event.
func (j *journal) reused() (n int) {
	for _, ids := range j.seqs {
		if len(ids) > 1 {
			n++
		}
	}
	return n
}
