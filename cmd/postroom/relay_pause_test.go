package main

import (
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
)

func TestRelayPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	env := inDatabase(s.pool)
	postroom(t, env, "relay", "pause").want(t, exitUsage).says(t, "--reason")
	postroom(t, env, "relay", "resume").want(t, exitTodo).says(t, "the relay is not paused")
	postroom(t, env, "handlers", "pause", "outbox", "--reason", "x").want(t, exitUsage).says(t, "postroom relay pause")
	postroom(t, env, "relay", "pause", "--reason", "the stream is moved", "--for", "2h", "--actor", "ann").want(t, exitOK).says(t, "paused the relay\n")
	devtest.Eventually(t, 30*time.Second, "the relay to give its lease back", func() (left bool) {
		return s.pool.QueryRow(t.Context(), "SELECT owner IS NULL FROM postroom.relay").Scan(&left) == nil && left
	})
	postroom(t, env, "status").want(t, exitOK).says(t, "none leads; paused by ann since ", "note: the relay is paused by ann since ", ": the stream is moved: nothing is published; 'postroom relay resume' ends the pause\n")
	if p := decode[inspect.Status](t, postroom(t, env, "status", "--json").want(t, exitOK)).Relay.Pause; p == nil || p.Actor != "ann" || p.Until.IsZero() {
		t.Errorf("status --json has the pause %+v", p)
	}
	postroom(t, env, "audit").want(t, exitOK).says(t, "pause", "the stream is moved")
	postroom(t, env, "relay", "resume").want(t, exitOK).says(t, "resumed the relay\n")
	devtest.Eventually(t, 30*time.Second, "a relay to lead", func() (leads bool) {
		return s.pool.QueryRow(t.Context(), "SELECT owner IS NOT NULL FROM postroom.relay").Scan(&leads) == nil && leads
	})
}
