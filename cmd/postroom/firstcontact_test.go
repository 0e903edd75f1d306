package main

import (
	"fmt"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// What is not there yet is told of with what to do next.
func TestFirstContact(t *testing.T) {
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
	postroom(t, empty, "stream", "check").want(t, exitOK).says(t, "nothing was compared", "make one with 'postroom stream ensure'")
}
