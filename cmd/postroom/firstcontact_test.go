package main

import (
	"fmt"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// If something of the set-up is missing, each command says what to do next.
func TestCommandsSayWhatToDoFirst(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, role := devtest.RolePool(t, pool)
	c := pool.Config().ConnConfig
	weak := environment{
		"POSTROOM_DATABASE_URL": fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", role, c.Database, c.Host, c.Port),
		"POSTROOM_NATS_URL":     devtest.NATSURL(t),
	}
	postroom(t, weak, "stream", "check").want(t, exitFailed).says(t, "42501", "SELECT postroom.grant_operator('"+role+"')")

	none := inDatabase(pool)
	none["POSTROOM_NATS_URL"] = devtest.PlainNATS(t, "jetstream: disabled").ConnectedUrl()
	postroom(t, none, "status").want(t, exitTodo).says(t, "the broker could not be asked", "start nats-server with -js")

	empty := inDatabase(pool)
	empty["POSTROOM_NATS_URL"] = devtest.NATSURL(t)
	postroom(t, empty, "status").want(t, exitOK).says(t, "all is well")
	postroom(t, empty, "stream", "check").want(t, exitOK).says(t, "nothing was compared", "make a stream with 'postroom stream ensure'")
}

// If a role lacks rights, a command says how to grant the rights that it needs and no others: the
// rights of an operator, or for migrations those of the owner.
func TestAdviceOnRights(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, role := devtest.RolePool(t, pool)
	c := pool.Config().ConnConfig
	weak := environment{
		"POSTROOM_DATABASE_URL": fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", role, c.Database, c.Host, c.Port),
		"POSTROOM_NATS_URL":     devtest.NATSURL(t),
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	operators := [][]string{{"republish", "list"}, {"republish", "--all", "--dry-run"}, {"status"}, {"dead", "list"}}
	wantAdvice := func() {
		t.Helper()
		for _, args := range append(operators, []string{"reconcile"}) {
			postroom(t, weak, args...).want(t, exitFailed).says(t, "42501", "SELECT postroom.grant_operator('"+role+"')")
		}
	}
	postroom(t, weak, "migrate", "status").want(t, exitFailed).says(t, "42501", "run it as the owner of the schema postroom")
	postroom(t, weak, "migrate", "up").want(t, exitFailed).says(t, "42501", "migrate as the owner of the schema postroom")
	wantAdvice()
	exec("GRANT USAGE ON SCHEMA postroom TO " + role + "; GRANT SELECT ON postroom.migration TO " + role)
	wantAdvice() // now it can read the version, and nothing else
	exec("SELECT postroom.grant_operator('" + role + "')")
	for _, args := range append(operators, []string{"migrate", "status"}) {
		postroom(t, weak, args...).want(t, exitOK)
	}
	postroom(t, weak, "reconcile").want(t, exitFailed).says(t, "no relay of this version has published anything yet")
}
