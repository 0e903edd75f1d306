package containers_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/containers"
	"github.com/postroom/postroom/schema"
)

func TestPostgresIsMigratedAndTheTestsOwn(t *testing.T) {
	boxes(t)
	t.Parallel()
	one, other := containers.Postgres(t), containers.Postgres(t)
	if err := schema.Require(t.Context(), one, ""); err != nil {
		t.Error(err)
	}
	if a, b := one.Config().ConnConfig.Database, other.Config().ConnConfig.Database; a == b {
		t.Errorf("both are database %s", a)
	}
	if a, b := one.Config().ConnConfig.Port, other.Config().ConnConfig.Port; a != b {
		t.Errorf("they are in two containers, at ports %d and %d", a, b)
	}
	if !strings.HasPrefix(containers.PostgresURL(t), "postgres://") {
		t.Errorf("the URL is %s", containers.PostgresURL(t))
	}
}

func TestNATSIsTheTestsOwn(t *testing.T) {
	boxes(t)
	t.Parallel()
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			nc := containers.NATS(t)
			js := devtest.JetStream(t, nc)
			if _, err := js.Stream(t.Context(), "SHOP"); err == nil {
				t.Error("there is a stream, before one is made")
			}
			containers.Stream(t, nc, "SHOP", "order.>")
			again, err := nats.Connect(nc.ConnectedUrl())
			check(t, err)
			defer again.Close()
			if _, err := devtest.JetStream(t, again).Stream(t.Context(), "SHOP"); err != nil {
				t.Errorf("the connection's URL does not lead to its account: %v", err)
			}
		})
	}
}

// An account is used again, and then has no streams.
func TestAnAccountIsUsedAgainWithoutItsStreams(t *testing.T) {
	boxes(t)
	t.Parallel()
	seen := map[string]bool{}
	for i := 0; ; i++ {
		var url string
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			nc := containers.NATS(t)
			url = nc.ConnectedUrl()
			for name := range devtest.JetStream(t, nc).StreamNames(t.Context()).Name() {
				t.Errorf("the account has stream %s", name)
			}
			containers.Stream(t, nc, "SHOP", "order.>")
		})
		if seen[url] || t.Failed() {
			return
		}
		seen[url] = true
	}
}

// TestWithoutDocker runs TestProbe in another process.
func TestProbe(t *testing.T) {
	switch os.Getenv("CONTAINERS_PROBE") {
	case "postgres":
		containers.Postgres(t)
	case "nats":
		containers.NATS(t)
	default:
		t.Skip("run by TestWithoutDocker")
	}
}

func TestWithoutDocker(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, require, want string }{
		{"tests fail", "", "--- FAIL: TestProbe"},
		{"and are skipped if that is asked for", "0", "--- SKIP: TestProbe"},
	} {
		for _, server := range []string{"postgres", "nats"} {
			t.Run(tt.name+", "+server, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(os.Args[0], "-test.run=^TestProbe$", "-test.v")
				cmd.Env = append(os.Environ(), "CONTAINERS_PROBE="+server, "POSTROOM_TEST_REQUIRE="+tt.require,
					"POSTROOM_TEST_SERVERS=", "TESTCONTAINERS_PROVIDER=none")
				out, _ := cmd.CombinedOutput() // the error is only the probe's exit status
				if !strings.Contains(string(out), tt.want) || !strings.Contains(string(out), "find Docker") {
					t.Errorf("output does not say %q and why:\n%s", tt.want, out)
				}
			})
		}
	}
}
