package devstack_test

import (
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
			command, env, err := devstack.ContainerRequest(tt.cfg, "pw")
			check(t, err)
			line := strings.Join(command, " ")
			if !strings.Contains(line, tt.want) || strings.Contains(line, tt.wantNot) {
				t.Errorf("command is %q, want %q and not %q", line, tt.want, tt.wantNot)
			}
			if env["POSTGRES_PASSWORD"] != "pw" {
				t.Errorf("environment is %v", env)
			}
		})
	}
}
