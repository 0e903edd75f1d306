package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/deadcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/doctorcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/heldcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/inspectcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/migratecmd"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/cmd/postroom/internal/relaycmd"
	"github.com/postroom/postroom/cmd/postroom/internal/republishcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/sagacmd"
	"github.com/postroom/postroom/cmd/postroom/internal/streamcmd"
	"github.com/postroom/postroom/cmd/postroom/internal/webhookcmd"
)

// Exit statuses of the program. Scripts read them, so do not change them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitTodo   = 3
)

const rootHelp = `postroom sets up and manages Postroom, which moves events from PostgreSQL through NATS
JetStream, without loss and without double effects.

Environment:
  POSTROOM_DATABASE_URL   the database, if --database-url is not given
  DATABASE_URL            the database, if POSTROOM_DATABASE_URL is not set either
  POSTROOM_SCHEMA         the schema, if --schema is not given
  POSTROOM_NATS_URL       the broker, if --nats-url is not given
  NATS_URL                the broker, if POSTROOM_NATS_URL is not set either
If a URL has a password, put the URL in the environment: every process of a machine
can read a command line.

Exit status:
  0   done
  1   the command failed; the error says what to do
  2   the command line is wrong; nothing was done
  3   the command worked, and found something that you have to do`

// run executes the command line and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := newRoot(getenv)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)

	var todo *exit.TodoError
	switch {
	case err == nil:
		return exitOK
	case exit.IsUsage(err):
		output.Report(stderr, "postroom: %v\nRun '%s --help' for usage.\n", err, ran.CommandPath())
		return exitUsage
	case errors.As(err, &todo):
		output.Report(stderr, "postroom: %v\n", err)
		return exitTodo
	default:
		output.Report(stderr, "postroom: %v\n", err)
		return exitFailed
	}
}

func newRoot(getenv func(string) string) *cobra.Command {
	version := newVersion()
	root := command.Group("postroom", "Events from PostgreSQL through NATS JetStream",
		migratecmd.New(getenv),
		streamcmd.New(getenv),
		relaycmd.New(getenv),
		inspectcmd.NewStatus(getenv),
		inspectcmd.NewHandlers(getenv),
		inspectcmd.NewKeys(getenv),
		inspectcmd.NewTables(getenv),
		inspectcmd.NewEvents(getenv),
		heldcmd.New(getenv),
		deadcmd.New(getenv),
		deadcmd.NewReplays(getenv),
		republishcmd.New(getenv),
		republishcmd.NewReconcile(getenv),
		sagacmd.New(getenv),
		webhookcmd.New(getenv),
		inspectcmd.NewAudit(getenv),
		doctorcmd.New(getenv),

		version,
	)
	command.AddAliases(root)
	root.Long = rootHelp
	root.Example = `  postroom migrate up --database-url postgres://localhost/shop
  postroom stream ensure SHOP --subjects 'order.>'
  postroom status
  postroom doctor
  postroom dead groups
  postroom completion bash > /etc/bash_completion.d/postroom`
	root.SilenceErrors, root.SilenceUsage = true, true // run reports errors
	root.SetFlagErrorFunc(flagFault)

	var asked bool
	root.Flags().BoolVar(&asked, "version", false, "print what 'postroom version' prints")
	sayWhatToDo := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if asked {
			return version.RunE(version, nil)
		}
		return sayWhatToDo(cmd, args)
	}
	return root
}

// flagFault returns the error for a flag that is wrong. If a word before the flag is no command, that
// is the cause: the flag is one of the command that was meant.
func flagFault(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		if unknown := cmd.ValidateArgs(cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	return argument.Fault(err)
}
