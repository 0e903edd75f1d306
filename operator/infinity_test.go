package operator_test

import (
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

// What an operator may write with SQL is a pause for the relays, for handlers and for the tools, or the
// database refuses it.
func TestAPauseUntilInfinity(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	ann, role := devtest.RolePool(t, pool)
	if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_operator('"+role+"')"); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Exec(t.Context(), "INSERT INTO postroom.pause (handler, until, actor, reason) VALUES ('outbox', 'infinity', 'ann', 'a freeze'), ('mail', 'infinity', 'ann', 'a freeze')"); err != nil {
		return // refused
	}
	if _, paused, err := pglog.New(pool).Paused(t.Context()); err != nil || !paused {
		t.Errorf("the relay is paused: %t, %v", paused, err)
	}
	if all, err := operator.New(pool, operator.Config{}).Pauses(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("the list has %v, %v", all, err)
	}
	if _, err := inspect.New(pool, nil, inspect.Config{}).Status(t.Context()); err != nil {
		t.Errorf("the status: %v", err)
	}
}

func TestARepublishUntilInfinity(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	ann, role := devtest.RolePool(t, pool)
	if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_operator('"+role+"')"); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Exec(t.Context(), "INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed, until) VALUES ('ann', 'range', 1, 1, 1, 1, 'x', 0, 'infinity')"); err != nil {
		return // refused
	}
	if all, _, err := operator.New(pool, operator.Config{}).Republishes(t.Context(), postroom.Page{Limit: 10}); err != nil || len(all) != 1 {
		t.Errorf("the list has %v, %v", all, err)
	}
}
