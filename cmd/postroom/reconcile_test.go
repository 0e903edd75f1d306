package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/republish"
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
	var findings []struct {
		Compared int     `json:"compared"`
		Missing  []int64 `json:"missing"`
	}
	found = postroom(t, r.env, "reconcile", "--json").want(t, exitTodo)
	if err := json.Unmarshal([]byte(found.out), &findings); err != nil || len(findings) != 1 || len(findings[0].Missing) != 2 || findings[0].Compared != 30 {
		t.Errorf("%v: %s", err, found.out)
	}
	postroom(t, r.env, "reconcile", "--repair").want(t, exitUsage).says(t, "publish 2 events again?", "give --yes")
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
	var mended republish.Republish
	got := postroom(t, r.env, append(repair, "--json")...).want(t, exitTodo).says(t, "1 stream not compared: NONE")
	if err := json.Unmarshal([]byte(got.out), &mended); err != nil || mended.Published != 1 {
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
