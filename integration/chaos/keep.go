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

	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
)

// These tables show what happened to each event: keptOfShop in the producers' database, and
// keptOfBooks in the handlers' database. The statements leave out payloads, because a payload is
// the largest part of an event.
var (
	keptOfShop = map[string]string{
		"log":   "SELECT seq, xid, created_at, event_id, key FROM postroom.outbox ORDER BY seq",
		"held":  "SELECT id, pos, event_id, chain, class, next_at, dead_at, held_at, failures FROM postroom.held ORDER BY id",
		"audit": "SELECT * FROM postroom.audit ORDER BY id",
	}
	keptOfBooks = map[string]string{
		"effect": "SELECT * FROM effect ORDER BY serial",
		"inbox":  "SELECT handler, dedupe_key, at, xmin FROM postroom.inbox ORDER BY handler, at",
		"held": "SELECT id, handler, event_id, key, chain, pos, class, next_at, dead_at, held_at, attempts, solitary, epoch, claimed_by, replay, failures" +
			" FROM postroom.held ORDER BY id",
		"archive":      "SELECT id, handler, event_id, key, pos, class, dead_at, held_at, discarded_at, attempts, failures FROM postroom.archive ORDER BY id",
		"audit":        "SELECT * FROM postroom.audit ORDER BY id",
		"replay":       "SELECT * FROM postroom.replay ORDER BY id",
		"replay_event": "SELECT * FROM postroom.replay_event ORDER BY replay, n",
		"subscription": "SELECT * FROM postroom.subscription ORDER BY handler",
	}
)

// keepTables copies the tables of keptOfShop and keptOfBooks, and the messages of the streams, to
// the directory of --keep. The history and the logs are there too.
func (s observer) keepTables(ctx context.Context, streams map[string][]checker.Message) error {
	if s.opt.keep == "" {
		return nil
	}
	var errs []error
	for table, sql := range keptOfShop {
		errs = append(errs, s.keepTable(ctx, s.db.shop, "shop-"+table, sql))
	}
	for table, sql := range keptOfBooks {
		errs = append(errs, s.keepTable(ctx, s.db.books, "books-"+table, sql))
	}
	for server, messages := range streams {
		errs = append(errs, s.keepStream(server, messages))
	}
	return errors.Join(errs...)
}

func (s observer) keepTable(ctx context.Context, d *rig.Database, name, sql string) (err error) {
	file, err := os.Create(filepath.Join(s.dir, name+".csv"))
	if err != nil {
		return fmt.Errorf("keep table: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().CopyTo(ctx, file, "COPY ("+sql+") TO STDOUT WITH (FORMAT csv, HEADER)"); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

func (s observer) keepStream(server string, messages []checker.Message) (err error) {
	file, err := os.Create(filepath.Join(s.dir, "stream-"+server+".csv"))
	if err != nil {
		return fmt.Errorf("keep stream: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	rows := [][]string{{"seq", "event", "key", "n", "republished"}}
	for _, m := range slices.SortedFunc(slices.Values(messages), func(a, b checker.Message) int { return cmp.Compare(a.Seq, b.Seq) }) {
		rows = append(rows, []string{strconv.FormatUint(m.Seq, 10), m.ID, strconv.Itoa(m.Key), strconv.Itoa(m.N), strconv.FormatBool(m.Republished)})
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("keep stream: %w", err)
	}
	return nil
}
