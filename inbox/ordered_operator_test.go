package inbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
)

// What the documentation tells an operator to do with an event that holds up its key.
func TestTakingAnEventOutOfItsKey(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/schema.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)    BEGIN;\n(.*?)    COMMIT;`).FindSubmatch(doc)
	if block == nil {
		t.Fatal("the documentation has no such statements")
	}
	sql := strings.NewReplacer("ledger.move", "o", "account-7", "k0", "…", "k0-00000").Replace(string(block[1]))
	b := newBench(t)
	s := newScript("o")
	s.set("k0-00000", errBad)
	s.set("k0-00002", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	b.run()
	b.publishKeyed(2, 4)
	b.eventually("the other key's effects, and three that wait", func() bool { return len(b.order("o")) == 4 && len(b.held("o")) == 4 })
	take := func(event string) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), strings.ReplaceAll(sql, "k0-00000", event), pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	take("k0-00000")
	b.eventually("the next, and the death of the one after it", func() bool { return s.ran("k0-00001") > 0 && b.dead("o") == 2 })
	take("k0-00001") // is no more
	take("k0-00002")
	b.eventually("the rest", func() bool { return len(b.orderOf("o", "k0")) == 2 })
	if n := b.misordered("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	b.requeue("o", "/shop k0-00000")
	s.set("k0-00000", nil)
	b.eventually("what was taken out, by itself", func() bool { return len(b.orderOf("o", "k0")) == 3 })
}
