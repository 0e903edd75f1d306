// Package webhookcmd has the commands for webhook endpoints.
package webhookcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/hooksend"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// New returns the command webhook, the group of the commands of this package.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("webhook", "Endpoints to which webhooks are sent",
		endpoints(getenv), add(getenv), rotate(getenv), enable(getenv), disable(getenv), remove(getenv), test(getenv), resend(getenv), hooksend.New(getenv))
	cmd.Long = "Manage the endpoints to which webhooks are sent, and test endpoints that receive webhooks."
	return cmd
}

// A tool has what the commands of this package need.
type tool struct{ caller.Caller }

// prepare adds the common flags to a command.
func prepare(getenv func(string) string, cmd *cobra.Command) *tool {
	t := &tool{caller.New(getenv)}
	t.AddCommonFlags(cmd)
	return t
}

func (t *tool) by() postroom.Audit {
	return postroom.Audit{Actor: t.Who(), Reason: t.Reason}
}

// store calls the function do with the store of the database's endpoints.
func (t *tool) store(ctx context.Context, do func(s *webhook.Endpoints) error) error {
	return t.DB.With(ctx, func(conn *pgx.Conn, schema string) error {
		return do(webhook.NewEndpoints(conn, webhook.EndpointsConfig{Schema: schema}))
	})
}

// sender calls the function do with a sender that accepts but never delivers events.
func (t *tool) sender(ctx context.Context, cfg webhook.SenderConfig, do func(s *webhook.Sender) error) error {
	return t.DB.With(ctx, func(_ *pgx.Conn, schema string) error {
		pool, err := t.DB.LookPool(ctx)
		if err != nil {
			return err
		}
		defer pool.Close()
		cfg.AcceptOnly = true
		return do(webhook.NewSender(inbox.New(pool, nil, inbox.Config{Schema: schema}), cfg))
	})
}

// onEndpoint adds flags and the function RunE to a command on one endpoint.
func onEndpoint(getenv func(string) string, cmd *cobra.Command, run func(ctx context.Context, t *tool, id string) error) *cobra.Command {
	t := prepare(getenv, cmd)
	t.AddAuditFlags(cmd)
	cmd.Args = argument.OneName("the id of one endpoint; 'postroom webhook endpoints' lists them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), t, args[0]) }
	return cmd
}

func endpoints(getenv func(string) string) *cobra.Command {
	var accounts []string
	cmd := &cobra.Command{
		Use:   "endpoints [list]",
		Short: "List the endpoints to which webhooks are sent",
		Long:  "List the endpoints to which webhooks are sent, and the state of each. Secrets are not shown. Changes nothing.",
		Example: `  postroom webhook endpoints --account acme
  postroom webhook endpoints --json | jq '.endpoints[] | select(.failing_since)'`,
		Args: command.Listing,
	}
	cmd.Flags().StringSliceVar(&accounts, "account", nil, "endpoints of this account (default all)")
	argument.Conditions(cmd, "account")
	t := prepare(getenv, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.store(cmd.Context(), func(s *webhook.Endpoints) error {
			all, err := s.List(cmd.Context(), accounts...)
			switch {
			case err != nil:
				return err
			case t.JSON:
				return output.JSON(cmd.OutOrStdout(), struct {
					Endpoints []webhook.Endpoint `json:"endpoints"`
				}{output.List(all)})
			case len(all) == 0 && len(accounts) > 0:
				return output.Line(cmd.OutOrStdout(), "no endpoint belongs to %s", output.Flat(strings.Join(accounts, " or ")))
			case len(all) == 0:
				return output.Line(cmd.OutOrStdout(), "there are no endpoints")
			}
			rows := [][]string{{"ENDPOINT", "ACCOUNT", "TYPES", "STATE", "LAST STATUS", "URL"}}
			for _, e := range all {
				rows = append(rows, row(e))
			}
			return output.Table(cmd.OutOrStdout(), rows)
		})
	}
	return cmd
}

func row(e webhook.Endpoint) []string {
	types, state, status := "all", "works", "-"
	if len(e.Types) > 0 {
		types = strings.Join(e.Types, ",")
	}
	switch {
	case !e.DisabledAt.IsZero():
		state = "disabled " + output.Ago(e.DisabledAt) + ": " + e.DisabledReason
	case !e.FailingSince.IsZero():
		state = "fails since " + output.Stamp(e.FailingSince)
	case e.LastAt.IsZero():
		state = "new"
	}
	if !e.PausedUntil.IsZero() && e.DisabledAt.IsZero() {
		state += ", paused until " + output.Stamp(e.PausedUntil)
	}
	if !e.LastAt.IsZero() {
		status = fmt.Sprint(e.LastStatus)
	}
	return []string{output.Cell(e.ID, 128), output.OrDash(output.Cell(e.Account, 40)), output.Cell(types, 60), output.Cell(state, 120), status, output.Cell(e.URL, 100)}
}

func add(getenv func(string) string) *cobra.Command {
	var e webhook.EndpointSpec
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Add an endpoint, and print its secret",
		Long: `Add an endpoint, and print its id and its secret. Give the secret to the people who run
the endpoint. No command shows it again.

The URL must begin with https://. The role needs the rights of postroom.grant_webhooks.`,
		Example: "  postroom webhook add https://example.com/hooks --account acme --type order.placed,order.paid",
	}
	flags := cmd.Flags()
	flags.StringVar(&e.ID, "id", "", "id of the endpoint (default random)")
	flags.StringVar(&e.Account, "account", "", "the account that owns the endpoint")
	flags.StringSliceVar(&e.Types, "type", nil, "types of events to send to the endpoint (default all)")
	argument.Conditions(cmd, "id", "account", "type")
	t := prepare(getenv, cmd)
	t.AddAuditFlags(cmd)
	cmd.Args = argument.OneName("one URL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.URL = args[0]
		return t.store(cmd.Context(), func(s *webhook.Endpoints) error {
			id, secret, err := s.Add(cmd.Context(), e, t.by())
			if err != nil {
				return err
			}
			return t.printSecret(cmd, id, secret)
		})
	}
	return cmd
}

// print prints what a command did: the value as JSON, or the text.
func (t *tool) print(cmd *cobra.Command, value any, text string) error {
	if t.JSON {
		return output.JSON(cmd.OutOrStdout(), value)
	}
	return output.Line(cmd.OutOrStdout(), "%s", text)
}

func (t *tool) printSecret(cmd *cobra.Command, id string, secret webhook.Secret) error {
	return t.print(cmd, map[string]string{"id": id, "secret": string(secret)}, fmt.Sprintf("endpoint: %s\nsecret:   %s", id, string(secret)))
}

func rotate(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate ENDPOINT",
		Short: "Give an endpoint a new secret, and print it",
		Long: `Give an endpoint a new secret, and print it. For 24 hours webhooks are signed with both
the old and the new secret, so that the receiver can change to the new one. The role
needs the rights of postroom.grant_webhooks.`,
		Example: "  postroom webhook rotate ep_7",
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.store(ctx, func(s *webhook.Endpoints) error {
			secret, err := s.Rotate(ctx, id, "", t.by())
			if err != nil {
				return err
			}
			return t.printSecret(cmd, id, secret)
		})
	})
}

func enable(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enable ENDPOINT",
		Short: "Send events to an endpoint again",
		Long: `Send events to an endpoint again. If the endpoint still fails, the sender disables it
again after five days. Events that died meanwhile stay dead until you replay them.
'webhook resend' sends the events that were written while the endpoint was disabled.`,
		Example: `  postroom webhook enable ep_7 --reason 'the customer fixed it'
  postroom dead replay --class endpoint_disabled --key ep_7`,
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.store(ctx, func(s *webhook.Endpoints) error {
			if err := s.Enable(ctx, id, t.by()); err != nil {
				return err
			}
			return t.print(cmd, map[string]string{"id": id, "state": "enabled"}, "enabled")
		})
	})
}

func disable(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable ENDPOINT",
		Short: "Stop sending events to an endpoint",
		Long: `Stop sending events to an endpoint. It gets no new events. Events that already wait for
it become dead at their next attempt, with the class endpoint_disabled. --reason is
required.`,
		Example: "  postroom webhook disable ep_7 --reason 'the customer left'",
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		if t.by().Reason == "" {
			return exit.Usagef("give a --reason: the audit keeps it")
		}
		return t.store(ctx, func(s *webhook.Endpoints) error {
			if err := s.Disable(ctx, id, t.by()); err != nil {
				return err
			}
			return t.print(cmd, map[string]string{"id": id, "state": "disabled"}, "disabled; events that wait for it become dead at their next attempt.\n"+
				"later: postroom webhook enable "+output.Quoted(id)+", then postroom dead replay --class endpoint_disabled --key "+output.Quoted(id))
		})
	})
}

func remove(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ENDPOINT",
		Short: "Remove an endpoint, with its URL and its secrets",
		Long: `Remove an endpoint, with its URL and its secrets. Events that wait for it become dead at
their next attempt, with the class permanent. There is no way back. To stop sending for
a while, use 'webhook disable'. --reason is required. The role needs the rights of
postroom.grant_webhooks.`,
		Example: "  postroom webhook remove ep_7 --reason 'the customer left'",
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		if t.by().Reason == "" {
			return exit.Usagef("give a --reason: the audit keeps it")
		}
		return t.store(ctx, func(s *webhook.Endpoints) error {
			if err := s.Remove(ctx, id, t.by()); err != nil {
				return err
			}
			return t.print(cmd, map[string]string{"id": id, "state": "removed"}, "removed; events that wait for it become dead at their next attempt")
		})
	})
}

func test(getenv func(string) string) *cobra.Command {
	var cfg webhook.SenderConfig
	cmd := &cobra.Command{
		Use:   "test ENDPOINT",
		Short: "Send an endpoint an event of type webhook.test",
		Long: `Send an endpoint an event of type webhook.test. A process that sends webhooks delivers
it, like any other event. 'postroom events show' shows its failures, and finds it until it
is delivered. The role needs the rights of postroom.grant_inbox and
postroom.grant_webhooks.`,
		Example: "  postroom webhook test ep_7",
	}
	cmd.Flags().StringVar(&cfg.Name, "handler", "webhooks", "name of the sender")
	argument.Conditions(cmd, "handler")
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.sender(ctx, cfg, func(s *webhook.Sender) error {
			event, err := s.Test(ctx, id, t.by())
			if err != nil {
				return err
			}
			return t.print(cmd, map[string]string{"id": id, "event": event}, fmt.Sprintf("event %s is due; until it is delivered, 'postroom events show %s' shows its failures", event, event))
		})
	})
}

func resend(getenv func(string) string) *cobra.Command {
	var cfg webhook.SenderConfig
	var since string
	var noAccounts bool
	cmd := &cobra.Command{
		Use:   "resend ENDPOINT",
		Short: "Send an endpoint events that it was not given",
		Long: `Send an endpoint the events that were written before the endpoint was added, or while it
was disabled. The log of this database must still have these events. Other events are
not sent again: if they are dead, use 'postroom dead replay'. The inbox recognises such
events for its DedupeWindow (30 days). If --since is earlier, the command sends nothing
and prints the earliest time that you can give.

The log also has internal events, and events of all customers. So --type is required:
the types that customers may get, as in SenderConfig.Types of the sender. An endpoint
that asks for fewer types gets fewer events. Either --account-header or --no-accounts is
also required.

The role needs the rights of postroom.grant_inbox, postroom.grant_webhooks and
postroom.grant_operator.`,
		Example: `  postroom webhook resend ep_7 --since 48h --type order.placed,order.paid --account-header tenant
  postroom webhook resend ep_7 --since 48h --type order.placed --no-accounts`,
	}
	cmd.Flags().StringVar(&cfg.Name, "handler", "webhooks", "name of the sender")
	argument.Conditions(cmd, "handler")
	cmd.Flags().StringVar(&cfg.AccountHeader, "account-header", "", "header of an event that names its account, as in SenderConfig.AccountHeader of the sender")
	cmd.Flags().BoolVar(&noAccounts, "no-accounts", false, "the sender has no AccountHeader: all events belong to the empty account")
	cmd.Flags().StringSliceVar(&cfg.Types, "type", nil, "types of events that customers may get (required)")
	cmd.Flags().StringVar(&since, "since", "", "events that were written at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (48h) (required)")
	argument.Conditions(cmd, "account-header", "type", "since")
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		from, err := argument.Time("since", since)
		if err != nil {
			return err
		}
		if from.IsZero() {
			return exit.Usagef("--since is required, for instance --since 48h")
		}
		if len(cfg.Types) == 0 {
			return exit.Usagef("--type is required: the types that customers may get, for instance --type order.placed; the log also has internal events")
		}
		if noAccounts == (cfg.AccountHeader != "") {
			return exit.Usagef("give --account-header if the sender has an AccountHeader, or else --no-accounts; otherwise a customer might get the events of another customer")
		}
		return t.sender(ctx, cfg, func(s *webhook.Sender) error {
			n, err := s.Resend(ctx, id, from, t.by())
			if err != nil {
				return err
			}
			return t.print(cmd, map[string]any{"id": id, "events": n}, output.Plural(int(n), "event")+" due")
		})
	})
}
