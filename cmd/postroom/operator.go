package main

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/actor"
	"github.com/postroom/postroom/cmd/postroom/internal/hooks"
	"github.com/postroom/postroom/cmd/postroom/internal/sagacmd"
)

// operator is what commands share that change something in the database.
type operator struct {
	db            database
	actor, reason string
	asJSON, yes   bool
}

func newOperator(getenv func(string) string) operator { return operator{db: database{getenv: getenv}} }

// addAuditFlags adds the flags that say who does something, and why.
func (o *operator) addAuditFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.actor, "actor", "", "who does it (default the user and the machine; env POSTROOM_ACTOR)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why; the audit keeps it")
	noFileCompletion(cmd, "actor", "reason")
}

// addYes adds the flag that stands for a yes.
func (o *operator) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
}

// who is the person that the audit names.
func (o *operator) who() string { return actor.Name(o.actor, o.db.getenv("POSTROOM_ACTOR")) }

// prepare adds the common flags to a command, and returns what it needs of the program.
func prepare(getenv func(string) string) func(cmd *cobra.Command) hooks.Tool {
	return func(cmd *cobra.Command) hooks.Tool {
		o := newOperator(getenv)
		o.db.addSchemaFlag(cmd)
		o.db.addURLFlag(cmd)
		addJSON(cmd, &o.asJSON)
		return hooks.Tool{With: o.db.with, By: func() (string, string) { return o.who(), o.reason }, Audit: o.addAuditFlags, JSON: &o.asJSON, Usage: usagef}
	}
}

func newWebhook(getenv func(string) string) *cobra.Command {
	return group("webhook", "Endpoints to which webhooks are sent", hooks.Commands(prepare(getenv))...)
}

func newSaga(getenv func(string) string) *cobra.Command {
	common := prepare(getenv)
	cmd := group("saga", "Look at sagas, and decide about those that cannot go on",
		sagacmd.Commands(func(cmd *cobra.Command) sagacmd.Tool { return sagacmd.Tool(common(cmd)) })...)
	cmd.Long = sagacmd.Help
	return cmd
}
