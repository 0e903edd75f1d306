package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
)

func TestStreamEnsure(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	js := devtest.JetStream(t, nc)
	env := environment{"NATS_URL": devtest.NATSURL(t)}

	postroom(t, env, "stream", "ensure", "CLI_SHOP", "--subjects", "clishop.a.>,clishop.b.>", "--max-age", "720h").want(t, exitOK).
		says(t, "STREAM     SUBJECTS", "CLI_SHOP   clishop.a.>,clishop.b.>   1          720h0m0s   file\n")
	stream, err := js.Stream(t.Context(), "CLI_SHOP")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	if cfg.Discard != jetstream.DiscardNew || !cfg.DenyDelete || !cfg.DenyPurge || cfg.Storage != jetstream.FileStorage {
		t.Errorf("the stream can lose messages: %+v", cfg)
	}

	// The command runs again with one more subject. --subjects twice makes one list.
	r := postroom(t, env, "stream", "ensure", "CLI_SHOP", "--subjects", "clishop.a.>", "--subjects", "clishop.c", "--json").want(t, exitOK)
	var got struct {
		Subjects []string `json:"subjects"`
		Atomic   bool     `json:"atomic"`
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if want := []string{"clishop.a.>", "clishop.b.>", "clishop.c"}; !slices.Equal(got.Subjects, want) {
		t.Errorf("subjects = %v, want %v", got.Subjects, want)
	}

	// The command says which settings it does not change.
	postroom(t, env, "stream", "ensure", "CLI_SHOP", "--subjects", "clishop.a.>", "--max-age", "1h").want(t, exitTodo).
		says(t, "keeps messages 720h0m0s, not 1h0m0s", "nats stream edit CLI_SHOP")

	// --atomic allows atomic batches.
	devtest.NeedsNATS(t, nc, 12)
	r = postroom(t, env, "stream", "ensure", "CLI_SHOP", "--subjects", "clishop.a.>", "--atomic", "--json").want(t, exitOK)
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Atomic || !slices.Contains(got.Subjects, "postroom.lease.*.CLI_SHOP") {
		t.Errorf("the stream is %+v, want it to take atomic batches", got)
	}
}

func TestStreamEnsureErrors(t *testing.T) {
	t.Parallel()
	url := devtest.NATSURL(t)
	env := environment{"POSTROOM_NATS_URL": url, "NATS_URL": "nats://127.0.0.1:1"}
	postroom(t, env, "stream", "ensure", "CLI_TAKEN", "--subjects", "clitaken.>").want(t, exitOK)

	tests := []struct {
		name string
		args []string
		want int
		says string
	}{
		{"subjects of another stream", []string{"CLI_OVERLAP", "--subjects", "clitaken.a"}, exitFailed, "another stream has some of these subjects"},
		{"replicas without a cluster", []string{"CLI_REPLICAS", "--subjects", "clireplicas", "--replicas", "3"}, exitFailed, "--replicas cannot be above"},
		{"no such name", []string{"CLI.DOT", "--subjects", "clidot"}, exitUsage, "not the name of a stream"},
		{"no server", []string{"CLI_X", "--subjects", "clix", "--nats-url", "nats://127.0.0.1:1"}, exitFailed, "(--nats-url): is it running"},
		{"no URL", []string{"CLI_X", "--subjects", "clix", "--nats-url", "nats://"}, exitUsage, "is not a NATS URL"},
		{"no credentials file", []string{"CLI_X", "--subjects", "clix", "--nats-creds", "/no/such/file"}, exitFailed, "/no/such/file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			postroom(t, env, append([]string{"stream", "ensure"}, tt.args...)...).want(t, tt.want).says(t, tt.says)
		})
	}
}

// If the NATS user may ask about no stream, it is not known whether the broker lost anything: the
// status of the command is not that of a check that found no loss.
func TestStreamCheckThatComparedNothing(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	nc := devtest.PlainNATS(t, `jetstream: enabled
		authorization { users: [
			{user: admin, password: x},
			{user: weak, password: x, permissions: {publish: ["$JS.API.INFO"], subscribe: ["_INBOX.>"]}},
			{user: half, password: x, permissions: {publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.SHOP"], subscribe: ["_INBOX.>"]}}
		] }`, nats.UserInfo("admin", "x"))
	as := func(user string) environment {
		env := inDatabase(pool)
		env["POSTROOM_NATS_URL"] = strings.Replace(nc.ConnectedUrl(), "nats://", "nats://"+user+":x@", 1)
		return env
	}
	postroom(t, as("weak"), "stream", "check", "SHOP").want(t, exitFailed).
		says(t, "SHOP     0          0\n", "SHOP: could not be compared: look up stream SHOP", "nothing could be compared", "permission to publish to $JS.API.>")
	for _, stream := range []string{"SHOP", "BILLING"} { // of a service that only consumes: its log is empty
		if _, err := pool.Exec(t.Context(), `INSERT INTO postroom.subscription (handler, stream, stream_created, subjects, floor)
			VALUES (lower($1), $1, now(), '{order.placed}', 900)`, stream); err != nil {
			t.Fatal(err)
		}
	}
	postroom(t, as("weak"), "stream", "check").want(t, exitFailed).says(t, "unknown", "shop: look up stream SHOP", "nothing could be compared", "permission to publish to $JS.API.>")
	postroom(t, as("weak"), "stream", "check", "--json").want(t, exitFailed).says(t, `"verdict": "unknown"`, "nothing could be compared")
	postroom(t, as("half"), "stream", "check").want(t, exitTodo).says(t, "unknown", "missing", "the broker lost messages")
}
