package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// endpointNotes returns a text about the endpoints that fail, if there are any, and a text about the
// disabled endpoints, if there are any. The owners of these endpoints must repair them.
func endpointNotes(ctx context.Context, tx pgx.Tx, sql *statements) (notes []string, err error) {
	var disabled, failing int64
	var first string
	var since *time.Time
	if err := tx.QueryRow(ctx, sql.FailingEndpoints).Scan(&disabled, &failing, &first, &since); err != nil {
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
