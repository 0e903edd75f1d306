package outbox_test

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// The digest of an event never changes: the log has digests that older versions wrote, and they
// are compared with new ones.
func TestDigestNeverChanges(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	full := postroom.Event{
		Type: "order.placed", Subject: "eu.order.placed", Key: "Müller", Data: []byte(`{"a":1}`),
		Headers: map[string]string{"x-b": "2", "X-a": "1"},
	}
	scheduled := full
	scheduled.NotBefore = at
	for _, tt := range []struct {
		name, want string
		ev         postroom.Event
	}{
		{"nothing but a type", "1abb536ab9c79e656d0182dd4cf2827e", postroom.Event{Type: "a", Subject: "a"}},
		{"everything", "9292ab4a60546888be919c8486f08e2d", full},
		{"everything, scheduled", "a9a990e749ce2b5c23de1660332c4feb", scheduled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := hex.EncodeToString(outbox.ContentDigest(tt.ev)); got != tt.want {
				t.Errorf("digest = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDigestTellsContentsApart(t *testing.T) {
	at := time.UnixMicro(7)
	seen := make(map[string]int)
	for i, ev := range []postroom.Event{
		{Type: "a", Subject: "a"},
		{Type: "a", Subject: "a", NotBefore: at},
		{Type: "a", Subject: "a", NotBefore: at.Add(time.Microsecond)},
		{Type: "a", Subject: "a", NotBefore: time.UnixMicro(-7)},
		{Type: "a", Subject: "a", Headers: map[string]string{"7": ""}},
		{Type: "a", Subject: "a", Headers: map[string]string{"": "7"}},
		{Type: "a", Subject: "a", Headers: map[string]string{"@7": ""}}, // Validate refuses it
		{Type: "a", Subject: "a", Data: []byte("@7")},
		{Type: "a", Subject: "a", Data: []byte("\x00\x00\x00\x02@7")},
		{Type: "a", Subject: "a", Key: "@7"},
	} {
		sum := string(outbox.ContentDigest(ev))
		if before, ok := seen[sum]; ok {
			t.Errorf("events %d and %d have one digest", before, i)
		}
		seen[sum] = i
	}
}

// For any event the database computes the same digest as Go. If one of them wrote an event, the
// other changes nothing when it writes the event again.
func TestDigestIsTheSameInSQL(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	text := rapid.StringOf(rapid.Rune()).Filter(func(s string) bool { return len(s) <= 200 })
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		ev := postroom.Event{
			ID:      fmt.Sprint("e", n),
			Type:    rapid.StringMatching(`[A-Za-z0-9_-]{1,5}(\.[A-Za-z0-9_-]{1,5}){0,2}`).Draw(r, "type"),
			Subject: rapid.StringMatching(`([A-Za-z0-9_-]{1,5}(\.[A-Za-z0-9_-]{1,5}){0,2})?`).Draw(r, "subject"),
			Key:     text.Draw(r, "key"),
			Data:    rapid.SliceOf(rapid.Byte()).Draw(r, "data"), ContentType: "application/octet-stream",
			Headers: rapid.MapOfN(rapid.StringMatching(`[A-Za-z0-9_-]{1,9}`), text, 0, 5).Draw(r, "headers"),
		}
		if rapid.Bool().Draw(r, "scheduled") {
			// The times begin a second after Go's zero time, because a time less than a microsecond
			// after it counts as zero.
			ev.NotBefore = time.Unix(rapid.Int64Range(-62135596799, 253402300799).Draw(r, "second"), rapid.Int64Range(0, 999_999_999).Draw(r, "nanosecond"))
		}
		if ev.Validate() != nil {
			r.Skip("not an event")
		}
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
			if n%2 == 0 {
				if _, err := callWrite(r.Context(), tx, ev); err != nil {
					return err
				}
				return shop.Write(r.Context(), tx, ev)
			}
			if err := shop.Write(r.Context(), tx, ev); err != nil {
				return err
			}
			_, err := callWrite(r.Context(), tx, ev)
			return err
		})
		if err != nil {
			r.Fatal(err)
		}
	})
	var wrong int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM postroom.outbox
		WHERE digest <> postroom.content_digest(type, subject, key, data, headers, not_before)`).Scan(&wrong)
	if err != nil || wrong != 0 {
		t.Errorf("%d rows with another digest, %v", wrong, err)
	}
	if n := rowCount(t, pool); n < 20 {
		t.Errorf("only %d events were valid", n)
	}
}
