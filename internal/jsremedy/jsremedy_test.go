package jsremedy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/jsremedy"
)

// A text with a known remedy is split into cause and remedy. Other texts are not split.
func TestSplit(t *testing.T) {
	for text, want := range map[string][2]string{
		jsremedy.StartIt:                {"the server runs without JetStream, or the servers that have it are away", "start nats-server with -js"},
		"stream S: " + jsremedy.StartIt: {"stream S: the server runs without JetStream, or the servers that have it are away", "start nats-server with -js"},
		jsremedy.EnableIt:               {"the account of this user has no JetStream", "enable it in the server's configuration, accounts { NAME { jetstream: enabled } }"},
		"handler h: timeout":            {"handler h: timeout", ""},
	} {
		if cause, do := jsremedy.Split(text); cause != want[0] || do != want[1] {
			t.Errorf("Split(%q) = %q, %q, want %q", text, cause, do, want)
		}
	}
}

func TestExplain(t *testing.T) {
	tests := []struct {
		name      string
		err       error
		want      string // empty: as it is
		ofAccount bool
	}{
		{"a server without it", jetstream.ErrJetStreamNotEnabled, "start nats-server with -js", false},
		{"as the connection says it", nats.ErrNoResponders, "start nats-server with -js", false},
		{"an account without it", jetstream.ErrJetStreamNotEnabledForAccount, "jetstream: enabled", true},
		{"as the server says it", &jetstream.APIError{Code: 503, ErrorCode: 10039}, "jetstream: enabled", true},
		{"a wrong password", nats.ErrAuthorization, "correct its password or credentials", false},
		{"credentials that have expired", nats.ErrAuthExpired, "correct its password or credentials", false},
		{"no stream", jetstream.ErrStreamNotFound, "", false},
		{"no answer", context.DeadlineExceeded, "", false},
		{"nothing", nil, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			if tt.err != nil {
				err = fmt.Errorf("look up: %w", tt.err)
			}
			got := jsremedy.Explain(err)
			if !errors.Is(got, tt.err) || tt.want == "" && got != err { //nolint:errorlint // the very error
				t.Errorf("Explain = %v, want %v in it", got, err)
			}
			if tt.want != "" && !strings.Contains(got.Error(), tt.want) {
				t.Errorf("Explain = %v, want %q in it", got, tt.want)
			}
			if jsremedy.IsOfAccount(got) != tt.ofAccount {
				t.Errorf("IsOfAccount = %t, want %t", !tt.ofAccount, tt.ofAccount)
			}
		})
	}
}

func TestIsOlder(t *testing.T) {
	for version, want := range map[string][2]bool{
		"2.9": {true, true}, "2.9.25": {true, true}, "1.14.1": {true, true}, "2.10.0": {true, true}, "2.10.9-RC.2": {true, true},
		"2.10.26": {true, true}, "2.10.27": {false, true}, "2.10.27-RC.1": {false, true}, "2.10.100": {false, true}, "v2.11.0-RC.1": {false, true},
		"2.12.0": {}, "2.12.0-beta.1": {}, "2.15.2": {}, "3.0.0": {}, "": {}, "dev": {},
	} {
		if got := [2]bool{jsremedy.IsOlder(version, 10, 27), jsremedy.IsOlder(version, 12, 0)}; got != want {
			t.Errorf("%q is older than 2.10.27, 2.12: %t, want %t", version, got, want)
		}
	}
}
