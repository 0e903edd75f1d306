package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
)

// checkLimits returns an error if the limits of a stream do not allow what its handlers
// need.
func (in *Inbox) checkLimits(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream) error {
	cfg := stream.CachedInfo().Config
	var readers []Handler
	for _, h := range in.Handlers {
		if h.Stream != cfg.Name {
			continue
		}
		readers = append(readers, h)
		//guard:check-looks-at-the-streams-limits 0 = @[:0]
		if faults := consumer.ExamineLimits(cfg, h.Ordered, h.Filter); len(faults) > 0 {
			return postroom.Unrecoverable(fmt.Errorf("stream %s of handler %s: %w: %w", cfg.Name, h.Name, ErrStreamLimit, errors.Join(faults...)))
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
	//guard:check-counts-consumers false
	if has := stream.CachedInfo().State.Consumers; has+len(missing) > most {
		return postroom.Unrecoverable(fmt.Errorf("stream %s: %w: it has %d consumers and may have %d (%s), and the handlers %s need one each: raise the limit or remove unused consumers",
			cfg.Name, ErrStreamLimit, has, most, where, strings.Join(missing, ", ")))
	}
	return nil
}

// accountPatience is how long to wait for the account's limits. It is short, because the broker
// does not answer if the user has no right to ask.
const accountPatience = time.Second

// accountLimit returns how many consumers the account may have on a stream with the given
// number of replicas. It returns 0 or less if there is no limit, or if the broker does
// not answer.
func (in *Inbox) accountLimit(ctx context.Context, js jetstream.JetStream, replicas int) int {
	ctx, cancel := context.WithTimeout(ctx, accountPatience)
	defer cancel()
	account, err := js.AccountInfo(ctx)
	if err != nil {
		in.Log.DebugContext(ctx, "the account's limits are not known", "error", err)
		return 0
	}
	if tier, ok := account.Tiers[fmt.Sprintf("R%d", max(replicas, 1))]; ok {
		return tier.Limits.MaxConsumers
	}
	return account.Limits.MaxConsumers
}

// missingConsumers returns the handlers that have no consumer on a stream yet.
func (in *Inbox) missingConsumers(ctx context.Context, stream jetstream.Stream, readers []Handler) ([]string, error) {
	instance, err := in.Database.Instance(ctx)
	if err != nil {
		return nil, in.Advise(err)
	}
	has := make(map[string]bool)
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		if owner, handler := identity.Owner(info.Config.Metadata); owner == instance {
			has[handler] = true
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", stream.CachedInfo().Config.Name, in.Advise(err))
	}
	var missing []string
	for _, h := range readers {
		if !has[h.Name] {
			missing = append(missing, h.Name)
		}
	}
	return missing, nil
}
