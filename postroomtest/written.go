package postroomtest

import (
	"bytes"
	"context"
	_ "embed" // the statements
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

//go:embed sql/written.sql
var writtenSQL string

// Querier is a transaction, a connection or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Want describes an event. [RequireWritten] does not compare a field that is empty.
type Want struct {
	Type    string
	Key     string
	Subject string

	// JSON is the data. White space and the order of an object's members do not matter. Numbers
	// must be written alike: 1.0 is not equal to 1.
	JSON string

	// Headers are headers that the event must have. The event may have more.
	Headers map[string]string
}

// RequireWritten checks that exactly the wanted events were written, in this order, and returns
// them. If other events were written, it ends the test. Without a Want, it ends the test if any
// event was written.
//
// If db is a transaction, RequireWritten reads the events that this transaction and its savepoints
// wrote. Otherwise it reads all events of the database: pass a pool to test code that commits by
// itself. RequireWritten uses the tables in the schema "postroom".
func RequireWritten(t testing.TB, db Querier, wants ...Want) []postroom.Event {
	t.Helper()
	events, err := written(t.Context(), db)
	if err != nil {
		t.Fatalf("postroomtest: read the events that were written: %v", err)
	}
	if faults := compare(events, wants); faults != nil {
		t.Fatalf("postroomtest: %v\nwritten:%s", faults, list(events))
	}
	return events
}

// written returns the events that db wrote if db is a transaction, and otherwise all events of the
// database.
func written(ctx context.Context, db Querier) ([]postroom.Event, error) {
	_, own := db.(pgx.Tx)
	rows, _ := db.Query(ctx, writtenSQL, own) // CollectRows reports the error
	return pgx.CollectRows(rows, scanEvent)
}

func scanEvent(row pgx.CollectableRow) (postroom.Event, error) {
	var ev postroom.Event
	var at, notBefore *time.Time
	var headers map[string]string
	err := row.Scan(&ev.ID, &ev.Source, &ev.Type, &ev.Subject, &ev.Key, &ev.ContentType, &ev.CorrelationID, &ev.CausationID,
		&ev.TraceParent, &ev.TraceState, &at, &notBefore, &headers, &ev.Data, &ev.LoggedAt)
	if at != nil {
		ev.Time = *at
	}
	if notBefore != nil {
		ev.NotBefore = *notBefore
	}
	ev.Headers = headers
	return ev, err
}

// compare returns an error for each difference between events and wanted events.
func compare(events []postroom.Event, wants []Want) error {
	if len(events) != len(wants) {
		return fmt.Errorf("%d events were written, want %d", len(events), len(wants))
	}
	var faults []error
	for i, want := range wants {
		if err := want.compare(events[i]); err != nil {
			faults = append(faults, fmt.Errorf("event %d: %w", i+1, err))
		}
	}
	return errors.Join(faults...)
}

func (w Want) compare(ev postroom.Event) error {
	var faults []error
	differ := func(field, got, want string) {
		if want != "" && got != want {
			faults = append(faults, fmt.Errorf("%s is %q, want %q", field, got, want))
		}
	}
	differ("Type", ev.Type, w.Type)
	differ("Key", ev.Key, w.Key)
	differ("Subject", ev.Subject, w.Subject)
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		differ("header "+name, ev.Headers[name], w.Headers[name])
	}
	if w.JSON != "" {
		same, err := sameJSON(ev.Data, []byte(w.JSON))
		if err == nil && !same {
			err = fmt.Errorf("the data is %s, want %s", ev.Data, w.JSON)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// sameJSON reports whether two documents have the same values.
func sameJSON(got, want []byte) (bool, error) {
	a, err := decode(got)
	if err != nil {
		return false, fmt.Errorf("the data is not JSON: %w", err)
	}
	b, err := decode(want)
	if err != nil {
		return false, fmt.Errorf("Want.JSON is not JSON: %w", err)
	}
	return reflect.DeepEqual(a, b), nil
}

func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // so that large numbers stay exact
	if err = d.Decode(&v); err == nil && !errors.Is(d.Decode(new(any)), io.EOF) {
		err = errors.New("there is something after the document")
	}
	return v, err
}

func list(events []postroom.Event) string {
	if len(events) == 0 {
		return " nothing"
	}
	var out strings.Builder
	for i, ev := range events {
		fmt.Fprintf(&out, "\n  %d  type %s, key %q, data %.200s", i+1, ev.Type, ev.Key, ev.Data)
	}
	return out.String()
}
