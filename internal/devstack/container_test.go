package devstack_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
)

func TestContainerIsGivenPasswordAndSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		cfg     devstack.Config
		want    string
		wantNot string
	}{
		{"fast", devstack.Config{MaxConnections: 7}, "-c max_connections=7 -c max_prepared_transactions=16 -c fsync=off", "nothing"},
		{"durable", devstack.Config{Durable: true}, "postgres -c max_connections=200", "fsync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			command, options := devstack.ContainerRequest(tt.cfg, "pw")
			line := strings.Join(command, " ")
			if !strings.Contains(line, tt.want) || strings.Contains(line, tt.wantNot) {
				t.Errorf("command is %q, want %q and not %q", line, tt.want, tt.wantNot)
			}
			if !slices.Contains(options, "POSTGRES_PASSWORD=pw") {
				t.Errorf("the options are %v", options)
			}
		})
	}
}
