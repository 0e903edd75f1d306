package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// judgePatience bounds the gathering of evidence and the proof.
const judgePatience = 5 * time.Minute

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
)

// querier is what the proof reads from: the auditor's pool, or a test's transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// check is one statement of the proof.
type check struct {
	N          int
	Violation  string // what one is: lost, ghost, double or wrong
	Name       string
	Violations int64
}

// findings are what measure.sql returns.
type findings struct {
	Charges, Refunds, Entries, Events, Calls, Effects, Cents int64
}

// gather brings what clients, provider and broker remember into the database.
func (d *demo) gather(ctx context.Context) error {
	ids, err := d.readStream(ctx)
	if err != nil {
		return err
	}
	var told, published [][]any
	for _, id := range ids {
		published = append(published, []any{id})
	}
	d.clients.mu.Lock()
	for _, t := range d.clients.told {
		told = append(told, []any{t.merchant, t.kind, t.key, t.status, t.body})
	}
	d.clients.mu.Unlock()
	if _, err := d.pool.Exec(ctx, "TRUNCATE told, provided, published"); err != nil {
		return fmt.Errorf("empty the tables of evidence: %w", err)
	}
	for _, table := range []struct {
		name    string
		columns []string
		rows    [][]any
	}{
		{"told", []string{"merchant", "kind", "key", "status", "body"}, told},
		{"provided", []string{"key", "kind", "ref", "amount", "calls", "effects"}, d.provider.books()},
		{"published", []string{"event_id"}, published},
	} {
		if _, err := d.pool.CopyFrom(ctx, pgx.Identifier{table.name}, table.columns, pgx.CopyFromRows(table.rows)); err != nil {
			return fmt.Errorf("store evidence in %s: %w", table.name, err)
		}
	}
	return nil
}

// readStream returns the ids of all events that the stream has now.
func (d *demo) readStream(ctx context.Context) (ids []string, err error) {
	js, err := jetstream.New(d.nc)
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	state := s.CachedInfo().State
	for seq := state.FirstSeq; state.Msgs > 0 && seq <= state.LastSeq; seq++ {
		msg, err := s.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("read message %d: %w", seq, err)
		}
		ids = append(ids, msg.Header.Get("ce-id"))
	}
	return ids, nil
}

func prove(ctx context.Context, db querier) ([]check, error) {
	rows, _ := db.Query(ctx, proveSQL) // CollectRows reports the error
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[check])
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return checks, nil
}

func measure(ctx context.Context, db querier) (findings, error) {
	rows, _ := db.Query(ctx, measureSQL) // CollectOneRow reports the error
	found, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[findings])
	if err != nil {
		return found, fmt.Errorf("measure: %w", err)
	}
	return found, nil
}

// judge looks at what the run left behind; running is the error with which it ended.
func (d *demo) judge(running error) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), judgePatience)
	defer cancel()
	if err := d.gather(ctx); err != nil {
		return nil, errors.Join(running, err)
	}
	checks, err := prove(ctx, d.pool)
	if err != nil {
		return nil, errors.Join(running, err)
	}
	found, err := measure(ctx, d.pool)
	if err != nil {
		return nil, errors.Join(running, err)
	}
	c := d.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make(map[told]bool)
	for _, t := range c.told {
		keys[told{merchant: t.merchant, kind: t.kind, key: t.key}] = true
	}
	return &result{
		findings: found, checks: checks, running: running, crashes: int64(d.crashes), keys: int64(len(keys)),
		requests: c.requests, replayed: c.replayed, inProgress: c.inProgress, mismatches: c.mismatches,
	}, nil
}
