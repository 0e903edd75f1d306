package servers_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/schema"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func TestPostgresIsMigratedAndTheTestsOwn(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // skipped if there is none
	one, other := servers.Postgres(t), servers.Postgres(t)
	if err := schema.Require(t.Context(), one, ""); err != nil {
		t.Error(err)
	}
	if a, b := one.Config().ConnConfig.Database, other.Config().ConnConfig.Database; a == b {
		t.Errorf("both are database %s", a)
	}
}

func TestNATSIsTheTestsOwn(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			nc := servers.NATS(t)
			js := devtest.JetStream(t, nc)
			if _, err := js.Stream(t.Context(), "SHOP"); err == nil {
				t.Error("there is a stream, before one is made")
			}
			servers.Stream(t, nc, "SHOP", "order.>")
			if _, err := js.Stream(t.Context(), "SHOP"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutServers runs TestProbe in another process.
func TestProbe(t *testing.T) {
	if os.Getenv("SERVERS_PROBE") == "" {
		t.Skip("run by TestWithoutServers")
	}
	servers.Postgres(t)
}

func TestWithoutServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, require, want string }{
		{"tests fail", "", "--- FAIL: TestProbe"},
		{"and are skipped if that is asked for", "0", "--- SKIP: TestProbe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestProbe$", "-test.v")
			cmd.Env = append(os.Environ(), "SERVERS_PROBE=1", "POSTROOM_TEST_REQUIRE="+tt.require,
				"POSTROOM_TEST_SERVERS=", "POSTROOM_TEST_DATABASE_URL=postgres://postgres@127.0.0.1:1/postgres?connect_timeout=2")
			out, _ := cmd.CombinedOutput() // the error is only the probe's exit status
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("output does not say %q:\n%s", tt.want, out)
			}
		})
	}
}
