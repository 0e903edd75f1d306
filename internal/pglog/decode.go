package pglog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// rows are the result of a statement that reads the log: late events, the next page, and held
// events that are due, each list in the order of seq. The field scheduled lists the events of the
// log that go to the table held first, until their time has come and the log is read up to it.
type rows struct {
	snap, pid       string
	late, page, due []broker.Event
	scheduled       map[int64]struct{}
	busy            []int64            // held events that keepDue left out
	moreDue         bool               // there may be more due events
	dueFrom         string             // no event that was due before this time waits; empty if one may do so
	bytes           [partDue + 1]int64 // bytes of data and headers, by part, as the statement counts them
}

// full reports whether a part may lack rows, because it reached [eventlog.PageBytes].
func (r *rows) full(part int64) bool { return r.bytes[part] >= eventlog.PageBytes }

// keepDue keeps the due events for which still(seq) is true. If it removes an event, it also
// removes later events of the same key.
func (r *rows) keepDue(still func(seq int64) bool) {
	blocked := make(map[string]bool)
	r.due = slices.DeleteFunc(r.due, func(ev broker.Event) bool {
		//guard:events-behind-one-that-is-being-cancelled 2 false
		gone := !still(ev.Seq) || !ev.Unordered && blocked[ev.Key]
		if gone && !ev.Unordered {
			blocked[ev.Key] = true
		}
		if gone {
			r.busy = append(r.busy, ev.Seq)
		}
		return gone
	})
}

// The columns of pass.sql, pending.sql and republish_page.sql.
const (
	colPart = iota
	colSeq
	colNote
	colEventID
	colSource
	colType
	colSubject
	colKey
	colContentType
	colCorrelation
	colCausation
	colOccurred
	colTraceParent
	colTraceState
	colHeaders
	colData
	colLoggedAt
	colFlag
	colSize
)

// The parts of pass.sql.
const (
	partSnapshot = iota
	partLate
	partPage
	partDue
)

// decodeRows splits the rows of a result by part. If the buffer is large enough, the page uses its
// memory.
func decodeRows(result pgx.Rows, types *pgtype.Map, buffer []broker.Event) (*rows, error) {
	found := &rows{page: buffer[:0], scheduled: make(map[int64]struct{})}
	d := decoder{types: types}
	for result.Next() {
		if d.fields == nil { // only when there is a row: a result without rows may have no fields
			d.fields = result.FieldDescriptions()
		}
		d.values = result.RawValues()
		if err := found.add(&d); err != nil {
			return nil, fmt.Errorf("decode row: %w", err)
		}
	}
	sortBySeq(found.late)
	sortBySeq(found.page)
	sortBySeq(found.due)
	return found, result.Err()
}

// add adds a row.
func (r *rows) add(d *decoder) error {
	part, flag := d.integer(colPart), d.boolean(colFlag)
	if part == partSnapshot {
		r.snap, r.pid, r.dueFrom = d.text(colNote), d.text(colEventID), d.text(colSource)
		return d.err
	}
	list := &r.page
	switch part {
	case partLate:
		list = &r.late
	case partDue:
		list = &r.due
	}
	r.bytes[part] += d.integer(colSize)
	*list = append(*list, broker.Event{})
	ev := &(*list)[len(*list)-1]
	d.event(ev)
	switch {
	case part == partDue:
		var altered, last int
		ev.Held, ev.Unordered = true, flag
		note := d.text(colNote)
		//guard:a-held-event-does-not-begin-anew false
		if _, err := fmt.Sscan(note, &ev.Attempts, &ev.LastAttempt, &ev.Replays, &ev.RepublishID, &altered, &last); err != nil {
			return fmt.Errorf("note %q of a held event: %w", note, err)
		}
		ev.LastHeld = last != 0
		if altered != 0 {
			d.faults.add("Event", "had values that no event can have when it was held; they are in its raw headers")
		}
	case flag:
		ev.NotBefore = ev.LoggedAt // the later of created_at and not_before
		r.scheduled[ev.Seq] = struct{}{}
	}
	if len(d.faults) > 0 || ev.ID == "" || ev.Source == "" || ev.Subject == "" {
		body, _ := strconv.Atoi(d.text(colNote)) // 0 if the body is not too large
		d.faults.setFault(ev, d.unread+body)
	}
	return d.err
}

// decoder decodes rows in the form in which the server sends them. The driver's Scan costs several
// times as much, and this is the hot path of the relay. The decoder uses Scan only for values in
// text form and for headers.
type decoder struct {
	types  *pgtype.Map
	fields []pgconn.FieldDescription
	values [][]byte
	joined []byte         // memory for reuse
	last   postroom.Event // the event of the previous row, whose texts are often the same
	faults faults         // the faults of this row
	unread int            // about how many bytes the values of this row have that are too large to be read, without the body
	err    error          // the first error
}

// The variable own lists the text columns that differ from event to event.
var own = [...]int{colEventID, colKey, colCorrelation, colCausation, colTraceParent, colTraceState}

// textColumns are the text columns, each with its field of the event and its limit.
var textColumns = [...]struct {
	field string
	most  int
}{
	colEventID: {"ID", postroom.MaxID}, colSource: {"Source", postroom.MaxID}, colType: {"Type", postroom.MaxType},
	colSubject: {"Subject", postroom.MaxType}, colKey: {"Key", postroom.MaxKey}, colContentType: {"ContentType", postroom.MaxContentType},
	colCorrelation: {"CorrelationID", postroom.MaxID}, colCausation: {"CausationID", postroom.MaxID},
	colTraceParent: {"TraceParent", postroom.MaxID}, colTraceState: {"TraceState", postroom.MaxTraceState},
}

// event decodes the event of a row.
func (d *decoder) event(ev *broker.Event) {
	ev.Seq = d.integer(colSeq)
	e := &ev.Event
	d.faults, d.unread = d.faults[:0], 0
	e.Source, e.Type = d.textLike(colSource, d.last.Source), d.textLike(colType, d.last.Type)
	e.Subject, e.ContentType = d.textLike(colSubject, d.last.Subject), d.textLike(colContentType, d.last.ContentType)
	d.last.Source, d.last.Type, d.last.Subject, d.last.ContentType = e.Source, e.Type, e.Subject, e.ContentType
	ev.Unordered = !isKey(d.values[colKey]) // this must come before a long key is cut
	d.texts(own[:], &e.ID, &e.Key, &e.CorrelationID, &e.CausationID, &e.TraceParent, &e.TraceState)
	e.LoggedAt = d.time(colLoggedAt)
	if !isInstant(e.LoggedAt) {
		d.faults.add("LoggedAt", "is outside the years 1 to 9999")
	}
	e.Time = e.LoggedAt
	if d.values[colOccurred] != nil {
		e.Time = d.time(colOccurred)
	}
	if d.values[colHeaders] != nil {
		d.scan(colHeaders, &e.Headers)
	}
	if d.values[colData] == nil { // the column is never NULL, but the statement leaves out large data
		d.faults.add("Data", fmt.Sprintf("is more than the %d bytes that are allowed; store large bodies elsewhere and send a reference", postroom.MaxData))
		return
	}
	e.Data = d.bytes(colData)
}

// scan decodes a value with the driver's Scan.
func (d *decoder) scan(col int, target any) {
	f := d.fields[col]
	if err := d.types.Scan(f.DataTypeOID, f.Format, d.values[col], target); err != nil && d.err == nil {
		d.err = fmt.Errorf("%s: %w", f.Name, err)
	}
}

// binary reports whether a value came in binary form and has the given size.
func (d *decoder) binary(col, size int) bool {
	return d.fields[col].Format == pgx.BinaryFormatCode && len(d.values[col]) == size
}

// The next two methods call the function scanned only rarely, and only these calls allocate memory.

func (d *decoder) integer(col int) int64 {
	switch {
	case d.binary(col, 8):
		return int64(binary.BigEndian.Uint64(d.values[col])) //nolint:gosec // a signed number, as it was sent
	case d.binary(col, 4):
		return int64(int32(binary.BigEndian.Uint32(d.values[col]))) //nolint:gosec // likewise
	}
	return scanned[int64](d, col)
}

func (d *decoder) boolean(col int) bool {
	if d.binary(col, 1) {
		return d.values[col][0] != 0
	}
	return scanned[bool](d, col)
}

// epoch is the time that PostgreSQL sends as zero.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (d *decoder) time(col int) time.Time {
	if d.binary(col, 8) {
		micros := int64(binary.BigEndian.Uint64(d.values[col])) //nolint:gosec // a signed number, as it was sent
		return time.Unix(epoch.Unix()+micros/1e6, micros%1e6*1e3)
	}
	var t time.Time
	f := d.fields[col]
	if err := d.types.Scan(f.DataTypeOID, f.Format, d.values[col], &t); err != nil {
		return endOfTime // the value is infinity, or has a year of more than four digits
	}
	return t
}

// text returns a text, or "" for NULL. A text has the same bytes in both forms.
func (d *decoder) text(col int) string { return string(d.values[col]) }

// texts decodes several texts with one allocation.
func (d *decoder) texts(cols []int, into ...*string) {
	d.joined = d.joined[:0]
	for _, col := range cols {
		if len(d.values[col]) > maxRead {
			d.values[col] = d.cut(col)
		}
		d.joined = append(d.joined, d.values[col]...)
	}
	rest := string(d.joined)
	for i, col := range cols {
		n := len(d.values[col])
		*into[i], rest = rest[:n], rest[n:]
	}
}

// textLike returns a text. If the text equals last, textLike returns last and allocates nothing.
func (d *decoder) textLike(col int, last string) string {
	v := d.values[col]
	if len(v) > maxRead {
		v = d.cut(col)
	}
	if string(v) != last {
		return string(v)
	}
	return last
}

// cut notes that a text is too large for any event, and returns its beginning.
func (d *decoder) cut(col int) []byte {
	v := d.values[col]
	d.faults.large(textColumns[col].field, textColumns[col].most)
	d.unread += unreadText
	return []byte(beginning(v))
}

func (d *decoder) bytes(col int) []byte {
	if d.fields[col].Format == pgx.BinaryFormatCode {
		b := make([]byte, len(d.values[col]))
		copy(b, d.values[col])
		return b
	}
	return scanned[[]byte](d, col)
}

func scanned[T any](d *decoder, col int) (v T) {
	d.scan(col, &v)
	return v
}

func sortBySeq(events []broker.Event) {
	for i := 1; i < len(events); i++ { // by index, because an event is large
		if events[i].Seq < events[i-1].Seq { // rare: the server returns each part sorted if the plan is not parallel
			slices.SortFunc(events, func(a, b broker.Event) int { return cmp.Compare(a.Seq, b.Seq) })
			return
		}
	}
}
