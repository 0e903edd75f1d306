package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
)

// ErrStreamLimit says that a limit of the stream or of the account leaves no room for
// what a handler needs.
var ErrStreamLimit = errors.New("the stream has a limit with which the handler cannot work")

// leastThreshold is the shortest inactive threshold with which a consumer lasts from one
// request to the next.
const leastThreshold = time.Second

// readerThreshold is how long the broker keeps the consumer of an ordered handler's
// reader that asks for nothing.
const readerThreshold = time.Minute

// thresholdOf is the inactive threshold of a consumer that would have the given one: a
// stream may allow no more. None is more than any.
func thresholdOf(stream jetstream.StreamConfig, wish time.Duration) time.Duration {
	if most := stream.ConsumerLimits.InactiveThreshold; most > 0 && (wish == 0 || wish > most) {
		return most
	}
	return wish
}

// ExamineLimits says which limits of a stream, as they are, leave no room for a handler
// that reads the given subjects, and what to change. It does no I/O.
func ExamineLimits(stream jetstream.StreamConfig, ordered bool, subjects []string) []error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch most := stream.ConsumerLimits.InactiveThreshold; {
	case most <= 0:
	case most < leastThreshold:
		refuse("it removes a consumer that asks for nothing for %s (consumer_limits.inactive_threshold): set that to %s or more, or to 0", most, leastThreshold)
	case !ordered && stream.Retention != jetstream.LimitsPolicy:
		refuse("it removes the handler's consumer when no process of it runs for %s (consumer_limits.inactive_threshold), and with it the events that it keeps for it: "+
			"set consumer_limits.inactive_threshold to 0, or give it limits retention", most)
	}
	for _, subject := range subjects {
		if to := movedBy(stream.SubjectTransform, subject); to != "" {
			refuse("it stores what comes on %s under %s (subject_transform), where the handler does not look: subscribe to what it is stored under, with Subjects, or remove the transform", subject, to)
		}
	}
	return faults
}

// movedBy returns what a stream stores the messages of a subject under, if no message
// that it stores has that subject.
func movedBy(t *jetstream.SubjectTransformConfig, subject string) string {
	if t == nil || t.Source != "" && !wildcard.Covers(t.Source, subject) {
		return ""
	}
	stored, wanted := strings.Split(t.Destination, "."), strings.Split(subject, ".")
	for i, token := range stored {
		switch {
		case token == ">" || i < len(wanted) && wanted[i] == ">":
			return ""
		case i >= len(wanted):
			return t.Destination
		case wanted[i] == "*" || token == "*" || strings.Contains(token, "{{") || strings.HasPrefix(token, "$"):
			continue
		case token != wanted[i]:
			return t.Destination
		}
	}
	if len(stored) < len(wanted) {
		return t.Destination
	}
	return ""
}

// checkLimits refuses a stream whose limits leave no room for what its handlers need.
func (in *Inbox) checkLimits(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream) error {
	cfg := stream.CachedInfo().Config
	var readers []*consumer
	for _, c := range in.consumers {
		if c.sub.Stream != cfg.Name {
			continue
		}
		readers = append(readers, c)
		if faults := ExamineLimits(cfg, c.isOrdered(), c.sub.filter()); len(faults) > 0 {
			return postroom.Refuse(fmt.Errorf("stream %s of handler %s: %w: %w", cfg.Name, c.sub.Name, ErrStreamLimit, errors.Join(faults...)))
		}
	}
	most, where := cfg.MaxConsumers, "max_consumers of the stream"
	if l := in.accountLimit(ctx, js, cfg.Replicas); l > 0 && (most <= 0 || l < most) {
		most, where = l, "max_consumers of the account, which counts for each stream"
	}
	if most <= 0 {
		return nil
	}
	missing, err := in.missingConsumers(ctx, stream, readers)
	if err != nil {
		return err
	}
	if has := stream.CachedInfo().State.Consumers; has+len(missing) > most {
		return postroom.Refuse(fmt.Errorf("stream %s: %w: it has %d consumers and may have %d (%s), and the handlers %s need one each: raise the limit or remove consumers that nobody uses",
			cfg.Name, ErrStreamLimit, has, most, where, strings.Join(missing, ", ")))
	}
	return nil
}

// accountPatience is how long the account's limits are waited for: the broker does not
// answer a user who may not ask.
const accountPatience = time.Second

// accountLimit is how many consumers the account may have on a stream of so many
// replicas; none or less for any number, or if that is not told.
func (in *Inbox) accountLimit(ctx context.Context, js jetstream.JetStream, replicas int) int {
	ctx, cancel := context.WithTimeout(ctx, accountPatience)
	defer cancel()
	account, err := js.AccountInfo(ctx)
	if err != nil {
		in.cfg.Logger.DebugContext(ctx, "the account's limits are not known", "error", err)
		return 0
	}
	if tier, ok := account.Tiers[fmt.Sprintf("R%d", max(replicas, 1))]; ok {
		return tier.Limits.MaxConsumers
	}
	return account.Limits.MaxConsumers
}

// missingConsumers returns the handlers that have no consumer on a stream yet.
func (in *Inbox) missingConsumers(ctx context.Context, stream jetstream.Stream, readers []*consumer) ([]string, error) {
	var instance string
	if err := in.pool.QueryRow(ctx, in.sql.instance).Scan(&instance); err != nil {
		return nil, fmt.Errorf("look up the instance: %w", err)
	}
	has := make(map[string]bool)
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		if owner, handler := identity.Owner(info.Config.Metadata); owner == instance {
			has[handler] = true
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	var missing []string
	for _, c := range readers {
		if !has[c.sub.Name] {
			missing = append(missing, c.sub.Name)
		}
	}
	return missing, nil
}
