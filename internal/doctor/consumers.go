package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
)

// durable gets a handler's durable consumer from the broker, or nil if there is none.
func durable(ctx context.Context, s *stream, sub subscription) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	consumer, err := s.handle.Consumer(ctx, sub.consumer())
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil //nolint:nilnil // there is no consumer
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", sub.consumer(), err)
	}
	return consumer.CachedInfo(), nil
}

// checkConsumers examines the durable consumers of handlers.
func checkConsumers(ctx context.Context, e *examination) error {
	fine := 0
	err := e.each(ctx, func(s *stream) {
		for _, sub := range s.handlers {
			checkLimits(e, s, sub)
			if sub.Ordered {
				continue
			}
			info, err := durable(ctx, s, sub)
			switch {
			case err != nil:
				e.skip(sub.Handler, e.remedyOf(err), "could not be checked: %v", err)
			case info == nil:
				e.fault(sub.Handler, "start a process of the handler, or restart it: it makes the consumer again, at the handler's last position",
					"its consumer %s is not on the stream %s: no event reaches it", sub.consumer(), s.name)
			case checkConsumer(e, s, sub, info):
				fine++
			}
		}
	})
	if err == nil && fine > 0 {
		e.ok("", "%s are set up correctly", countOf(fine, "durable consumer"))
	} else if err == nil {
		e.ok("", "no handler has a durable consumer")
	}
	return err
}

// checkLimits examines the limits that a stream sets for the consumers of a handler.
func checkLimits(e *examination, s *stream, sub subscription) {
	faults := consumer.ExamineLimits(s.info.Config, sub.Ordered, sub.Subjects)
	//guard:doctor-limits-of-consumers remove
	for _, fault := range faults {
		e.fault(sub.Handler, "change the stream: nats stream edit "+s.name, "its stream %s does not suit the handler: %v", s.name, fault)
	}
	//guard:doctor-consumers-that-are-removed 2 false
	if most := s.info.Config.ConsumerLimits.InactiveThreshold; len(faults) == 0 && most > 0 && !sub.Ordered {
		e.warn(sub.Handler, fmt.Sprintf("set consumer_limits.inactive_threshold of the stream %s to 0, and start a process of the handler again", s.name),
			"if no process of the handler runs for %[2]s, its stream %[1]s removes the handler's consumer: the next process makes it again, and gets events of the last minute again, which the inbox drops",
			s.name, most)
	}
}

func checkConsumer(e *examination, s *stream, sub subscription, info *jetstream.ConsumerInfo) bool {
	faults, err := consumer.Examine(info.Config, s.info.Config.ConsumerLimits, sub.instance, sub.Handler, sub.Subjects)
	if err != nil {
		instance, handler := identity.Owner(info.Config.Metadata)
		e.fault(sub.Handler, fmt.Sprintf("give one of the two databases another identity, or delete the consumer if no handler uses it: nats consumer rm %s %s", s.name, info.Name),
			"its consumer %s on the stream %s belongs to another Postroom: it was made for instance %q, handler %q", info.Name, s.name, instance, handler)
		return false
	}
	//guard:doctor-consumers-that-lose-events false
	if len(faults) > 0 {
		e.fault(sub.Handler, fmt.Sprintf("restart a process of the handler, which corrects the settings that can be changed; if that does not help, delete the consumer and restart a process: nats consumer rm %s %s", s.name, info.Name),
			"its consumer %s on the stream %s loses events or keeps them back: %s", info.Name, s.name, strings.Join(faults, "; "))
	}
	if until := consumer.PausedUntil(info); !until.IsZero() {
		e.note(sub.Handler, "an operator has paused its consumer %s on the stream %s until %s: it gets no new events; 'nats consumer resume %[2]s %[1]s' ends the pause", info.Name, s.name, until.UTC().Format(time.RFC3339))
	}
	return len(faults) == 0
}

// maxConsumers is how many consumers of a stream checkStrayConsumers examines.
const maxConsumers = 10_000

// checkStrayConsumers looks for durable consumers of this database whose handler is not subscribed.
// Such a consumer does harm if its stream keeps events until all consumers have acknowledged them.
func checkStrayConsumers(ctx context.Context, e *examination) error {
	subs, err := e.loadSubscriptions(ctx)
	if err != nil {
		return err
	}
	instance, err := queryOne[struct{ ID string }](ctx, e, e.d.sql.Instance)
	if err != nil {
		return err
	}
	return e.each(ctx, func(s *stream) {
		within, cancel := context.WithTimeout(ctx, brokerTimeout)
		defer cancel()
		list := s.handle.ListConsumers(within)
		looked := 0
		for info := range list.Info() {
			if looked++; looked > maxConsumers {
				break
			}
			owner, handler := identity.Owner(info.Config.Metadata)
			known := slices.ContainsFunc(subs, func(sub subscription) bool { return sub.Handler == handler && sub.Stream == s.name })
			if info.Config.Durable == "" || owner != instance.ID || known {
				continue
			}
			e.warn(handler, fmt.Sprintf("if the handler was retired: nats consumer rm %s %s", s.name, info.Name),
				"the consumer %s on the stream %s belongs to this Postroom, and no subscribed handler uses it: %s wait for it",
				info.Name, s.name, countOf(info.NumPending, "message"))
		}
		if err := list.Err(); err != nil {
			e.skip(s.name, e.remedyOf(err), "its consumers could not be listed: %v", err)
		}
	})
}
