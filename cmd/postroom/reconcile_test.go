package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/operator"
)

// Messages that are missing from the middle of a stream are found, and published again once.
func TestReconcile(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 30, 0)
	r.env["POSTROOM_NATS_URL"] = r.nc.ConnectedUrl()
	postroom(t, r.env, "reconcile").want(t, exitOK).says(t, "STREAM", r.name)

	r.lose(t, 5, 6)
	found := postroom(t, r.env, "reconcile").want(t, exitTodo).says(t, "lacks seq ", "the broker lost 2 events", "--repair")
	if strings.Contains(found.errors, "not compared") {
		t.Errorf("all were compared: %s", found.errors)
	}
	var findings struct {
		Streams []struct {
			Compared int     `json:"compared"`
			Missing  []int64 `json:"missing"`
		}
	}
	found = postroom(t, r.env, "reconcile", "--json").want(t, exitTodo)
	if err := json.Unmarshal([]byte(found.out), &findings); err != nil || len(findings.Streams) != 1 || len(findings.Streams[0].Missing) != 2 || findings.Streams[0].Compared != 30 {
		t.Errorf("%v: %s", err, found.out)
	}
	postroom(t, r.env, "reconcile", "--repair").want(t, exitUsage).says(t, "publish 2 events again?", "give --yes, or look first with this command without --repair\n")
	if n := r.messages(t); n != 28 {
		t.Errorf("%d messages, want 28: nothing was asked for", n)
	}

	postroom(t, r.env, "reconcile", "--repair", "--yes", "--reason", "new disk").want(t, exitOK).says(t, "lacks seq ", "done", "ann", "new disk")
	postroom(t, r.env, "reconcile").want(t, exitOK)
	if n := r.messages(t); n != 30 {
		t.Errorf("%d messages, want 30", n)
	}
	postroom(t, r.env, "audit", "--action", "reconcile").want(t, exitOK).says(t, "ann", "2 events", "new disk")
}

// The output always names a stream that was not compared, also if the other streams lost events.
func TestReconcileNamesWhatItDidNotCompare(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 10, 0)
	r.env["POSTROOM_NATS_URL"] = r.nc.ConnectedUrl()
	line := []string{"reconcile", "--stream", r.name, "--stream", "NONE"}
	postroom(t, r.env, line...).want(t, exitTodo).says(t, "1 stream not compared: NONE")

	repair := append(slices.Clone(line), "--repair", "--yes")
	r.lose(t, 5)
	postroom(t, r.env, line...).want(t, exitTodo).says(t, "the broker lost 1 event", "1 stream not compared: NONE")
	postroom(t, r.env, append(line, "--repair", "--json")...).want(t, exitUsage).says(t, "give --yes", "1 stream not compared: NONE")
	postroom(t, r.env, repair...).want(t, exitTodo).says(t, "done", "1 stream not compared: NONE")

	r.lose(t, 6)
	var mended struct {
		Streams     []struct{ Stream string }
		Republishes []operator.Republish
	}
	got := postroom(t, r.env, append(repair, "--json")...).want(t, exitTodo).says(t, "1 stream not compared: NONE")
	if err := json.Unmarshal([]byte(got.out), &mended); err != nil || len(mended.Streams) != 2 || len(mended.Republishes) != 1 || mended.Republishes[0].Published != 1 {
		t.Errorf("%v: %s", err, got.out)
	}
	if n := r.messages(t); n != 10 {
		t.Errorf("%d messages, want 10", n)
	}
}

// lose makes the broker lose messages.
func (r *republishTest) lose(t *testing.T, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if err := r.stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
}

// Two databases have the same source and publish to one stream, with the same ids. No event vanishes:
// what the broker drops as a duplicate of another event is dead.
func TestTwoLogsWithOneSource(t *testing.T) {
	t.Parallel()
	one := withPublished(t, 20, 0)
	two := &republishTest{pool: devtest.Pool(t), nc: one.nc, name: one.name, stream: one.stream, env: map[string]string{}}
	two.env = inDatabase(two.pool)
	two.env["POSTROOM_NATS_URL"] = one.nc.ConnectedUrl()
	for n := range 30 {
		_, err := two.pool.Exec(t.Context(), "SELECT postroom.write('/shop', 'order.placed', $1::jsonb, id => 'e' || $2::int, subject => $3)", fmt.Sprintf(`{"two":%d}`, n+1), n+1, one.name+".x")
		if err != nil {
			t.Fatal(err)
		}
	}
	two.stop = two.relay(t)
	two.waitFor(t, 30)
	devtest.Eventually(t, time.Minute, "all to be recorded", func() bool {
		return rowCount(t, two.pool, "SELECT count(*) FROM postroom.relay WHERE high = (SELECT max(seq) FROM postroom.outbox) AND isempty(pending)") == 1
	})
	if n := rowCount(t, two.pool, "SELECT count(*) FROM postroom.held WHERE handler = 'outbox' AND dead_at IS NOT NULL AND class = 'conflict'"); n != 20 {
		t.Errorf("%d events are dead as conflicts, want 20", n)
	}
	postroom(t, two.env, "status").want(t, exitTodo).says(t, "20 events are dead on their way to the broker")
	postroom(t, two.env, "dead", "list", "--class", "conflict").want(t, exitOK).says(t, "another event with this source and id exists: message ")
}

// A relay of an older version recorded such events as published.
func TestReconcileComparesContents(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 30, 0)
	r.env["POSTROOM_NATS_URL"] = r.nc.ConnectedUrl()
	// The digests of seqs 5 and 6 are not those of the messages; that of seq 7 is.
	_, err := r.pool.Exec(t.Context(), `ALTER TABLE postroom.outbox DISABLE TRIGGER ALL;
		UPDATE postroom.outbox SET created_at = created_at - interval '1 ms' WHERE seq IN (5, 6, 7);
		UPDATE postroom.outbox SET digest = postroom.content_digest(type, subject, key, data, headers, NULL) WHERE seq = 7`)
	if err != nil {
		t.Fatal(err)
	}
	postroom(t, r.env, "reconcile").want(t, exitTodo).says(t, "has other content under the source and id of seq 5, 6 of the log", "2 events not in the stream")
	var findings struct {
		Streams []struct {
			Missing   []int64 `json:"missing"`
			Conflicts []int64 `json:"conflicts"`
		}
	}
	found := postroom(t, r.env, "reconcile", "--json").want(t, exitTodo)
	if err := json.Unmarshal([]byte(found.out), &findings); err != nil || len(findings.Streams) != 1 || len(findings.Streams[0].Missing) != 0 || !slices.Equal(findings.Streams[0].Conflicts, []int64{5, 6}) {
		t.Errorf("%v: %s", err, found.out)
	}
}
