package pglog

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
)

// rows are what a statement over the log found: late ones, the next page and
// those that are held and due, each sorted as they come, and which of the log's
// are scheduled for later.
type rows struct {
	snap, pid       string
	late, page, due []eventlog.Logged
	scheduled       []int64
	bytes           [partDue + 1]int // of data, by part
}

// full reports whether a part may have ended at [eventlog.PageBytes]: there may be more of it.
func (r *rows) full(part int64) bool { return r.bytes[part] >= eventlog.PageBytes }

// The columns of pass.sql, pending.sql and rewound.sql.
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
)

// The parts of pass.sql.
const (
	partSnapshot = iota
	partLate
	partPage
	partDue
)

// decodeRows splits the rows of a result by part. The page lies in the memory of into, as
// far as that goes.
func decodeRows(result pgx.Rows, types *pgtype.Map, into []eventlog.Logged) (*rows, error) {
	found := &rows{page: into[:0]}
	d := decoder{types: types}
	for result.Next() {
		if d.fields == nil { // a result without rows may have none to ask
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

// add takes a row in.
func (r *rows) add(d *decoder) error {
	part, flag := d.integer(colPart), d.boolean(colFlag)
	if part == partSnapshot {
		r.snap, r.pid = d.text(colNote), d.text(colEventID)
		return d.err
	}
	list := &r.page
	switch part {
	case partLate:
		list = &r.late
	case partDue:
		list = &r.due
	}
	r.bytes[part] += len(d.values[colData])
	*list = append(*list, eventlog.Logged{})
	ev := &(*list)[len(*list)-1]
	d.logged(ev)
	switch {
	case part == partDue:
		var altered int
		ev.Held, ev.Unordered = true, flag
		_, _ = fmt.Sscan(d.text(colNote), &ev.Attempts, &ev.LastAttempt, &ev.Replays, &ev.Rewind, &altered) // as the server prints them
		if altered != 0 {
			d.faults.add("Event", "had values that no event can have when it was held; they are in its raw headers")
		}
	case flag:
		ev.NotBefore = ev.LoggedAt // the later of the two
		r.scheduled = append(r.scheduled, ev.Seq)
	}
	if len(d.faults) > 0 || ev.ID == "" || ev.Source == "" || ev.Subject == "" {
		d.faults.judge(ev)
	}
	return d.err
}

// decoder reads rows as the server sends them. Scanning into variables costs
// several times as much, and this is the hot path of the relay. What a
// connection is asked to send as text takes the driver's way.
type decoder struct {
	types  *pgtype.Map
	fields []pgconn.FieldDescription
	values [][]byte
	joined []byte         // for reuse
	last   postroom.Event // of the row before: some texts are mostly the same
	faults faults         // of this row
	err    error          // the first that a row had
}

// own are the texts that no two events have in common.
var own = [...]int{colEventID, colKey, colCorrelation, colCausation, colTraceParent, colTraceState}

// textColumns are the columns that hold a text: the field of the event, and its limit.
var textColumns = [...]struct {
	field string
	most  int
}{
	colEventID: {"ID", postroom.MaxID}, colSource: {"Source", postroom.MaxID}, colType: {"Type", postroom.MaxType},
	colSubject: {"Subject", postroom.MaxType}, colKey: {"Key", postroom.MaxKey}, colContentType: {"ContentType", postroom.MaxContentType},
	colCorrelation: {"CorrelationID", postroom.MaxID}, colCausation: {"CausationID", postroom.MaxID},
	colTraceParent: {"TraceParent", postroom.MaxID}, colTraceState: {"TraceState", postroom.MaxTraceState},
}

// logged reads the event of a row.
func (d *decoder) logged(ev *eventlog.Logged) {
	ev.Seq = d.integer(colSeq)
	e := &ev.Event
	d.faults = d.faults[:0]
	e.Source, e.Type = d.textLike(colSource, d.last.Source), d.textLike(colType, d.last.Type)
	e.Subject, e.ContentType = d.textLike(colSubject, d.last.Subject), d.textLike(colContentType, d.last.ContentType)
	d.last.Source, d.last.Type, d.last.Subject, d.last.ContentType = e.Source, e.Type, e.Subject, e.ContentType
	ev.Unordered = !isKey(d.values[colKey]) // before too long a one is cut
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
		e.Headers = d.headers()
	}
	if d.values[colData] == nil { // it is never NULL in the table
		d.faults.add("Data", fmt.Sprintf("is more than the %d bytes that are allowed; store large bodies elsewhere and send a reference", postroom.MaxData))
		return
	}
	e.Data = d.bytes(colData)
}

// scan reads a value the driver's way.
func (d *decoder) scan(col int, target any) {
	f := d.fields[col]
	if err := d.types.Scan(f.DataTypeOID, f.Format, d.values[col], target); err != nil && d.err == nil {
		d.err = fmt.Errorf("%s: %w", f.Name, err)
	}
}

// binary reports whether a value of the given size came in binary form.
func (d *decoder) binary(col, size int) bool {
	return d.fields[col].Format == pgx.BinaryFormatCode && len(d.values[col]) == size
}

// In the next four the driver's way is a function of its own: what it scans into is on the heap.

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

// epoch is the zero of the server's clock.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (d *decoder) time(col int) time.Time {
	if d.binary(col, 8) {
		micros := int64(binary.BigEndian.Uint64(d.values[col])) //nolint:gosec // a signed number, as it was sent
		return time.Unix(epoch.Unix()+micros/1e6, micros%1e6*1e3)
	}
	var t time.Time
	f := d.fields[col]
	if err := d.types.Scan(f.DataTypeOID, f.Format, d.values[col], &t); err != nil {
		return endOfTime // infinity, or a year of more than four digits
	}
	return t
}

// text returns a text, empty for NULL. Both forms of it are its bytes.
func (d *decoder) text(col int) string { return string(d.values[col]) }

// texts reads several texts into one piece of memory.
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

// textLike returns a text, and last where it is the same.
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

// cut notes that a text is too large for any event, and returns the beginning of it.
func (d *decoder) cut(col int) []byte {
	v := d.values[col]
	d.faults.large(textColumns[col].field, len(v), textColumns[col].most)
	return []byte(beginning(v))
}

// headers returns the event's headers.
func (d *decoder) headers() map[string]string {
	var object []byte
	d.scan(colHeaders, &object)
	headers, err := headersOf(object)
	if err != nil {
		d.faults.add("Headers", "are no object of names and values, or too large to be read")
	}
	return headers
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

// errHeaders says that headers are JSON, but no object.
var errHeaders = errors.New("no object")

// headersOf reads a jsonb object. Values that are no strings, which only a
// writer in SQL can produce, travel as their JSON.
func headersOf(object []byte) (map[string]string, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return nil, err
	}
	if values == nil { // null
		return nil, errHeaders
	}
	headers := make(map[string]string, len(values))
	for name, value := range values {
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			s = string(value)
		}
		headers[name] = s
	}
	return headers, nil
}

func sortBySeq(events []eventlog.Logged) {
	for i := 1; i < len(events); i++ { // by index: an event is large
		if events[i].Seq < events[i-1].Seq { // each part comes sorted, unless the plan appends in parallel
			slices.SortFunc(events, func(a, b eventlog.Logged) int { return cmp.Compare(a.Seq, b.Seq) })
			return
		}
	}
}
