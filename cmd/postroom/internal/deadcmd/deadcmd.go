// Package deadcmd has the commands on dead events: what killed them, and replay, edit and discard.
package deadcmd

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/operator"
	"github.com/postroom/postroom/deadletter"
)

const help = `Look at events whose attempts failed for good, find out what they have in common,
and replay, edit or discard them.

A replay runs the event's own handler and no other, and what that did before it
does not do again. Each action is noted with who did it and why:
'postroom audit' lists it. Who is taken from --actor, POSTROOM_ACTOR, or the user
and machine.

At three in the morning:
  postroom dead groups                              what killed them, and how many
  postroom dead show 4711                           one of them, whole
  postroom dead replay --cause CAUSE --dry-run      would it work now?
  postroom dead replay --cause CAUSE --canary 10    ten first, then the rest`

// New returns the group of these commands.
func New(getenv func(string) string) *cobra.Command {
	d := &commands{operator.New(getenv)}
	cmd := command.Group("dead", "Look at dead events; replay, edit, discard them",
		newGroups(d), newList(d), newShow(d),
		newReplay(d), newReplays(d), newResume(d), newCancel(d),
		newDiscard(d), newReopen(d), newEdit(d), newResolve(d),
		newExport(d), newPurge(d),
	)
	cmd.Long = help
	d.DB.AddSchemaFlag(cmd)
	return cmd
}

// commands has what the commands on dead events have in common.
type commands struct{ operator.Operator }

// with connects and calls do with the events.
func (d *commands) with(ctx context.Context, do func(store *deadletter.Store) error) error {
	return d.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		store := deadletter.New(conn, deadletter.Config{Schema: name})
		if err := store.Check(ctx); err != nil {
			return err
		}
		return do(store)
	})
}

func (d *commands) audit() deadletter.Audit {
	return deadletter.Audit{Actor: d.Who(), Reason: d.Reason}
}
