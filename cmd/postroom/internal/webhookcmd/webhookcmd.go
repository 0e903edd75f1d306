// Package webhookcmd has the commands for endpoints of webhooks.
package webhookcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/hooksend"
	"github.com/postroom/postroom/cmd/postroom/internal/operator"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// New returns the group of these commands.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("webhook", "Endpoints to which webhooks are sent",
		endpoints(getenv), add(getenv), rotate(getenv), enable(getenv), disable(getenv), test(getenv), resend(getenv), hooksend.New(getenv))
	cmd.Long = "Look after the endpoints to which webhooks are sent, and try those that receive them."
	return cmd
}

// tool is what a command works with.
type tool struct{ operator.Operator }

// prepare adds the common flags to a command.
func prepare(getenv func(string) string, cmd *cobra.Command) *tool {
	t := &tool{operator.New(getenv)}
	t.AddCommonFlags(cmd)
	return t
}

func (t *tool) by() webhook.Audit {
	return webhook.Audit{Actor: t.Who(), Reason: t.Reason}
}

// store calls do with the endpoints of the database.
func (t *tool) store(ctx context.Context, do func(s *webhook.Endpoints) error) error {
	return t.DB.With(ctx, func(conn *pgx.Conn, schema string) error {
		return do(webhook.NewEndpoints(conn, webhook.EndpointsConfig{Schema: schema}))
	})
}

// sender calls do with a sender that only accepts.
func (t *tool) sender(ctx context.Context, cfg webhook.SenderConfig, do func(s *webhook.Sender) error) error {
	return t.DB.With(ctx, func(conn *pgx.Conn, schema string) error {
		pool, err := pgxpool.New(ctx, conn.Config().ConnString())
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer pool.Close()
		cfg.Schema, cfg.AcceptOnly = schema, true
		return do(webhook.NewSender(pool, inbox.New(pool, nil, inbox.Config{Schema: schema}), cfg))
	})
}

// oneEndpoint takes the id of an endpoint.
func oneEndpoint(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.Usagef("give the id of one endpoint; 'postroom webhook endpoints' lists them")
	}
	return nil
}

// onEndpoint finishes a command on one endpoint.
func onEndpoint(getenv func(string) string, cmd *cobra.Command, run func(ctx context.Context, t *tool, id string) error) *cobra.Command {
	t := prepare(getenv, cmd)
	t.AddAuditFlags(cmd)
	cmd.Args = oneEndpoint
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), t, args[0]) }
	return cmd
}

func endpoints(getenv func(string) string) *cobra.Command {
	var accounts []string
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "List the endpoints to which webhooks are sent",
		Long:  "List the endpoints to which webhooks are sent, and how each does. Secrets are not shown. Changes nothing.",
		Example: `  postroom webhook endpoints --account acme
  postroom webhook endpoints --json | jq '.[] | select(.failing_since)'`,
		Args: cobra.NoArgs,
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
			case t.JSON && all == nil:
				return output.JSON(cmd.OutOrStdout(), []webhook.Endpoint{})
			case t.JSON:
				return output.JSON(cmd.OutOrStdout(), all)
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
	if !e.LastAt.IsZero() {
		status = fmt.Sprint(e.LastStatus)
	}
	return []string{output.Cell(e.ID, 128), output.OrDash(output.Cell(e.Account, 40)), output.Cell(types, 60), output.Cell(state, 120), status, output.Cell(e.URL, 100)}
}

func add(getenv func(string) string) *cobra.Command {
	var e webhook.NewEndpoint
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Add an endpoint, and print its secret",
		Long: `Add an endpoint, and print its id and its secret. Give the secret to the people who run the
endpoint: nothing shows it again.

The URL begins with https://. Needs the rights of postroom.grant_webhooks.`,
		Example: "  postroom webhook add https://example.com/hooks --account acme --types order.placed,order.paid",
	}
	flags := cmd.Flags()
	flags.StringVar(&e.ID, "id", "", "id of the endpoint (default a random one)")
	flags.StringVar(&e.Account, "account", "", "whose endpoint it is")
	flags.StringSliceVar(&e.Types, "types", nil, "types of the events that it gets (default all)")
	t := prepare(getenv, cmd)
	t.AddAuditFlags(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usagef("give one URL")
		}
		return nil
	}
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

func (t *tool) printSecret(cmd *cobra.Command, id string, secret webhook.Secret) error {
	if t.JSON {
		return output.JSON(cmd.OutOrStdout(), map[string]string{"id": id, "secret": string(secret)})
	}
	return output.Line(cmd.OutOrStdout(), "endpoint: %s\nsecret:   %s", id, string(secret))
}

func rotate(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate ENDPOINT",
		Short: "Give an endpoint a new secret, and print it",
		Long: `Give an endpoint a new secret, and print it. For 24 hours the one before signs as well, so
that the receiver can change in that time. Needs the rights of postroom.grant_webhooks.`,
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
		Short: "Send to an endpoint again",
		Long: `Send to an endpoint again. It has five days again before it is disabled for failing. Its
events that died meanwhile stay dead until they are replayed, and 'webhook resend' gives it
those that it was not given.`,
		Example: `  postroom webhook enable ep_7 --reason 'the customer mended it'
  postroom dead replay --class endpoint_disabled --key ep_7`,
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.store(ctx, func(s *webhook.Endpoints) error {
			if err := s.Enable(ctx, id, t.by()); err != nil {
				return err
			}
			return output.Line(cmd.OutOrStdout(), "enabled")
		})
	})
}

func disable(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable ENDPOINT",
		Short: "Send nothing more to an endpoint",
		Long: `Send nothing more to an endpoint. It gets no new events. Those that wait for it are dead
when their time comes, of class endpoint_disabled. --reason is required.`,
		Example: "  postroom webhook disable ep_7 --reason 'the customer left'",
	}
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.store(ctx, func(s *webhook.Endpoints) error {
			if err := s.Disable(ctx, id, t.by()); err != nil {
				return err
			}
			return output.Line(cmd.OutOrStdout(), "disabled")
		})
	})
}

func test(getenv func(string) string) *cobra.Command {
	var cfg webhook.SenderConfig
	cmd := &cobra.Command{
		Use:   "test ENDPOINT",
		Short: "Send an endpoint an event of type webhook.test",
		Long: `Send an endpoint an event of type webhook.test. A process that sends webhooks delivers it,
like any other event; 'postroom events show' says what came of it. Needs the rights of
postroom.grant_inbox and postroom.grant_webhooks.`,
		Example: "  postroom webhook test ep_7",
	}
	cmd.Flags().StringVar(&cfg.Name, "handler", "webhooks", "name of the sender")
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		return t.sender(ctx, cfg, func(s *webhook.Sender) error {
			event, err := s.Test(ctx, id, t.by())
			if err != nil {
				return err
			}
			return output.Line(cmd.OutOrStdout(), "event %s is due; see 'postroom events show %s'", event, event)
		})
	})
}

func resend(getenv func(string) string) *cobra.Command {
	var cfg webhook.SenderConfig
	var since time.Duration
	var noAccounts bool
	cmd := &cobra.Command{
		Use:   "resend ENDPOINT",
		Short: "Send an endpoint what it was not given",
		Long: `Send an endpoint those events that the log of this database still has and that it was not
given: from before it was added, or while it was disabled. What it was given is not sent
again; 'postroom dead replay' is for what is dead.

The log has internal events as well, and events of all customers. So --types is required: the
types that customers may get, as the sender has them in SenderConfig.Types. An endpoint of
other types gets fewer. Either --account-header or --no-accounts is required, too.

Needs the rights of postroom.grant_inbox, postroom.grant_webhooks and postroom.grant_operator.`,
		Example: `  postroom webhook resend ep_7 --since 48h --types order.placed,order.paid --account-header tenant
  postroom webhook resend ep_7 --since 48h --types order.placed --no-accounts`,
	}
	cmd.Flags().StringVar(&cfg.Name, "handler", "webhooks", "name of the sender")
	cmd.Flags().StringVar(&cfg.AccountHeader, "account-header", "", "header of an event that names its account, as the sender has it")
	cmd.Flags().BoolVar(&noAccounts, "no-accounts", false, "the sender has no AccountHeader: all events belong to the empty account")
	cmd.Flags().StringSliceVar(&cfg.Types, "types", nil, "types of events that customers may get (required)")
	cmd.Flags().DurationVar(&since, "since", 0, "events that were written within this time (required)")
	return onEndpoint(getenv, cmd, func(ctx context.Context, t *tool, id string) error {
		if since <= 0 {
			return exit.Usagef("--since is required, for instance --since 48h")
		}
		if len(cfg.Types) == 0 {
			return exit.Usagef("--types is required: the types that customers may get, for instance --types order.placed; the log has internal events as well")
		}
		if noAccounts == (cfg.AccountHeader != "") {
			return exit.Usagef("give either --account-header, as the sender has it, or --no-accounts if it has none; otherwise a customer might get the events of another")
		}
		return t.sender(ctx, cfg, func(s *webhook.Sender) error {
			n, err := s.Resend(ctx, id, time.Now().Add(-since), t.by())
			if err != nil {
				return err
			}
			return output.Line(cmd.OutOrStdout(), "%s due", output.Plural(int(n), "event"))
		})
	})
}
