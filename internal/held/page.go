package held

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/text"
)

// Filter selects held events. An event must match every field that is set. The zero value
// selects all held events.
type Filter struct {
	IDs     []int64 `json:"ids,omitempty"`     // their ids in the table held
	Handler string  `json:"handler,omitempty"` // [Outgoing] for events on their way to the broker
	States  []State `json:"states,omitempty"`  // the event has one of these states
	Type    string  `json:"type,omitempty"`
	Key     string  `json:"key,omitempty"`   // the key that the producer gave the event
	Class   string  `json:"class,omitempty"` // the class of the last failure

	// DueSince and DueUntil select events that are due at DueSince or later, and before
	// DueUntil. An event that waits behind an earlier event of its key, or is dead, has no
	// due time and does not match.
	DueSince time.Time `json:"due_since,omitzero"`
	DueUntil time.Time `json:"due_until,omitzero"`
}

// IsZero reports whether the filter selects all events.
func (f Filter) IsZero() bool {
	return f.IDs == nil && f.Handler == "" && f.States == nil && f.Type == "" && f.Key == "" && f.Class == "" && f.DueSince.IsZero() && f.DueUntil.IsZero()
}

// Validate says what is wrong with the filter.
func (f Filter) Validate() error {
	var faults []error
	for name, value := range map[string]string{"Handler": f.Handler, "Type": f.Type, "Key": f.Key, "Class": f.Class} {
		if !text.Valid(value) {
			faults = append(faults, fmt.Errorf("filter: %s is no UTF-8", name))
		}
	}
	if !f.DueSince.IsZero() && !f.DueUntil.IsZero() && !f.DueSince.Before(f.DueUntil) {
		faults = append(faults, errors.New("filter: DueSince has to be before DueUntil"))
	}
	for _, state := range f.States {
		if !slices.Contains(heldStates, state) {
			faults = append(faults, fmt.Errorf("filter: no held event can be %q", state))
		}
	}
	return errors.Join(faults...)
}

// heldStates are the states of an event that is held.
var heldStates = []State{Scheduled, Due, Retrying, Running, Abandoned, Waiting, Dead}

// part is a part of the list of a handler. Each part is in the order of its own index.
type part int

const (
	partDue part = iota
	partWaiting
	partDead
	partCount

	partOfKey = partCount // not a part of a handler's list: the events of a key, by id
)

// partOf returns the part with the events in a state.
func partOf(s State) part {
	switch s {
	case Waiting:
		return partWaiting
	case Dead:
		return partDead
	}
	return partDue
}

// has reports whether events of a part can match the filter.
func (f *Filter) has(p part) bool {
	if p != partDue && (!f.DueSince.IsZero() || !f.DueUntil.IsZero()) {
		return false
	}
	return len(f.States) == 0 || slices.ContainsFunc(f.States, func(state State) bool { return partOf(state) == p })
}

// states returns the states that a statement for a part selects.
func (f *Filter) states(p part) []string {
	if p == partWaiting {
		return []string{string(Waiting)} // needed: the index also has the other events of the key
	}
	return f.words()
}

// words returns the states as parameter of a statement.
func (f *Filter) words() (words []string) {
	for _, state := range f.States {
		words = append(words, string(state))
	}
	return words
}

// place is a row of the list. The next page begins after that row.
type place struct {
	Handler string     `json:"h"`
	Part    part       `json:"p"`
	At      *time.Time `json:"t,omitempty"`
	Key     *string    `json:"k,omitempty"`
	Row     int64      `json:"r,omitempty"`
}

func (p place) String() string {
	document, _ := json.Marshal(p) // cannot fail: JSON can represent all values
	return base64.RawURLEncoding.EncodeToString(document)
}

func parsePlace(s string) (p place, err error) {
	if s == "" {
		return p, nil
	}
	document, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(document, &p)
	}
	if err == nil && (p.Part < 0 || p.Part > partOfKey) {
		err = errors.New("no list has such a place")
	}
	if err != nil {
		return p, fmt.Errorf("read the start of a page (After): %w", err)
	}
	return p, nil
}

const (
	// maxLooked is approximately the largest number of rows that a page reads.
	maxLooked = 50_000

	// lookedAtOnce is the number of rows that one statement reads.
	lookedAtOnce = 5000

	// A statement that reaches the end of a part counts as lookCost rows towards maxLooked.
	lookCost = 100

	// lookFor is the time after which a page sends no further statement.
	lookFor = 700 * time.Millisecond

	// If a key has at most fewOfKey held events, Page finds them with an index of the keys.
	// Otherwise Page reads the normal list.
	fewOfKey = 5000

	// ofKeyAtOnce is the number of events of a key that one statement reads.
	ofKeyAtOnce = 500
)

// Reader reads the tables of one schema.
type Reader struct{ sql statements }

// NewReader returns a reader of a schema. schema.Name must have accepted the name.
func NewReader(schemaName string) Reader { return Reader{load(schemaName)} }

// Page returns at most limit matching held events, and the place where the next page begins (next).
// On the last page, next is "". The parameter after is next of the previous page, or "" for the
// first page. Events are sorted by handler. For each handler, events with a due time come first,
// then events that wait behind an earlier event of their key, then dead events. The dead event that
// died last comes before the others. A page reads at most about 50,000 rows, and begins no statement
// after 700 ms, so it may have fewer rows than limit, or none, although there is a next page. If the filter has a Key and this key
// has at most 5,000 held events, Page reads only these events, and sorts them by id.
//
// Call Page in a transaction with one snapshot. If the filter has IDs, there is only one page,
// with all matching events: limit then has no effect.
func (r Reader) Page(ctx context.Context, db Queryer, s Filter, after string, limit int) (rows []Row, next string, err error) {
	if s.IDs != nil {
		found, err := Judge(ctx, db, r.sql.PageGiven, pgx.QueryExecModeExec, s.IDs, given(s.Handler), s.states(partDue), given(s.Type), given(s.Key), given(s.Class), given(s.DueSince), given(s.DueUntil))
		for n := range found {
			rows = append(rows, found[n].Row)
		}
		return rows, "", err
	}
	from, err := parsePlace(after)
	if err != nil {
		return nil, "", err
	}
	if from.Part == partOfKey && s.Key == "" {
		return nil, "", errors.New("read the start of a page (After): it is a place in the list of a key, but the filter has no key")
	}
	if from.Part == partOfKey || s.Key != "" && after == "" {
		rows, next, few, err := r.ofKey(ctx, db, s, from, limit)
		if few || err != nil {
			return rows, next, err
		}
	}
	handlers := []string{s.Handler}
	if s.Handler == "" {
		found, _ := db.Query(ctx, r.sql.Holders, from.Handler) // CollectRows reports the error
		if handlers, err = pgx.CollectRows(found, pgx.RowTo[string]); err != nil {
			return nil, "", fmt.Errorf("read which handlers hold events: %w", err)
		}
	}
	l := look{r: r, db: db, s: &s, limit: limit, left: maxLooked, end: time.Now().Add(lookFor)}
	for _, handler := range handlers {
		for p := range partCount {
			if !s.has(p) || handler == from.Handler && p < from.Part {
				continue
			}
			begin := place{Handler: handler, Part: p}
			if handler == from.Handler && p == from.Part {
				begin = from
			}
			if next, err = l.part(ctx, begin); err != nil || next != "" {
				return l.rows, next, err
			}
		}
	}
	return l.rows, "", nil
}

// ofKey returns a page of the events of a key, sorted by id. If the key has more than fewOfKey
// events at the first page, the result few is false. Then Page reads the normal list, because
// nearly each page of that list has matching events. If ofKey read the first page, it also reads
// the later pages, however many events the key has by then.
func (r Reader) ofKey(ctx context.Context, db Queryer, s Filter, from place, limit int) (rows []Row, next string, few bool, err error) {
	var most *int
	if from.Part != partOfKey {
		most = new(int)
		*most = fewOfKey + 1
	}
	found, _ := db.Query(ctx, r.sql.OfKey, pgx.QueryExecModeExec, s.Key, most) // CollectRows reports the error
	ids, err := pgx.CollectRows(found, pgx.RowTo[int64])
	if err != nil {
		return nil, "", false, fmt.Errorf("read the held events of a key: %w", err)
	}
	if most != nil && len(ids) == *most {
		return nil, "", false, nil
	}
	slices.Sort(ids)
	ids = slices.DeleteFunc(ids, func(id int64) bool { return id <= from.Row })
	for chunk := range slices.Chunk(ids, ofKeyAtOnce) {
		page := s
		page.IDs = chunk
		read, _, err := r.Page(ctx, db, page, "", limit)
		if err != nil {
			return nil, "", false, err
		}
		if rows = append(rows, read...); len(rows) > limit {
			rows = rows[:limit]
			return rows, place{Part: partOfKey, Row: rows[limit-1].ID}.String(), true, nil
		}
	}
	return rows, "", true, nil
}

// look collects one page.
type look struct {
	r     Reader
	db    Queryer
	s     *Filter
	limit int
	left  int       // the number of rows that it may still read
	end   time.Time // after this time it sends no further statement; if very many events have one due time, each statement sorts them all
	rows  []Row
}

// part adds rows of one part to the page. If the page ends in this part, the method returns the
// place where the page ends. Otherwise it returns "".
func (l *look) part(ctx context.Context, at place) (string, error) {
	sql := map[part]string{partDue: l.r.sql.PageDue, partWaiting: l.r.sql.PageWaiting, partDead: l.r.sql.PageDead}[at.Part]
	s := l.s
	for {
		room := l.limit - len(l.rows)
		if room == 0 || l.left <= 0 || l.left < maxLooked && time.Now().After(l.end) {
			return at.String(), nil
		}
		found, err := Judge(ctx, l.db, sql, pgx.QueryExecModeExec, at.Handler, s.states(at.Part), given(s.Type), given(s.Key), given(s.Class), given(s.DueSince),
			given(s.DueUntil), at.At, at.Row, at.Key, lookedAtOnce, room)
		if err != nil {
			return "", err
		}
		for n := range found {
			if found[n].Wanted {
				l.rows = append(l.rows, found[n].Row)
			}
		}
		if len(found) == 0 || len(found) < room && !found[len(found)-1].Last {
			l.left -= lookCost
			return "", nil
		}
		l.left -= lookedAtOnce
		at = found[len(found)-1].place(at)
	}
}

// place returns the place of a row in its part of the list.
func (r *Judged) place(in place) place {
	p := place{Handler: in.Handler, Part: in.Part, Row: r.ID}
	switch in.Part {
	case partDue:
		p.At = &r.NextAt
	case partWaiting:
		p.Key, p.Row = &r.BlockedKey, r.Position
	case partDead:
		p.At = &r.DeadAt
	}
	return p
}

// Judged is a row that a statement returned for a filter. Wanted says that the row matches. Last says
// that the row is the last one that the statement was allowed to read.
type Judged struct {
	Row

	Wanted, Last bool
}

// Judge runs a statement whose first two columns are Wanted and Last, and whose other columns are
// those of a row.
func Judge(ctx context.Context, db Queryer, sql string, args ...any) ([]Judged, error) {
	found, _ := db.Query(ctx, sql, args...) // CollectRows reports the error
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (j Judged, err error) {
		j.Row, err = Scan(verdictRow{row, &j})
		return j, err
	})
	if err != nil {
		return nil, fmt.Errorf("read held events: %w", err)
	}
	return rows, nil
}

// verdictRow scans a row whose first two columns are the fields Wanted and Last of a Judged.
type verdictRow struct {
	pgx.CollectableRow

	to *Judged
}

// Scan implements pgx.CollectableRow.
func (v verdictRow) Scan(dest ...any) error {
	return v.CollectableRow.Scan(append([]any{&v.to.Wanted, &v.to.Last}, dest...)...)
}

// OfEvent returns the rows in which the event with the given id and source is held, and the rows in
// which it was discarded. If the parameter source is empty, it returns rows of all sources. It
// returns at most 100 held and 100 discarded rows.
func (r Reader) OfEvent(ctx context.Context, db Queryer, source, id string) (held, discarded []Row, err error) {
	for _, part := range []struct {
		sql string
		to  *[]Row
	}{{r.sql.OfEvent, &held}, {r.sql.OfEventDiscarded, &discarded}} {
		found, _ := db.Query(ctx, part.sql, source, id) // CollectRows reports the error
		if *part.to, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (Row, error) { return Scan(row) }); err != nil {
			return nil, nil, fmt.Errorf("read where the event is held: %w", err)
		}
	}
	return held, discarded, nil
}
