// Package endpoints reads from the database which endpoints of webhooks fail or are disabled.
package endpoints

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package. Each has a file in the directory sql.
type statements struct{ Failing string }

var written = sqlfile.MustRead[statements](files)

// Notes returns a text about the endpoints that fail, if there are any, and a text about the
// disabled endpoints, if there are any. The owners of these endpoints must repair them. The
// parameter name is the schema's name, which schema.Name accepted.
func Notes(ctx context.Context, tx pgx.Tx, name string) (notes []string, err error) {
	var disabled, failing int64
	var first string
	var since *time.Time
	if err := tx.QueryRow(ctx, schema.In(name, written.Failing)).Scan(&disabled, &failing, &first, &since); err != nil {
		return nil, fmt.Errorf("read endpoints of webhooks: %w", err)
	}
	const list = "; 'postroom webhook endpoints' lists them"
	if failing > 0 && since != nil {
		notes = append(notes, fmt.Sprintf("webhook endpoints that fail: %d, %s since %s%s", failing, first, since.UTC().Format(time.RFC3339), list))
	}
	if disabled > 0 {
		notes = append(notes, fmt.Sprintf("webhook endpoints that are disabled: %d%s", disabled, list))
	}
	return notes, nil
}
