package main

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/postroomtest/servers"
)

func TestTheOrderIsChargedOnce(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), servers.PostgresURL(t), servers.NATS(t).ConnectedUrl(), &out); err != nil {
		t.Fatal(err)
	}
	if want := "order-1 was charged 1 time\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}
