// Package pausecmd has the commands that pause and resume handlers and relays.
package pausecmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/operator"
)

// oneHandler accepts the name of one handler.
func oneHandler(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" || len(args[0]) > 128 {
		return exit.Usagef("give the name of one handler; 'postroom handlers' lists them")
	}
	return nil
}

// NewHandlerPause returns the command that pauses a handler.
func NewHandlerPause(getenv func(string) string) *cobra.Command {
	return newPause(getenv, (*operator.Store).Pause, &cobra.Command{
		Use:   "pause HANDLER",
		Short: "Stop a handler from beginning events",
		Long: `Pause a handler. Within two seconds, its processes stop beginning new events. They
finish events that already run. The stream keeps new events; for an external handler,
the inbox stores them. The pause continues if processes restart. It ends after --for, or
with 'postroom handlers resume'.`,
		Example: "  postroom handlers pause billing.charge --reason 'maintenance at the vendor' --for 2h",
		Args:    oneHandler, ValidArgsFunction: cobra.NoFileCompletions,
	})
}

// NewHandlerResume returns the command that resumes a handler.
func NewHandlerResume(getenv func(string) string) *cobra.Command {
	return newResume(getenv, (*operator.Store).Resume, &cobra.Command{
		Use:     "resume HANDLER",
		Short:   "End the pause of a handler",
		Long:    "End the pause of a handler that 'postroom handlers pause' paused.\n\nExit status 3: the handler is not paused.",
		Example: "  postroom handlers resume billing.charge",
		Args:    oneHandler, ValidArgsFunction: cobra.NoFileCompletions,
	})
}

// NewRelayPause returns the command that pauses the relays.
func NewRelayPause(getenv func(string) string) *cobra.Command {
	pause := func(s *operator.Store, ctx context.Context, _ string, length time.Duration, by postroom.Audit) error {
		return s.PauseRelay(ctx, length, by)
	}
	return newPause(getenv, pause, &cobra.Command{
		Use:   "pause",
		Short: "Stop all relays of the database from publishing",
		Long: `Pause all relays of the database. Within two seconds they stop sending events. They wait
for the acknowledgements of events that they sent, record them and give the lease back.
Producers continue to write, and their events wait in the log. Scheduled events that
become due wait too. The pause continues if relays restart. It ends after --for, or with
'postroom relay resume'.`,
		Example: "  postroom relay pause --reason 'the stream is moved' --for 30m",
		Args:    command.NoArguments,
	})
}

// NewRelayResume returns the command that resumes the relays.
func NewRelayResume(getenv func(string) string) *cobra.Command {
	resume := func(s *operator.Store, ctx context.Context, _ string, by postroom.Audit) error {
		return s.ResumeRelay(ctx, by)
	}
	return newResume(getenv, resume, &cobra.Command{
		Use:     "resume",
		Short:   "End the pause of the relays",
		Long:    "End the pause of the relays that 'postroom relay pause' paused.\n\nExit status 3: the relays are not paused.",
		Example: "  postroom relay resume",
		Args:    command.NoArguments,
	})
}

// newPause adds flags and the function RunE to cmd. The command pauses the handler that its
// argument names. If the command takes no argument, it pauses the relays.
func newPause(getenv func(string) string, pause func(s *operator.Store, ctx context.Context, handler string, length time.Duration, by postroom.Audit) error, cmd *cobra.Command) *cobra.Command {
	o, length := caller.New(getenv), time.Duration(0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.Reason == "":
			return exit.Usagef("give a --reason: the audit keeps it")
		case len(args) > 0 && args[0] == operator.Outgoing:
			return exit.Usagef("%s means the relay: use 'postroom relay pause'", args[0])
		}
		return change(&o, cmd, args, "paused", func(s *operator.Store, handler string, by postroom.Audit) error {
			return pause(s, cmd.Context(), handler, length, by)
		})
	}
	cmd.Flags().DurationVar(&length, "for", 0, "length of the pause, such as 2h (default until it is resumed)")
	command.NoFileCompletion(cmd, "for")
	argument.AtLeast(cmd, "for", &length, time.Second)
	addControlFlags(&o, cmd)
	return cmd
}

// newResume adds flags and the function RunE to cmd. The command ends the pause of a handler or of
// the relays.
func newResume(getenv func(string) string, resume func(s *operator.Store, ctx context.Context, handler string, by postroom.Audit) error, cmd *cobra.Command) *cobra.Command {
	o := caller.New(getenv)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return change(&o, cmd, args, "resumed", func(s *operator.Store, handler string, by postroom.Audit) error {
			return resume(s, cmd.Context(), handler, by)
		})
	}
	addControlFlags(&o, cmd)
	return cmd
}

func addControlFlags(o *caller.Caller, cmd *cobra.Command) {
	o.AddAuditFlags(cmd)
	o.AddCommonFlags(cmd)
}

// change pauses or resumes the handler in args, and prints that it did. If args is empty, it pauses
// or resumes the relays.
func change(o *caller.Caller, cmd *cobra.Command, args []string, done string, do func(s *operator.Store, handler string, by postroom.Audit) error) error {
	what := "the relay"
	if len(args) > 0 {
		what = args[0]
	}
	return o.DB.With(cmd.Context(), func(conn *pgx.Conn, name string) error {
		store := operator.New(conn, operator.Config{Schema: name})
		err := store.Check(cmd.Context())
		if err == nil {
			err = do(store, what, postroom.Audit{Actor: o.Who(), Reason: o.Reason})
		}
		switch {
		case errors.Is(err, operator.ErrNotPaused):
			return exit.Todof("%s is not paused", what)
		case err != nil:
			return err
		}
		said := answer{State: done}
		var known []string
		if len(args) > 0 {
			if known, err = store.Handlers(cmd.Context()); err != nil {
				return err
			}
			said.Handler, said.Known = what, new(slices.Contains(known, what))
		}
		if o.JSON {
			return output.JSON(cmd.OutOrStdout(), said)
		}
		if err := output.Line(cmd.OutOrStdout(), "%s %s", done, what); err != nil || said.Known == nil || *said.Known {
			return err
		}
		return noteUnknown(cmd, known, what)
	})
}

// An answer is what a command did, for scripts.
type answer struct {
	Handler string `json:"handler,omitempty"` // empty for the relays
	State   string `json:"state"`
	Known   *bool  `json:"known,omitempty"` // a process has run the handler
}

// noteUnknown prints a note on a handler that no process has run: the name may be misspelt. That is
// not an error, because an operator may pause a handler before its first process starts.
func noteUnknown(cmd *cobra.Command, known []string, handler string) error {
	names := "no handler is known"
	if len(known) > 0 {
		more := ""
		if most := 10; len(known) > most {
			known, more = known[:most], ", …"
		}
		names = "known handlers: " + output.Flat(strings.Join(known, ", ")) + more
	}
	return output.Line(cmd.OutOrStdout(), "note: no process has run a handler %s yet; is the name right? (%s)", handler, names)
}
