package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// The suite runs on the servers that it announces. The test asks each of them, and those that
// belong to one test.
func TestServersAreTheOnesAnnounced(t *testing.T) {
	t.Parallel()
	inContainers := os.Getenv("POSTROOM_TEST_SERVERS") == "containers"
	check := func(what, source, container, says, image string) {
		t.Helper()
		t.Logf("%s: %s on %q", what, source, says)
		switch {
		case !inContainers && (container != "" || strings.HasPrefix(source, "container ")):
			t.Errorf("%s runs in container %s, want none", what, container)
		case inContainers && (container == "" || says != container):
			t.Errorf("%s says it is on %q, want container %q", what, says, container)
		case inContainers && image != "" && source != "container "+image:
			t.Errorf("%s is from %s, want image %s", what, source, image)
		}
	}

	shared := devtest.Postgres(t)
	var says string
	pool := devtest.Pool(t)
	if shared.Source() != "POSTROOM_TEST_DATABASE_URL" || inContainers { // its files belong to the user
		err := pool.QueryRow(t.Context(), `SELECT trim(E'\n' FROM pg_read_file('/etc/hostname'))`).Scan(&says)
		if err != nil {
			t.Fatal(err)
		}
		check("PostgreSQL", shared.Source(), shared.Hostname(), says, os.Getenv("POSTROOM_POSTGRES_IMAGE"))
	}
	own := devtest.OwnPostgres(t, devstack.Config{})
	check("a PostgreSQL of the test's own", own.Source(), own.Hostname(), own.Hostname(), os.Getenv("POSTROOM_POSTGRES_IMAGE"))

	broker, image := devtest.SharedNATS(t), os.Getenv("POSTROOM_NATS_IMAGE")
	check("NATS", broker.Source(), broker.Hostname(), devtest.NATS(t).ConnectedServerName(), image)
	broker = devtest.OwnNATS(t)
	check("a NATS of the test's own", broker.Source(), broker.Hostname(), broker.Hostname(), image)
}
