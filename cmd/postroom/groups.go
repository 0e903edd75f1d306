package main

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/hooks"
	"github.com/postroom/postroom/cmd/postroom/internal/operator"
	"github.com/postroom/postroom/cmd/postroom/internal/sagacmd"
)

// prepare adds the common flags to a command, and returns what it needs of the program.
func prepare(getenv func(string) string) func(cmd *cobra.Command) hooks.Tool {
	return func(cmd *cobra.Command) hooks.Tool {
		o := operator.New(getenv)
		o.DB.AddSchemaFlag(cmd)
		o.DB.AddURLFlag(cmd)
		command.AddJSON(cmd, &o.JSON)
		return hooks.Tool{With: o.DB.With, By: func() (string, string) { return o.Who(), o.Reason }, Audit: o.AddAuditFlags, JSON: &o.JSON, Usage: exit.Usagef}
	}
}

func newWebhook(getenv func(string) string) *cobra.Command {
	return command.Group("webhook", "Endpoints to which webhooks are sent", hooks.Commands(prepare(getenv))...)
}

func newSaga(getenv func(string) string) *cobra.Command {
	common := prepare(getenv)
	cmd := command.Group("saga", "Look at sagas, and decide about those that cannot go on",
		sagacmd.Commands(func(cmd *cobra.Command) sagacmd.Tool { return sagacmd.Tool(common(cmd)) })...)
	cmd.Long = sagacmd.Help
	return cmd
}
