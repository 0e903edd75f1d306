package idempotency

import (
	"context"
	"maps"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/sqlfile"
)

// Lock returns the number of a key's lock.
func Lock(k Key) int64 { return k.lock("postroom") }

// FingerprintRequest returns the fingerprint of a request with the given body, as PrintRequest
// describes it, of a multipart body by its parts.
func FingerprintRequest(r *http.Request, body []byte) (Fingerprint, error) {
	p := fingerprint.Printer{Request: r, Body: body, Parts: true}
	sum, err := p.Print(fingerprint.Request)
	return Fingerprint(sum), err
}

// ParseKey returns the key in the lines of a header.
func ParseKey(lines []string, f KeyFormat) (string, error) { return f.parse(lines) }

// Codes returns all codes, with their statuses.
func Codes() map[Code]int { return statusOf }

// Statements returns the statements, by name, for the usual schema.
func Statements() map[string]string {
	all := sqlfile.Names(load("postroom"))
	maps.Copy(all, sqlfile.Names(claim.Load("postroom")))
	return all
}

// CommitAfterAFailure commits two transactions on one connection; in the second one a
// statement has failed. The first transaction prepares COMMIT, because the server refuses to
// prepare it after a failure.
func CommitAfterAFailure(ctx context.Context, g *Guard) error {
	for _, sql := range []string{"SELECT 1", "SELECT 1 / 0"} {
		t, _, _, err := g.store.open(ctx, &operation{rules: &Route{}})
		if err != nil {
			return err
		}
		_, _ = t.loan.Exec(ctx, sql)
		batch := &pgx.Batch{}
		batch.Queue("COMMIT")
		if err := t.end(ctx, batch); err != nil {
			t.rollback(ctx)
			return err
		}
	}
	return nil
}
