//go:build linux || darwin

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/checker"
)

// kept are the tables that tell what became of an event, by database. Payloads stay
// out: data is the largest part of an event, and has the canary in it.
var kept = map[string]string{
	"shop-log":     "SELECT seq, xid, created_at, event_id, key FROM postroom.outbox ORDER BY seq",
	"shop-held":    "SELECT id, pos, event_id, key, class, next_at, dead_at, held_at, failures FROM postroom.held ORDER BY id",
	"shop-audit":   "SELECT * FROM postroom.audit ORDER BY id",
	"books-effect": "SELECT * FROM effect ORDER BY serial",
	"books-inbox":  "SELECT handler, dedupe_key, at, xmin FROM postroom.inbox ORDER BY handler, at",
	"books-held": "SELECT id, handler, event_id, event_key, key, pos, class, next_at, dead_at, held_at, attempts, solitary, epoch, claimed_by, job, failures" +
		" FROM postroom.held ORDER BY id",
	"books-archive":      "SELECT id, handler, event_id, event_key, pos, class, dead_at, held_at, discarded_at, attempts, failures FROM postroom.archive ORDER BY id",
	"books-audit":        "SELECT * FROM postroom.audit ORDER BY id",
	"books-job":          "SELECT * FROM postroom.job ORDER BY id",
	"books-job_item":     "SELECT * FROM postroom.job_item ORDER BY job, n",
	"books-subscription": "SELECT * FROM postroom.subscription ORDER BY handler",
}

// keepTables copies them to the directory of --keep, beside history and logs.
func (s *stage) keepTables(ctx context.Context, streams map[string][]checker.Message) error {
	if s.opt.keep == "" {
		return nil
	}
	var errs []error
	for name, sql := range kept {
		d := &s.db.shop
		if name[:5] == "books" {
			d = &s.db.books
		}
		errs = append(errs, s.keepTable(ctx, d, name, sql))
	}
	for server, messages := range streams {
		errs = append(errs, s.keepStream(server, messages))
	}
	return errors.Join(errs...)
}

func (s *stage) keepTable(ctx context.Context, d *database, name, sql string) (err error) {
	file, err := os.Create(filepath.Join(s.dir, name+".csv"))
	if err != nil {
		return fmt.Errorf("keep table: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	defer conn.Release()
	var tag pgconn.CommandTag
	tag, err = conn.Conn().PgConn().CopyTo(ctx, file, "COPY ("+sql+") TO STDOUT WITH (FORMAT csv, HEADER)")
	if err != nil {
		return fmt.Errorf("keep %s after %d rows: %w", name, tag.RowsAffected(), err)
	}
	return nil
}

func (s *stage) keepStream(server string, messages []checker.Message) (err error) {
	file, err := os.Create(filepath.Join(s.dir, "stream-"+server+".csv"))
	if err != nil {
		return fmt.Errorf("keep stream: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	rows := [][]string{{"seq", "event", "key", "n", "rewound"}}
	for _, m := range slices.SortedFunc(slices.Values(messages), func(a, b checker.Message) int { return cmp.Compare(a.Seq, b.Seq) }) {
		rows = append(rows, []string{strconv.FormatUint(m.Seq, 10), m.ID, strconv.Itoa(m.Key), strconv.Itoa(m.N), strconv.FormatBool(m.Rewound)})
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("keep stream: %w", err)
	}
	return nil
}
