package eventsearch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// MaxLooked is the largest number of rows of the log that a page reads.
	MaxLooked = 200_000

	// maxCopies is the largest number of rows that a page reads from each of the tables held and
	// archive.
	maxCopies = 25_000

	// lookedAtOnce is the number of rows that one statement reads. The first statement
	// reads firstLook.
	lookedAtOnce = 25_000
	firstLook    = 1000

	// maxCaused limits the use of the index of causation ids. If an event caused more than
	// maxCaused events, a page searches the log for these events without that index.
	maxCaused = 10_000

	// lookFor is the time after which a page sends no further statement.
	lookFor = 5 * time.Second

	// clockSlack is how far the database's clock may have been set back. So a page reads the log
	// from clockSlack before Since to clockSlack after Until.
	clockSlack = time.Minute
)

// Page is a page of events.
type Page struct {
	Events []Event

	Next    string    // where the next page begins; empty if this is the last page
	Looked  int       // how many rows of the log were read
	Reached time.Time // the time of the last row of the log that was read
	Stopped bool      // the page ended at a limit of rows or of time
}

// cursor is where a page begins: below this seq of the log, and below these ids of the tables held
// and archive. 0 means that the table has no more rows for the list.
type cursor struct {
	Log     int64 `json:"l,omitempty"`
	Held    int64 `json:"h,omitempty"`
	Archive int64 `json:"a,omitempty"`
}

func (c cursor) String() string {
	if c == (cursor{}) {
		return ""
	}
	document, _ := json.Marshal(c) // cannot fail: JSON can represent all values
	return base64.RawURLEncoding.EncodeToString(document)
}

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{math.MaxInt64, math.MaxInt64, math.MaxInt64}, nil
	}
	document, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(document, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the start of a page (After): %w", err)
	}
	return c, nil
}

// Page returns at most limit matching events, the newest first. The parameter after is Next of the
// previous page, or empty for the first page. The events are from the log, or from the tables held
// or archive if the log does not have them. Page merges them by time. It reads at most MaxLooked
// rows of the log, and 25,000 rows each of the tables held and archive. So a page may have fewer
// events than limit, or none, although there is a next page.
//
// Call Page in a transaction with one snapshot.
func (r Reader) Page(ctx context.Context, db Queryer, s Selection, after string, limit int) (*Page, error) {
	from, err := parseCursor(after)
	if err != nil {
		return nil, err
	}
	low := int64(math.MinInt64)
	if from.Log > 0 {
		if low, from.Log, err = r.seqRange(ctx, db, &s, from.Log); err != nil {
			return nil, err
		}
	}
	end := time.Now().Add(lookFor)
	l := &list{r: r, db: db, s: &s, sql: r.sql.PageLog, low: low, before: from.Log, left: MaxLooked, limit: limit, end: end}
	h := &list{r: r, db: db, s: &s, sql: r.sql.PageHeld, before: from.Held, left: maxCopies, limit: limit, end: end}
	a := &list{r: r, db: db, s: &s, sql: r.sql.PageArchive, before: from.Archive, left: maxCopies, limit: limit, end: end}
	if s.CausationID != "" {
		if err := l.caused(ctx); err != nil {
			return nil, err
		}
	}
	all := []*list{l, h, a}
	for _, one := range all {
		if err := one.look(ctx); err != nil {
			return nil, err
		}
	}
	page := &Page{Events: merge(all, limit), Looked: l.looked, Reached: l.reachedAt}
	page.Next = cursor{l.next(), h.next(), a.next()}.String()
	for _, one := range all {
		page.Stopped = page.Stopped || one.stopped
	}
	return page, nil
}

// seqRange returns the range of seqs that has the events from the selection's Since to its Until.
func (r Reader) seqRange(ctx context.Context, db Queryer, s *Selection, before int64) (low, high int64, err error) {
	low, high = math.MinInt64, before
	if !s.Since.IsZero() {
		if low, err = r.seqAt(ctx, db, s.Since.Add(-clockSlack)); err != nil {
			return 0, 0, err
		}
	}
	if !s.Until.IsZero() {
		until, err := r.seqAt(ctx, db, s.Until.Add(clockSlack))
		if err != nil {
			return 0, 0, err
		}
		high = min(high, until)
	}
	return low, high, nil
}

// seqAt returns a seq. The events from this seq on were written at the given time or later.
func (r Reader) seqAt(ctx context.Context, db Queryer, t time.Time) (seq int64, err error) {
	if err = db.QueryRow(ctx, r.sql.SeqAt, pgx.QueryExecModeExec, t).Scan(&seq); err != nil {
		return 0, fmt.Errorf("find a time in the log: %w", err)
	}
	return seq, nil
}

// list is the part of a page that comes from one table.
type list struct {
	r     Reader
	db    Queryer
	s     *Selection
	sql   string
	low   int64
	limit int
	left  int // how many rows it may still read
	end   time.Time

	before    int64 // its position: rows below it are not read yet; 0 if there are none
	looked    int
	reachedAt time.Time
	stopped   bool
	found     []Event
	from      int64 // the position at which the page began
	taken     int   // how many events of the field found are on the page
}

// caused uses the index of causation ids to find the events that one event caused. If there are
// more than maxCaused, it finds none, and the method look searches for them.
func (l *list) caused(ctx context.Context) error {
	if l.before <= 0 {
		return nil
	}
	scan := l.sql
	l.sql = l.r.sql.PageCaused
	edge, err := l.read(ctx, maxCaused+1, l.limit+1)
	l.sql = scan
	if err != nil || edge.looked > maxCaused {
		l.found = nil
		return err
	}
	l.from, l.looked = l.before, edge.looked
	l.before = 0
	if len(l.found) > l.limit {
		l.found = l.found[:l.limit]
		l.before = l.found[l.limit-1].at
	}
	l.left = 0
	return nil
}

// look reads rows until it has all events that the page may have, or reaches a limit.
func (l *list) look(ctx context.Context) error {
	if l.left == 0 { // the method caused has found all events
		return nil
	}
	l.from = l.before
	for atOnce := firstLook; l.before > 0 && len(l.found) < l.limit; atOnce = lookedAtOnce {
		if l.left <= 0 || l.looked > 0 && time.Now().After(l.end) {
			l.stopped = true
			return nil
		}
		atOnce = min(atOnce, l.left)
		edge, err := l.read(ctx, atOnce, l.limit-len(l.found))
		if err != nil {
			return err
		}
		l.left -= atOnce
		l.looked += edge.looked
		if !edge.at.IsZero() {
			l.reachedAt = edge.at
		}
		switch {
		case len(l.found) == l.limit:
			l.before = l.found[l.limit-1].at
		case edge.looked < atOnce:
			l.before = 0
		default:
			l.before = edge.reached
		}
	}
	return nil
}

// edge is the last row that a statement read.
type edge struct {
	looked  int
	reached int64
	at      time.Time
}

// read reads rows, and appends matching events to the field found.
func (l *list) read(ctx context.Context, looked, room int) (to edge, err error) {
	s := l.s
	rows, _ := l.db.Query(ctx, l.sql, pgx.QueryExecModeExec, l.before, l.low, given(s.Key), given(s.Type), given(s.Source), given(s.CorrelationID), given(s.CausationID),
		given(s.TraceID), given(s.Any), timeOrNil(s.Since), timeOrNil(s.Until), looked, room) // ForEachRow reports the error
	var e Event
	_, err = pgx.ForEachRow(rows, append([]any{&to.looked, &to.reached, at(&to.at)}, e.columns()...), func() error {
		if e.at != 0 {
			l.found = append(l.found, e)
		}
		return nil
	})
	if err != nil {
		return to, fmt.Errorf("look for events: %w", err)
	}
	return to, nil
}

// next returns where the next page begins in this table, or 0 if nothing is left.
func (l *list) next() int64 {
	switch {
	case l.taken == len(l.found):
		return l.before
	case l.taken == 0:
		return l.from
	}
	return l.found[l.taken-1].at
}

// merge takes up to limit events from the lists, the newest first.
func merge(lists []*list, limit int) []Event {
	events := []Event{}
	for len(events) < limit {
		var newest *list
		for _, l := range lists {
			if l.taken < len(l.found) && (newest == nil || l.found[l.taken].LoggedAt.After(newest.found[newest.taken].LoggedAt)) {
				newest = l
			}
		}
		if newest == nil {
			break
		}
		events = append(events, newest.found[newest.taken])
		newest.taken++
	}
	return events
}
