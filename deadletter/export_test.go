package deadletter_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/outbox"
)

// broken is a writer that fails in the middle.
type broken struct{ left int }

var errBroken = errors.New("no space left")

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// A purge removes the events that it has written. If it could not write them, it removes nothing.
// A purge leaves the events of a replay that has not ended, because the replay counts them: an event
// that is nowhere counts as one that took effect.
func TestPurgeLeavesEventsOfRunningReplays(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2, 1, 1)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)})
	n.stepped(job.ID)
	n.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL WHERE id = 1") // it failed, and an operator is quick
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{1}}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(time.Minute)
	if got, err := n.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: soon}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("Purge = %d, %v", got, err)
	}
	n.exec("DELETE FROM postroom.held") // the other one succeeded
	job = n.runReplay(job)
	if job.Succeeded != 1 || job.Skipped != 1 {
		t.Errorf("the replay counts %+v, want one success and one that was left out", job)
	}
	if got, err := n.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: soon}, n.by); err != nil || got != 1 {
		t.Errorf("Purge after the end of the replay = %d, %v", got, err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1500, 1, 1)
	n.discarded(deadletter.Filter{All: true}, 1500)
	n.exec("UPDATE postroom.archive SET discarded_at = now() - interval '1 year' WHERE id % 3 <> 0")
	year := time.Now().Add(-24 * time.Hour)
	if got, err := n.store.Purge(t.Context(), &broken{left: 700}, deadletter.PurgeOptions{Before: year}, n.by); !errors.Is(err, errBroken) || got != 0 {
		t.Errorf("Purge = %d, %v", got, err)
	}
	n.want("archived", 1500, "SELECT count(*) FROM postroom.archive")
	n.want("purges in the audit", 0, "SELECT count(*) FROM postroom.audit WHERE action = 'purge'")

	ids := map[string]bool{}
	for _, id := range n.texts("SELECT event_id FROM postroom.archive WHERE id % 3 <> 0") {
		ids[id] = true
	}
	var out bytes.Buffer
	if got, err := n.store.Purge(t.Context(), &out, deadletter.PurgeOptions{Before: year}, n.by); err != nil || got != int64(len(ids)) {
		t.Errorf("Purge = %d, %v", got, err)
	}
	for line := range strings.Lines(out.String()) {
		var e struct {
			EventID     string `json:"event_id"`
			DiscardedBy string `json:"discarded_by"`
			Reason      string `json:"reason"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.DiscardedBy != "ann" || e.Reason != n.by.Reason {
			t.Fatalf("%s: %v", line, err)
		}
		delete(ids, e.EventID)
	}
	if len(ids) > 0 {
		t.Errorf("removed and not written: %v", slices.Collect(maps.Keys(ids)))
	}
	n.want("left", 500, "SELECT count(*) FROM postroom.archive")
	n.want("purges in the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'purge' AND events = 1000 AND actor = 'ann'")
	if _, err := n.store.Purge(t.Context(), &out, deadletter.PurgeOptions{Before: year}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a second purge = %v", err)
	}
}

// An export is a line of JSON for each event, whatever its body is.
func TestExport(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	binary := []byte{0xff, 0x00, 'x'}
	bodies := map[string][]byte{"json": []byte("{\"a\": [1,\n null]}"), "number": []byte("12.50"), "text": []byte("plain \"text\"\n\x00"), "empty": {}, "binary": binary}
	var all []postroom.Event
	for id, body := range bodies {
		ev := event(id)
		ev.Data, ev.Headers, ev.ContentType = body, map[string]string{"tenant": "a"}, "application/octet-stream"
		all = append(all, ev)
	}
	n.die("billing", declined, all...)
	n.exec(`UPDATE postroom.held SET raw_headers = convert_to('X: y', 'UTF8') WHERE event_id = 'binary'`)
	var out bytes.Buffer
	if got, err := n.store.Export(t.Context(), deadletter.Filter{Handler: "billing"}, &out, deadletter.ExportOptions{}); err != nil || got != 5 {
		t.Fatalf("Export = %d, %v", got, err)
	}
	lines := map[string]map[string]any{}
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		id, _ := fields["event_id"].(string)
		if fields["handler"] != "billing" || fields["dead_at"] == nil || fields["class"] != "error" || fields["cause"] == "" || fields["id"] == nil ||
			fields["headers"].(map[string]any)["tenant"] != "a" || fields["failures"] == nil {
			t.Errorf("line of %s: %v", id, fields)
		}
		for _, hidden := range []string{"fingerprint", "epoch", "claimed_by"} {
			if _, has := fields[hidden]; has {
				t.Errorf("line of %s has %s", id, hidden)
			}
		}
		lines[id] = fields
	}
	data, err := json.Marshal(lines["json"]["data"])
	if err != nil || string(data) != `{"a":[1,null]}` {
		t.Errorf("a JSON body: %s", data)
	}
	encoded, _ := lines["binary"]["data_base64"].(string)
	if got, err := base64.StdEncoding.DecodeString(encoded); err != nil || !bytes.Equal(got, binary) || lines["binary"]["raw_headers"] != "X: y" {
		t.Errorf("a binary body: %v", lines["binary"])
	}
	if lines["number"]["data"] != 12.5 || lines["text"]["text"] != "plain \"text\"\n\x00" || lines["empty"]["text"] != "" || lines["text"]["data"] != nil {
		t.Errorf("bodies: %v", lines)
	}
	if !strings.Contains(out.String(), `"data":12.50`) {
		t.Error("a number is not as it was written")
	}
	if got, err := n.store.Export(t.Context(), deadletter.Filter{}, &broken{left: 2}, deadletter.ExportOptions{}); !errors.Is(err, errBroken) || got != 2 {
		t.Errorf("Export to what fails = %d, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.store.Export(ctx, deadletter.Filter{}, &out, deadletter.ExportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Export = %v", err)
	}
}

// A producer cancelled an event. While the log has the event, only its row in the archive prevents
// that a relay or a republish publishes it.
func TestPurgeKeepsCancelledEventsOfTheLog(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	box := outbox.New(outbox.Config{Source: "/office"})
	ev := postroom.NewEvent(o.subject, "x")
	ev.ID, ev.NotBefore = "reminder", time.Now().Add(time.Hour)
	inTx := func(f func(tx pgx.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), o.pool, f); err != nil {
			t.Fatal(err)
		}
	}
	inTx(func(tx pgx.Tx) error { return box.Write(t.Context(), tx, ev) })
	inTx(func(tx pgx.Tx) error {
		cancelled, err := box.Cancel(t.Context(), tx, ev.ID)
		if err == nil && !cancelled {
			err = errors.New("it was not called off")
		}
		return err
	})
	soon := time.Now().Add(time.Minute)
	if n, err := o.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: soon}, o.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("while the log has the event: %d, %v", n, err)
	}
	if n, err := o.store.Export(t.Context(), deadletter.Filter{Discarded: true}, io.Discard, deadletter.ExportOptions{}); err != nil || n != 1 {
		t.Errorf("exported %d, %v", n, err)
	}
	o.exec("DELETE FROM postroom.outbox WHERE event_id = 'reminder'")
	if n, err := o.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: soon}, o.by); err != nil || n != 1 {
		t.Errorf("when retention has removed it: %d, %v", n, err)
	}
}

func TestPurgeTakesOldReplays(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(3)...)
	n.handle("billing", nil)
	old := n.runReplay(n.replay(deadletter.Filter{EventID: "e1"}, deadletter.ReplayOptions{}))
	n.exec("UPDATE postroom.replay SET ended_at = now() - interval '2 hours' WHERE id = $1", old.ID)
	lately := n.runReplay(n.replay(deadletter.Filter{EventID: "e2"}, deadletter.ReplayOptions{}))
	running := n.replay(deadletter.Filter{EventID: "e3"}, deadletter.ReplayOptions{})
	hourAgo := time.Now().Add(-time.Hour)
	if got, err := n.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: hourAgo}, n.by); err != nil || got != 0 {
		t.Errorf("Purge = %d, %v", got, err)
	}
	n.want("replays", 2, "SELECT count(*) FROM postroom.replay WHERE id IN ($1, $2)", lately.ID, running.ID)
	n.want("events of replays", 2, "SELECT count(*) FROM postroom.replay_event")
	n.want("replays in the audit", 3, "SELECT count(*) FROM postroom.audit WHERE action = 'replay'")
	n.want("the purge in the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'purge' AND details ->> 'replays' = '1'")
	if _, err := n.store.Purge(t.Context(), io.Discard, deadletter.PurgeOptions{Before: hourAgo}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a second purge = %v", err)
	}
}

// An export and a purge write what an edited event was before: the original, and each later
// revision.
func TestExportHasTheRevisions(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1) // e1 stays dead, e2 is discarded, e3 takes effect; e4 is not edited
	n.exec(`UPDATE postroom.held SET data = '\xff00', headers = '{"tenant": "a", "amount": 1.50, "gone": null}' WHERE event_id <> 'e4'`)
	for _, id := range []string{"e1", "e2", "e3"} {
		for _, body := range []string{`{"edit": 1}`, `{"edit": 2}`} {
			if _, err := n.store.Edit(t.Context(), n.number("SELECT id FROM postroom.held WHERE event_id = $1", id), deadletter.Edit{Data: []byte(body)}, n.by); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.discarded(deadletter.Filter{EventID: "e2"}, 1)
	n.exec("DELETE FROM postroom.held WHERE event_id = 'e3'")
	var dead, discarded, purged bytes.Buffer
	if got, err := n.store.Export(t.Context(), deadletter.Filter{}, &dead, deadletter.ExportOptions{}); err != nil || got != 2 {
		t.Fatalf("Export = %d, %v", got, err)
	}
	if got, err := n.store.Export(t.Context(), deadletter.Filter{Discarded: true}, &discarded, deadletter.ExportOptions{}); err != nil || got != 1 {
		t.Fatalf("Export = %d, %v", got, err)
	}
	if got, err := n.store.Purge(t.Context(), &purged, deadletter.PurgeOptions{Before: time.Now().Add(time.Minute)}, n.by); err != nil || got != 1 {
		t.Fatalf("Purge = %d, %v", got, err)
	}
	n.want("revisions of events that are gone", 0, "SELECT count(*) FROM postroom.revision WHERE event_id <> 'e1'")
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"dead": {dead.String(), []string{"e1", "e4"}}, "discarded": {discarded.String(), []string{"e2"}}, "purged": {purged.String(), []string{"e2", "e3"}},
	} {
		var got []string
		for line := range strings.Lines(tt.text) {
			var e struct {
				EventID   string `json:"event_id"`
				Headers   json.RawMessage
				Revisions []struct {
					Revision    int
					ReplacedAt  time.Time `json:"replaced_at"`
					Audit       int64
					ContentType string `json:"content_type"`
					Headers     json.RawMessage
					Data        json.RawMessage
					DataBase64  []byte `json:"data_base64"`
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			got = append(got, e.EventID)
			if e.EventID == "e4" {
				if e.Revisions != nil {
					t.Errorf("%s: an event that was not edited has revisions: %s", name, line)
				}
				continue
			}
			const headers = `{"gone":null,"amount":1.50,"tenant":"a"}`
			if e.EventID != "e3" && string(e.Headers) != headers {
				t.Errorf("%s: the headers are %s", name, e.Headers)
			}
			if len(e.Revisions) != 2 {
				t.Fatalf("%s: %d revisions, want 2: %s", name, len(e.Revisions), line)
			}
			if first := e.Revisions[0]; first.Revision != 0 || !bytes.Equal(first.DataBase64, []byte{0xff, 0}) || string(first.Headers) != headers ||
				first.ContentType != "application/json" || first.Audit == 0 || first.ReplacedAt.IsZero() {
				t.Errorf("%s: the original is %+v: %s", name, first, line)
			}
			if second := e.Revisions[1]; second.Revision != 1 || string(second.Data) != `{"edit":1}` {
				t.Errorf("%s: the second revision is %+v", name, second)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: lines of %v, want %v", name, got, tt.want)
		}
	}
}
