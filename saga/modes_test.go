package saga_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

// A saga and a store work with each way in which pgx runs statements, for instance behind a pooler.
func TestModesOfStatements(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		cfg := w.pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		d := travel()
		d.Name = "travel." + strings.ReplaceAll(mode.String(), " ", "_")
		v := &rig{T: t, pool: pool, out: w.out, seen: w.seen}
		v.use(d)
		v.use(d) // another process
		v.begin("t1 " + d.Name)
		v.give(v.reply(v.wants("seat.book", d.Name+".deadline")[0], "seat.booked", nil))
		v.wants("payment.charge")
		if st, err := v.saga.Status(t.Context(), "t1 "+d.Name); err != nil || st.Revision != 2 {
			t.Errorf("%s: status %+v, %v", mode, st, err)
		}
		store := saga.NewStore(pool, saga.StoreConfig{})
		if all, _, err := store.List(t.Context(), saga.Filter{Saga: d.Name, Step: "payment", States: []saga.State{saga.Running}}, postroom.Page{}); err != nil || len(all) != 1 {
			t.Errorf("%s: list %v, %v", mode, all, err)
		}
		if _, err := store.Decide(t.Context(), saga.Decision{Saga: d.Name, Key: "t1 " + d.Name, Revision: 2, Choice: saga.MarkDone, Data: []byte("{}")}, by); err != nil {
			t.Errorf("%s: decide: %v", mode, err)
		}
		v.give(v.wants(d.Name + ".decision")[0])
		v.wants("travel.booked")
		w.seen = v.seen
	}
}
