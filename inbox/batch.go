package inbox

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/batch"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// batchLoop implements batch.Loop for a loop.
type batchLoop struct{ *loop }

func batchesOf(c *loop) batch.Batches {
	return batch.Batches{Loop: batchLoop{c}, Alone: &c.inbox.alone}
}

func (c batchLoop) IsStraight(d *delivery.Delivery) bool                 { return c.isStraight(d) }
func (c batchLoop) IsOpen() bool                                         { return c.gate.IsOpen() }
func (c batchLoop) Deliver(life delivery.Lifetime, d *delivery.Delivery) { c.deliver(life, d) }
func (c batchLoop) Wait(d *delivery.Delivery)                            { c.lanes.Put(d) }

func (c batchLoop) Begin(ctx context.Context, all []*delivery.Delivery) (batch.Tx, map[string]bool, error) {
	tx, fresh, err := c.ledger.DecideBatch(ctx, all)
	if tx == nil {
		return nil, nil, err
	}
	for _, d := range all {
		d.Start = time.Now()
	}
	return batchTx{tx, c.loop}, fresh, err
}

func (c batchLoop) Failed(t delivery.Task, f delivery.Failure) delivery.Holding {
	return c.failed(t, f)
}

func (c batchLoop) Finish(ctx context.Context, d *delivery.Delivery, r delivery.Result) {
	if r.Outcome == delivery.Done {
		c.gate.Succeeded(d.Key)
	}
	c.finish(ctx, d, r)
}

func (c batchLoop) Outage(life delivery.Lifetime, err error, failures int) {
	c.inbox.outage(life, c.log, err, failures)
}

// batchTx implements batch.Tx for a transaction of package ledger.
type batchTx struct {
	*ledger.Tx

	c *loop
}

func (tx batchTx) Name() string         { return tx.ID }
func (tx batchTx) IsClosed() bool       { return tx.Tx.Tx.Conn().IsClosed() }
func (tx batchTx) Lost(err error) error { return ledger.Lost(tx.Tx, err) }

func (tx batchTx) Call(ctx context.Context, t delivery.Task) error { return tx.c.call(ctx, tx.Tx, t) }

func (tx batchTx) Hold(ctx context.Context, failed map[*delivery.Delivery]delivery.Holding) error {
	events := make([]ledger.Owed, 0, len(failed))
	for d, h := range failed {
		//guard:a-death-in-a-batch-is-told false
		if tx.c.inbox.tells(h) {
			return batch.ErrAlone
		}
		events = append(events, tx.c.owe(d, h))
	}
	return tx.c.ledger.HoldIn(ctx, tx.Tx, events)
}

func (tx batchTx) End(ctx context.Context, err error) error { return tx.c.ledger.End(ctx, tx.Tx, err) }
