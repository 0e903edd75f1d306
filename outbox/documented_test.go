package outbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
)

// documentedSQL returns the statements of a page of the documentation: its indented
// blocks that begin with the given text.
func documentedSQL(t *testing.T, page, beginning string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(text), -1) {
		if strings.HasPrefix(strings.TrimSpace(block), beginning) {
			found = append(found, block)
		}
	}
	if len(found) == 0 {
		t.Fatalf("docs/%s has no statement that begins with %q", page, beginning)
	}
	return found
}

// The statements with which the documentation writes events without Go can be pasted into psql, by
// a role with the documented grants. The plain INSERT writes the same event as Write.
func TestDocumentedWaysToWriteWithoutGo(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	role := producerRole(t, pool, "postroom")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
			return err
		}
		for _, sql := range append(documentedSQL(t, "reference/schema.md", "SELECT postroom.write("), documentedSQL(t, "reference/schema.md", "INSERT INTO postroom.outbox")...) {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Errorf("%s\n%v", sql, err)
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same := postroom.Event{ID: "order-8", Type: "order.placed", Key: "8", Data: []byte(`{"id": 8}`)}
	shop := outbox.New(outbox.Config{Source: "/shop"})
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, same) }); err != nil {
		t.Errorf("Write of the event that was inserted: %v, want it to be known", err)
	}
	ids, _, _ := read(t, lead(t, pglog.New(pool)), 10)
	wantIDs(t, ids, "order-8") // the other one is for later
}

// The documentation says that the digest is not optional.
func TestPlainInsertNeedsADigest(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insert := documentedSQL(t, "reference/schema.md", "INSERT INTO postroom.outbox")[0]
	without := regexp.MustCompile(`(?s),\s*postroom\.content_digest\(.*?\)\n`).ReplaceAllString(strings.Replace(insert, ", digest)", ")", 1), "\n")
	if strings.Contains(without, "digest") {
		t.Fatalf("the digest is not cut out: %s", without)
	}
	if _, err := pool.Exec(t.Context(), without); stateOf(err) != "23502" {
		t.Errorf("%s\n%v, want SQLSTATE 23502", without, err)
	}
}
