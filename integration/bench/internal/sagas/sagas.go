// Package sagas has the work that the benchmark of sagas measures: a step with package saga, and
// the same step written by hand.
package sagas

import (
	"context"
	_ "embed" // for the SQL statements
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
	"github.com/postroom/postroom/schema"
)

// steps is the number of steps of a process. After the last step, a client begins another process
// in its place.
const steps = 20

// A state is the data of a process.
type state struct {
	ID   string          `json:"id"`
	Body json.RawMessage `json:"body"`
	Seen int             `json:"seen"`
}

// A process is one run of a saga, or such work by hand. One client at a time makes a step of it.
// The functions begin and next return the command that they wrote, if any: otherwise it has no ID.
type process struct {
	begin func(ctx context.Context, tx pgx.Tx, s state) (cmd postroom.Event, err error)
	next  func(ctx context.Context, tx pgx.Tx, reply postroom.Event) (cmd postroom.Event, err error)
	reply postroom.Event // the input of the next step; if it has no ID, the next step begins a process
}

// Steps makes steps of processes. Each step is of the process that has waited longest, and is one
// transaction. It locks and changes the row of its process, and writes the next command, if any.
type Steps struct {
	pool    *pgxpool.Pool
	body    json.RawMessage
	serial  atomic.Int64
	waiting chan *process
}

// Do makes one step of one process, or begins a process.
func (st *Steps) Do(ctx context.Context) error {
	p := <-st.waiting
	var cmd postroom.Event
	err := pgx.BeginFunc(ctx, st.pool, func(tx pgx.Tx) (err error) {
		if p.reply.ID == "" {
			cmd, err = p.begin(ctx, tx, state{ID: strconv.FormatInt(st.serial.Add(1), 10), Body: st.body})
		} else {
			cmd, err = p.next(ctx, tx, p.reply)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.reply = postroom.Event{}
	if cmd.ID != "" {
		p.reply = cmd.Follow("bench.done", nil)
	}
	st.waiting <- p
	return nil
}

// A recorder is a transaction that records the command that a saga writes in it. A transaction writes
// at most one command.
type recorder struct {
	pgx.Tx
	cmd postroom.Event
}

func (n *recorder) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	for _, q := range batch.QueuedQueries {
		if len(q.Arguments) == 15 && q.Arguments[3] == command { // the insert of an outbox: source, id, digest, type, subject, key …
			n.cmd = postroom.Event{ID: q.Arguments[1].(string), Type: command}
		}
	}
	return n.Tx.SendBatch(ctx, batch)
}

// command is the type of the commands.
const command = "bench.do"

func outboxIn(schemaName string) *outbox.Outbox {
	return outbox.New(outbox.Config{Source: "/bench", Schema: schemaName})
}

// WithSaga returns steps that use package saga.
func WithSaga(ctx context.Context, pool *pgxpool.Pool, schemaName string, body []byte, processes int) (*Steps, error) {
	d := saga.Definition[state]{Name: "bench", Version: 1}
	for i := range steps {
		d.Steps = append(d.Steps, saga.Step[state]{
			Name: fmt.Sprint("step", i),
			Do:   saga.Send(command, func(s *state) state { return *s }), Done: saga.On("bench.done", func(s *state, _ struct{}) { s.Seen++ }),
		})
	}
	out := outboxIn(schemaName)
	g := saga.New(pool, out, d)
	if err := g.Check(ctx); err != nil {
		return nil, err
	}
	st := &Steps{pool: pool, body: body, waiting: make(chan *process, processes)}
	for range processes {
		st.waiting <- &process{
			begin: func(ctx context.Context, tx pgx.Tx, s state) (postroom.Event, error) {
				wrote := &recorder{Tx: tx}
				err := g.Begin(ctx, wrote, s.ID, s)
				wrote.cmd.Key = s.ID
				return wrote.cmd, err
			},
			next: func(ctx context.Context, tx pgx.Tx, reply postroom.Event) (postroom.Event, error) {
				wrote := &recorder{Tx: tx}
				err := g.Handle(ctx, wrote, reply)
				wrote.cmd.Key = reply.Key
				return wrote.cmd, err
			},
		}
	}
	return st, nil
}

var (
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/update.sql
	updateSQL string
)

// ByHand returns steps that work as a service would without package saga. A row has the step and
// the state, and each statement is a round trip.
func ByHand(pool *pgxpool.Pool, schemaName string, body []byte, processes int) *Steps {
	begin, lock, update := schema.In(schemaName, beginSQL), schema.In(schemaName, lockSQL), schema.In(schemaName, updateSQL)
	out := outboxIn(schemaName)
	first := func(ctx context.Context, tx pgx.Tx, s state) (postroom.Event, error) {
		cmd := postroom.NewEvent(command, s)
		cmd.Key = s.ID
		if _, err := tx.Exec(ctx, begin, s.ID, s, cmd.ID); err != nil {
			return cmd, err
		}
		return cmd, out.Write(ctx, tx, cmd)
	}
	next := func(ctx context.Context, tx pgx.Tx, reply postroom.Event) (cmd postroom.Event, err error) {
		var step int
		var s state
		var pending string
		if err := tx.QueryRow(ctx, lock, reply.Key).Scan(&step, &s, &pending); err != nil || pending != reply.CausationID {
			return cmd, err
		}
		s.Seen++
		if step+1 < steps {
			cmd = reply.Follow(command, s)
		}
		if _, err := tx.Exec(ctx, update, reply.Key, step+1, s, cmd.ID); err != nil || cmd.ID == "" {
			return cmd, err
		}
		return cmd, out.Write(ctx, tx, cmd)
	}
	st := &Steps{pool: pool, body: body, waiting: make(chan *process, processes)}
	for range processes {
		st.waiting <- &process{begin: first, next: next}
	}
	return st
}
