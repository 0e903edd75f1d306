package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/hooksend"
)

// Exit statuses. They are part of the interface: scripts read them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitTodo   = 3
)

const rootHelp = `postroom sets up and looks after Postroom: events from PostgreSQL through
NATS JetStream, without loss and without double effects.

Environment:
  POSTROOM_DATABASE_URL   the database, where --database-url is not given;
                          falls back to DATABASE_URL
  POSTROOM_SCHEMA         the schema, where --schema is not given
  POSTROOM_NATS_URL       the broker, where --nats-url is not given;
                          falls back to NATS_URL
A URL with a password belongs in the environment: every process of a machine
can read a command line.

Exit status:
  0   done
  1   it failed; the error says what to do
  2   the command line is wrong; nothing was done
  3   it worked, and found something that you have to do`

// run runs the command line and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := newRoot(getenv)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)

	var usage *usageError
	var todo *todoError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		report(stderr, "postroom: %v\nRun '%s --help' for usage.\n", err, ran.CommandPath())
		return exitUsage
	case errors.As(err, &todo):
		report(stderr, "postroom: %v\n", err)
		return exitTodo
	default:
		report(stderr, "postroom: %v\n", err)
		return exitFailed
	}
}

// report writes to standard error. It ignores a fault of writing, which cannot be reported.
func report(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format, args...)
}

func newRoot(getenv func(string) string) *cobra.Command {
	root := group("postroom", "Events from PostgreSQL through NATS JetStream",
		newMigrate(getenv),
		newStream(getenv),
		newRelay(getenv),
		newStatus(getenv),
		newHandlers(getenv),
		newKeys(getenv),
		newTables(getenv),
		newEvents(getenv),
		newHeld(getenv),
		newDead(getenv),
		newRepublish(getenv),
		newReconcile(getenv),
		newSaga(getenv),
		hooksend.AddTo(newWebhook(getenv), getenv, usagef),
		newAudit(getenv),
		newDoctor(getenv),

		newVersion(),
	)
	root.Long = rootHelp
	root.Example = `  postroom migrate up --database-url postgres://localhost/shop
  postroom stream ensure SHOP --subjects 'order.>'
  postroom status
  postroom doctor
  postroom dead groups
  postroom completion bash > /etc/bash_completion.d/postroom`
	root.SilenceErrors, root.SilenceUsage = true, true // run reports them
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

// group returns a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("say what to do: %s", strings.Join(childNames(cmd), ", "))
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func childNames(cmd *cobra.Command) []string {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return names
}

// word matches an argument that an error may contain. Any other argument may be a misplaced
// URL with a password.
var word = regexp.MustCompile(`^[a-z][a-z-]{0,20}$`)

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !word.MatchString(args[0]) {
		return usagef("no such command; use one of: %s", strings.Join(childNames(cmd), ", "))
	}
	cmd.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets elsewhere
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usagef("unknown command %q; say what to do: %s", args[0], strings.Join(childNames(cmd), ", "))
}

// noArguments is cobra.NoArgs with an error that does not contain the argument.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("'%s' takes flags only, no arguments", cmd.CommandPath())
	}
	return nil
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// todoError says that a command did its work and found something to do.
type todoError struct{ text string }

func (e *todoError) Error() string { return e.text }

func todof(format string, args ...any) error { return &todoError{fmt.Sprintf(format, args...)} }
