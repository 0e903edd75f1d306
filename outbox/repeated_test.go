package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/postroomtest"
)

// A producer repeats its transaction because it got no answer, perhaps to the commit. Each event is
// in the log once, because the producer gave it an id, and a cancelled event is cancelled once.
func TestTransactionsThatAreRepeated(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	postroomtest.Crash(t, postroomtest.Scenario{
		Run: func(ctx context.Context, pool *pgxpool.Pool) error {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return shop.Write(ctx, tx, named("a"), postroom.Event{ID: "b", Type: "order.late", NotBefore: later, Data: []byte("{}")})
			})
			if err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := shop.Write(ctx, tx, named("c")); err != nil {
					return err
				}
				cancelled, err := shop.Cancel(ctx, tx, "b")
				if err == nil && !cancelled {
					err = errors.New("not cancelled")
				}
				return err
			})
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var got string
		err := pool.QueryRow(ctx, `SELECT string_agg(event_id, ' ' ORDER BY seq) || ', ' || (SELECT count(*) FROM postroom.archive) || ' archived, '
			|| (SELECT count(*) FROM postroom.audit) || ' audited' FROM postroom.outbox`).Scan(&got)
		if want := "a b c, 1 archived, 1 audited"; err == nil && got != want {
			err = fmt.Errorf("%s, want %s", got, want)
		}
		return err
	})
}
