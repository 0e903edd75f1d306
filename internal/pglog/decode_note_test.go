package pglog

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom/relay/broker"
)

// heldRow returns a decoder of a row of a held event, in text form, that says note.
func heldRow(note string) *decoder {
	of := map[int]struct {
		oid  uint32
		text string
	}{
		colPart: {pgtype.Int8OID, "3"}, colSeq: {pgtype.Int8OID, "7"}, colNote: {pgtype.TextOID, note}, colEventID: {pgtype.TextOID, "e1"},
		colSource: {pgtype.TextOID, "/shop"}, colType: {pgtype.TextOID, "order.placed"}, colSubject: {pgtype.TextOID, "order.placed"},
		colHeaders: {pgtype.JSONBOID, "{}"}, colData: {pgtype.ByteaOID, `\x7b7d`},
		colLoggedAt: {pgtype.TimestamptzOID, "2026-02-03 04:05:06+00"}, colFlag: {pgtype.BoolOID, "f"},
		colSize: {pgtype.Int8OID, "2"},
	}
	d := &decoder{types: pgtype.NewMap(), fields: make([]pgconn.FieldDescription, colSize+1), values: make([][]byte, colSize+1)}
	for col := range d.fields {
		d.fields[col].DataTypeOID = pgtype.TextOID
		if v, ok := of[col]; ok {
			d.fields[col].DataTypeOID, d.values[col] = v.oid, []byte(v.text)
		}
	}
	return d
}

// The history of a held event comes with it. If it cannot be read, that is an error: with an
// empty history the event would begin with its first attempt again.
func TestNoteOfAHeldEvent(t *testing.T) {
	t.Parallel()
	var found rows
	if err := found.add(heldRow("3 9 2 5 0 1")); err != nil {
		t.Fatal(err)
	}
	want := broker.Event{Attempts: 3, LastAttempt: 9, Replays: 2, RepublishID: 5, LastHeld: true}
	got := found.due[0]
	if got.LastHeld != want.LastHeld || got.Attempts != want.Attempts || got.LastAttempt != want.LastAttempt || got.Replays != want.Replays || got.RepublishID != want.RepublishID {
		t.Errorf("read %+v, want %+v", got, want)
	}
	if at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC); !got.LoggedAt.Equal(at) {
		t.Errorf("logged at %s, want %s", got.LoggedAt, at)
	}
	for _, note := range []string{"", "3 9 2", "3 9 2 5 0", "3 9 two 5 0 1", "3 9 2 5 t 1"} {
		var found rows
		if err := found.add(heldRow(note)); err == nil || !strings.Contains(err.Error(), "note") {
			t.Errorf("a held event with the note %q: %+v, %v; want an error that says so", note, found.due, err)
		}
	}
}
