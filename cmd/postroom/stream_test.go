package main

import (
	"encoding/json"
	"slices"
	"testing"

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
