package natsjs

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/relay/broker"
)

// maxCounted is the largest number of subjects whose messages checkRoom counts, if the stream
// limits the messages of each subject.
const maxCounted = 100

// checkRoom adds a fault if a stream has reached a limit at which it refuses new messages.
func (i *inspection) checkRoom(ctx context.Context, s jetstream.Stream) error {
	cfg, state := s.CachedInfo().Config, s.CachedInfo().State
	if cfg.Discard != jetstream.DiscardNew {
		return nil
	}
	const remedy = "raise the limit, or give the stream a max_age"
	if cfg.MaxMsgs > 0 && state.Msgs >= uint64(cfg.MaxMsgs) {
		i.addFull("stream "+cfg.Name, remedy, "it has %d of %d messages", state.Msgs, cfg.MaxMsgs)
	}
	if cfg.MaxBytes > 0 && state.Bytes+maxMessage > uint64(cfg.MaxBytes) {
		i.addFull("stream "+cfg.Name, remedy, "%d of %d bytes are used, and an event can need %d", state.Bytes, cfg.MaxBytes, maxMessage)
	}
	if cfg.MaxMsgsPerSubject <= 0 || !cfg.DiscardNewPerSubject || isTransformed(cfg) {
		return nil
	}
	counted := 0
	for _, subject := range i.subjects {
		if counted == maxCounted || len(wildcard.Uncovered([]string{subject}, cfg.Subjects)) > 0 {
			continue
		}
		counted++
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return explain("count "+subject+" in stream "+cfg.Name, err)
		}
		if n := info.State.Subjects[subject]; n >= uint64(cfg.MaxMsgsPerSubject) {
			i.addFull("stream "+cfg.Name, remedy, "it has %d of %d messages of the subject %s", n, cfg.MaxMsgsPerSubject, subject)
		}
	}
	return nil
}

// checkAccount adds a fault if the account has no room for the next event in a stream that
// was examined.
func (i *inspection) checkAccount(ctx context.Context) error {
	if len(i.streams) == 0 {
		return nil
	}
	account, err := i.js.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("look at the account: %w", jsremedy.Explain(err))
	}
	var reported []string
	for _, cfg := range i.streams {
		name, tier := "the account", account.Tier
		if len(account.Tiers) > 0 { // the limits of the account depend on the number of replicas
			key := fmt.Sprintf("R%d", max(cfg.Replicas, 1))
			name, tier = "the account, tier "+key, account.Tiers[key]
		}
		what, used, most := "bytes of storage", tier.Store, tier.Limits.MaxStore
		if cfg.Storage == jetstream.MemoryStorage {
			what, used, most = "bytes of memory", tier.Memory, tier.Limits.MaxMemory
		}
		if most > 0 && used+maxMessage > uint64(most) && !slices.Contains(reported, name+what) {
			reported = append(reported, name+what)
			i.addFull(name, "raise the limit of the account, or let its streams keep less", "%d of %d %s are used, and an event can need %d", used, most, what, maxMessage)
		}
	}
	return nil
}

// addFull adds a fault: there is no room for events. The fault does not match ErrUnrecoverable,
// because the events wait in the log until there is room.
func (i *inspection) addFull(what, remedy, format string, args ...any) {
	i.faults = append(i.faults, fmt.Errorf("%s: %w: %s: %s", what, broker.ErrFull, fmt.Sprintf(format, args...), remedy))
}
