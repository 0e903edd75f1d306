// Package hooksend has the command that sends a test webhook.
package hooksend

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/webhook"
)

const long = `Send a webhook to an endpoint, signed as a provider signs it, and print the answer.

The command takes the secret from the environment variable WEBHOOK_SECRET. Write the
secret as the provider shows it. The scheme hmac sets the headers X-Webhook-Id,
X-Webhook-Type and X-Signature, which is the signature of the body, in hex. With --times
the command sends the same webhook several times, as providers do. The command fails if
an answer is not 2xx.`

const example = `  WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw postroom webhook send --scheme standard http://localhost:8080/webhooks/acme
  postroom webhook send --scheme stripe --type charge.succeeded --times 2 http://localhost:8080/webhooks/stripe
  postroom webhook send --scheme github --type push --data '{"ref":"main"}' http://localhost:8080/webhooks/github`

// A request is the webhook that the command line describes.
type request struct {
	url, scheme, id, kind, data string
	age                         time.Duration
	times                       int
}

// New returns the command send.
func New(getenv func(string) string) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:     "send URL",
		Short:   "Send a signed webhook to an endpoint, to test the endpoint",
		Long:    long,
		Example: example,
		Args:    argument.OneName("the URL of one endpoint"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.url = args[0]
			s := scheme(r.scheme, getenv("WEBHOOK_SECRET"))
			switch {
			case s == nil:
				return exit.Usagef("give --scheme: standard, stripe, github, shopify, slack or hmac")
			case getenv("WEBHOOK_SECRET") == "":
				return exit.Usagef("set WEBHOOK_SECRET")
			}
			return r.send(cmd.Context(), s, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.scheme, "scheme", "", "how to sign: standard, stripe, github, shopify, slack or hmac (required)")
	flags.StringVar(&r.id, "id", "", "the webhook's id (default random)")
	flags.StringVar(&r.kind, "type", "test", "the webhook's type")
	flags.StringVar(&r.data, "data", "", "the body (default JSON with id and type)")
	flags.DurationVar(&r.age, "age", 0, "age of the signature, to test whether the endpoint refuses an old webhook")
	flags.IntVar(&r.times, "times", 1, "how many times to send the webhook")
	argument.AtLeast(cmd, "times", &r.times, 1)
	argument.Word(cmd, "scheme", []string{"standard", "stripe", "github", "shopify", "slack", "hmac"}, &r.scheme)
	argument.Check(cmd, "age", "want a duration such as 10m", func() bool { return true }) // below 0: a time to come
	argument.Conditions(cmd, "id", "type")
	return cmd
}

// scheme returns the scheme with this name, or nil.
func scheme(name, secret string) webhook.Scheme {
	switch name {
	case "standard":
		return webhook.Standard(secret)
	case "stripe":
		return webhook.Stripe(secret)
	case "github":
		return webhook.GitHub(secret)
	case "shopify":
		return webhook.Shopify(secret)
	case "slack":
		return webhook.Slack(secret)
	case "hmac":
		return webhook.HMAC{Secrets: []string{secret}, Signature: "X-Signature", ID: "X-Webhook-Id", Type: "X-Webhook-Type"}
	}
	return nil
}

// body returns the value of --data. Without --data it returns JSON with the id and the type,
// because some schemes read them from the body.
func (r request) body() []byte {
	if r.data != "" {
		return []byte(r.data)
	}
	kind, event := r.kind, map[string]string{"type": r.kind}
	if r.scheme == "slack" {
		kind = "event_callback"
	}
	text, _ := json.Marshal(map[string]any{"id": r.id, "event_id": r.id, "type": kind, "event": event}) // cannot fail: the map has only strings
	return text
}

// send sends the request as often as --times says, and prints the answers. It returns an error if
// an answer is not 2xx.
func (r request) send(ctx context.Context, s webhook.Scheme, out io.Writer) error {
	r.id = cmp.Or(r.id, "test_"+rand.Text())
	body := r.body()
	refused := 0
	for range r.times {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(string(body)))
		if err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
		req.Header.Set("Content-Type", "application/json")
		if err := webhook.Sign(s, req.Header, webhook.Message{ID: r.id, Type: r.kind, Time: time.Now().Add(-r.age)}, body); err != nil {
			return err
		}
		client := http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
		_ = resp.Body.Close() // the body is already read
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if resp.StatusCode/100 != 2 {
			refused++
		}
		if err := output.Line(out, "%s %s %s", output.Flat(r.id), output.Flat(resp.Status), output.Lines(strings.TrimSpace(string(answer)))); err != nil {
			return err
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d answers are not 2xx", refused, r.times)
	}
	return nil
}
