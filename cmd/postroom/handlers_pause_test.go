package main

import (
	"maps"
	"testing"

	"github.com/postroom/postroom/internal/inspect"
)

func TestHandlersPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	env := inDatabase(s.pool)
	s.exec(t, "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{h}', '{30 days}', '{29 days}', '30 days')")
	postroom(t, env, "handlers", "pause", "h").want(t, exitUsage).says(t, "--reason")
	postroom(t, env, "handlers", "resume", "h").want(t, exitTodo).says(t, "h is not paused")
	postroom(t, env, "handlers", "pause", "h", "--reason", "maintenance", "--for", "2h", "--actor", "ann").want(t, exitOK).says(t, "paused h\n")
	if r := postroom(t, env, "handlers", "resume", "h").want(t, exitOK); r.out != "resumed h\n" {
		t.Errorf("resume of a known handler says %q", r.out)
	}
	postroom(t, env, "handlers", "pause", "hh", "--reason", "a slip", "--actor", "ann").want(t, exitOK).says(t, "paused hh\n", "note: no process has run a handler hh yet; is the name right? (known handlers: h)\n")
	postroom(t, env, "handlers", "resume", "hh").want(t, exitOK)
	postroom(t, env, "handlers", "pause", "h", "--reason", "maintenance", "--for", "2h", "--actor", "ann").want(t, exitOK)
	for _, tt := range []struct {
		args []string
		want map[string]any
	}{
		{[]string{"handlers", "resume", "h"}, map[string]any{"handler": "h", "state": "resumed", "known": true}},
		{[]string{"handlers", "pause", "hh", "--reason", "a slip"}, map[string]any{"handler": "hh", "state": "paused", "known": false}},
		{[]string{"handlers", "resume", "hh"}, map[string]any{"handler": "hh", "state": "resumed", "known": false}},
		{[]string{"relay", "pause", "--reason", "x"}, map[string]any{"state": "paused"}},
		{[]string{"relay", "resume"}, map[string]any{"state": "resumed"}},
	} {
		if got := decode[map[string]any](t, postroom(t, env, append(tt.args, "--json")...).want(t, exitOK)); !maps.Equal(got, tt.want) {
			t.Errorf("%v --json = %v, want %v", tt.args, got, tt.want)
		}
	}
	postroom(t, env, "handlers", "pause", "h", "--reason", "maintenance", "--for", "2h", "--actor", "ann").want(t, exitOK)
	postroom(t, env, "handlers").want(t, exitOK).says(t, "! h is paused by ann since ", " until ", ": maintenance; 'postroom handlers resume h' ends the pause\n")
	postroom(t, env, "status").want(t, exitOK).says(t, "handler h is paused by ann since ", ": maintenance; 'postroom handlers resume h' ends the pause\n")
	got := decode[inspect.Handlers](t, postroom(t, env, "handlers", "--json").want(t, exitOK))
	if p := got.Handlers[0].Pause; p == nil || p.Actor != "ann" || p.Reason != "maintenance" || p.Until.IsZero() {
		t.Errorf("handlers --json has the pause %+v", p)
	}
	s.exec(t, `UPDATE postroom.node SET paused = '{"h": {"since": "2026-01-02T03:04:05Z", "class": "error", "text": "503"}}'`)
	postroom(t, env, "handlers").want(t, exitOK).says(t, "! h fails for nearly all events, and is paused since 2026-01-02T03:04:05Z in host/1/a: error: 503\n")
	s.exec(t, "INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) VALUES ('h', 'S', now(), '{}')")
	postroom(t, env, "status").want(t, exitTodo).says(t, "h fails for nearly all events and is paused in host/1/a: error: 503", "resumes by itself")
	s.exec(t, "UPDATE postroom.node SET paused = '{}'")
	postroom(t, env, "audit").want(t, exitOK).says(t, "pause", "maintenance")
	postroom(t, env, "handlers", "resume", "h").want(t, exitOK).says(t, "resumed h\n")
	got = decode[inspect.Handlers](t, postroom(t, env, "handlers", "--json").want(t, exitOK))
	if p := got.Handlers[0].Pause; p != nil {
		t.Errorf("after it was resumed it has the pause %+v", p)
	}
}
