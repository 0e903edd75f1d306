package main

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func TestTheOrderIsChargedOnce(t *testing.T) {
	server, name := devtest.Postgres(t), "quickstart_"+strings.ToLower(t.Name())
	url, err := server.CreateDatabase(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), url, devtest.NATSURL(t), &out); err != nil {
		t.Fatal(err)
	}
	if want := "order-1 was charged 1 time\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	if err := server.DropDatabase(t.Context(), name); err != nil {
		t.Error(err)
	}
}
