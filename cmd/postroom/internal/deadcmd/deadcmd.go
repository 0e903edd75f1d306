// Package deadcmd has the commands that show dead events and their causes, and the commands that
// replay, edit or discard dead events.
package deadcmd

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/deadletter"
)

const help = `Look at events whose attempts failed for good, find out what they have in common, and
replay, edit or discard them.

A replay runs only the event's own handler. It does not repeat effects that were
committed or calls that are done. Postroom records each action with the person and the
reason: 'postroom audit' lists them. The person is --actor, POSTROOM_ACTOR, or the user
and the machine.

At three in the morning:
  postroom dead groups                              causes, and how many events have each
  postroom dead show 4711                           one event, with everything about it
  postroom dead replay --cause CAUSE --dry-run      would they succeed now?
  postroom dead replay --cause CAUSE --canary 10    ten events first, then the rest`

// New returns the command dead, the group of the commands on dead events.
func New(getenv func(string) string) *cobra.Command {
	d := &commands{caller.New(getenv)}
	cmd := command.Group("dead", "Look at dead events; replay, edit, discard them",
		newGroups(d), newList(d), newShow(d),
		newReplay(d), newDiscard(d), newReopen(d), newEdit(d), newResolve(d),
		newExport(d), newPurge(d),
	)
	cmd.Long = help
	d.DB.AddSchemaFlag(cmd)
	return cmd
}

// commands has what all commands on dead events need.
type commands struct{ caller.Caller }

// with connects, and calls the function do with the store of dead events.
func (d *commands) with(ctx context.Context, do func(store *deadletter.Store) error) error {
	return d.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		store := deadletter.New(conn, deadletter.Config{Schema: name})
		if err := store.Check(ctx); err != nil {
			return err
		}
		return do(store)
	})
}

func (d *commands) audit() postroom.Audit {
	return postroom.Audit{Actor: d.Who(), Reason: d.Reason}
}
