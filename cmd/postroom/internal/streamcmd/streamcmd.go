// Package streamcmd has the commands that create streams and look for losses in streams.
package streamcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/natsjs"
)

// New returns the command stream, the group of the commands of this package.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("stream", "Create the streams for events, and check whether they lost events",
		newEnsure(getenv), newCheck(getenv))
	cmd.Long = `Create the JetStream streams that store events, and compare them with the database.
Streams belong to the operator: neither a relay nor an inbox creates one.`
	return cmd
}

// settings has the values of the flags. If a setting has its zero value, the server chooses the
// value.
type settings struct {
	subjects []string
	replicas int
	maxAge   time.Duration
	atomic   bool
}

func newEnsure(getenv func(string) string) *cobra.Command {
	broker := broker.New(getenv)
	var wish settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ensure NAME --subjects SUBJECT[,SUBJECT...]",
		Short: "Create a stream, or add the subjects that it lacks",
		Long: `Create a stream that loses none of the messages that it acknowledged: it stores them in
files, refuses new messages at a limit instead of dropping old ones, and allows no purge
and no delete.

With --atomic the stream accepts the batches of 'postroom relay --atomic'. It also gets
one more subject, with which relays make sure that only one of them publishes. This needs
nats-server 2.12 or later.

If the stream exists, the command adds the subjects that it lacks and, with --atomic,
allows batches. It changes nothing else. If the stream differs from the flags in another
way, or is sealed, the command reports that and ends with exit status 3.`,
		Example: `  postroom stream ensure SHOP --subjects 'order.>,payment.>'
  postroom stream ensure SHOP --subjects 'order.>' --replicas 3 --max-age 720h \
      --nats-url nats://nats:4222 --nats-creds /etc/postroom/nats.creds
  postroom stream ensure SHOP --subjects 'order.>' --atomic`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("give the name of one stream, for instance SHOP")
			}
			if len(wish.subjects) == 0 {
				return exit.Usagef("which subjects? Give --subjects, for instance --subjects 'order.>'")
			}
			return argument.StreamNames(args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			nc, err := broker.Connect()
			if err != nil {
				return err
			}
			defer nc.Close()
			if err := broker.CheckJetStream(cmd.Context(), nc); err != nil {
				return err
			}
			return broker.Explain(ensure(cmd, nc, args[0], wish, asJSON))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&wish.subjects, "subjects", nil, "subjects of the stream; put '>' and '*' in quotes (required)")
	flags.IntVar(&wish.replicas, "replicas", 0, "how many servers store each message, 1 to 5 (default 1)")
	flags.DurationVar(&wish.maxAge, "max-age", 0, "how long the stream keeps messages, for instance 720h (default for ever)")
	flags.BoolVar(&wish.atomic, "atomic", false, "allow atomic batches, for 'postroom relay --atomic'")
	broker.AddFlags(cmd)
	command.AddJSON(cmd, &asJSON)
	command.NoFileCompletion(cmd, "subjects", "replicas", "max-age")
	argument.Between(cmd, "replicas", &wish.replicas, 1, 5)
	argument.Positive(cmd, "max-age", &wish.maxAge, "720h")
	argument.Conditions(cmd, "subjects")
	return cmd
}

// patience limits how long the command waits for the broker.
const patience = 10 * time.Second

func ensure(cmd *cobra.Command, nc *nats.Conn, name string, wish settings, asJSON bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	err := natsjs.EnsureStream(ctx, nc, jetstream.StreamConfig{
		Name: name, Subjects: wish.subjects, Replicas: wish.replicas, MaxAge: wish.maxAge,
		AllowAtomicPublish: wish.atomic,
	})
	if err != nil {
		return explain(err)
	}
	now, err := configOf(ctx, nc, name)
	if err != nil {
		return explain(err)
	}
	if err := printStream(cmd, asJSON, now); err != nil {
		return err
	}
	return wish.compare(now)
}

func configOf(ctx context.Context, nc *nats.Conn, name string) (jetstream.StreamConfig, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return jetstream.StreamConfig{}, fmt.Errorf("read stream %s: %w", name, err)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return jetstream.StreamConfig{}, fmt.Errorf("read stream %s: %w", name, err)
	}
	return stream.CachedInfo().Config, nil
}

// compare returns an error if an existing stream differs from the flags, or drops old messages at a
// limit. The error lists these differences.
func (w settings) compare(now jetstream.StreamConfig) error {
	var differs []string
	if w.replicas != 0 && w.replicas != now.Replicas {
		differs = append(differs, fmt.Sprintf("has %s, not %d", output.Plural(now.Replicas, "replica"), w.replicas))
	}
	if w.maxAge != 0 && w.maxAge != now.MaxAge {
		differs = append(differs, fmt.Sprintf("keeps messages %s, not %s", age(now.MaxAge), w.maxAge))
	}
	if now.Discard != jetstream.DiscardNew {
		differs = append(differs, "drops old messages at a limit instead of refusing new ones")
	}
	if now.Sealed { // cannot be edited
		return exit.Todof("stream %s exists and is sealed: it takes no events, and sealing cannot be undone; when the handlers have read it ('postroom handlers'), delete it with 'nats stream rm %s' and run this command again", now.Name, now.Name)
	}
	if len(differs) == 0 {
		return nil
	}
	return exit.Todof("stream %s exists and %s; to change that, use 'nats stream edit %s'", now.Name, strings.Join(differs, ", and "), now.Name)
}

// A report is the JSON document about a stream.
type report struct {
	Name     string   `json:"name"`
	Subjects []string `json:"subjects"`
	Replicas int      `json:"replicas"`
	MaxAge   string   `json:"max_age"` // a Go duration; "0s" is for ever
	Storage  string   `json:"storage"`
	Atomic   bool     `json:"atomic"` // the stream accepts atomic batches
}

func printStream(cmd *cobra.Command, asJSON bool, now jetstream.StreamConfig) error {
	storage := strings.ToLower(now.Storage.String())
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), report{
			Name: now.Name, Subjects: now.Subjects, Replicas: now.Replicas, MaxAge: now.MaxAge.String(), Storage: storage,
			Atomic: now.AllowAtomicPublish,
		})
	}
	return output.Table(cmd.OutOrStdout(), [][]string{
		{"STREAM", "SUBJECTS", "REPLICAS", "KEPT", "STORAGE"},
		{now.Name, strings.Join(now.Subjects, ","), strconv.Itoa(now.Replicas), age(now.MaxAge), storage},
	})
}

func age(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return d.String()
}

// Error codes of JetStream for which explain has advice.
const (
	codeSubjectsOverlap = 10065
	codeNotClustered    = 10074
	codeNoPeers         = 10005
	codeNoStorage       = 10047
)

// explain adds advice to an error of the broker.
func explain(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrStreamNameRequired):
		return exit.Usagef("this is not the name of a stream: a name has no white space, '.', '*', '>', '/' or '\\'")
	case jsremedy.Do(err) != "":
		return jsremedy.Explain(err)
	case !errors.As(err, &api):
		return err
	}
	switch int(api.ErrorCode) {
	case codeSubjectsOverlap:
		return fmt.Errorf("%w; another stream has some of these subjects: find it with 'nats stream ls --subject'", err)
	case codeNotClustered, codeNoPeers:
		return fmt.Errorf("%w; --replicas cannot be above the number of servers in the cluster", err)
	case codeNoStorage:
		return fmt.Errorf("%w; give JetStream more storage or limit the stream", err)
	}
	return err
}
