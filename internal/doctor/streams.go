package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/natsjs"
)

// brokerChecks examine the broker, and compare it with the database.
var brokerChecks = []check{
	{"broker", broker, "", checkBroker},
	{"broker-clock", broker, "", checkBrokerClock},
	{"streams", tables | broker, "no stream is in use", checkStreams},
	{"subjects", tables | broker, "", checkSubjects},
	{"types", tables | broker, "", checkTypes},
	{"consumers", tables | broker, "", checkConsumers},
	{"stray-consumers", tables | broker, "every consumer of this Postroom belongs to a subscribed handler", checkStrayConsumers},
	{"losses", tables | broker, "", checkLosses},
	{"lost-tail", tables | broker, "no stream stores events of the log", checkTails},
	{"retention", tables | broker, "no stream is in use", checkRetention},
}

// brokerTimeout limits the wait for an answer of the broker. The broker does not answer a user
// without permission.
const brokerTimeout = 3 * time.Second

// stream describes a stream that is in use, or that the Config names.
type stream struct {
	name     string
	nc       *nats.Conn
	handle   jetstream.Stream
	info     *jetstream.StreamInfo // nil if the stream does not exist, or if err is set
	err      error                 // why the stream could not be examined, or nil
	clock    clock                 // the clock of the stream's server
	handlers []subscription        // the handlers that read the stream
	log      bool                  // the stream stores events of the log
	missing  []string              // subjects that no stream stores; only in the stream without a name
}

// maxMissing is the number of subjects without a stream after which useSubjects stops.
const maxMissing = 10

func (s *stream) takes(subject string) bool {
	return s.info != nil && len(wildcard.Uncovered([]string{subject}, s.info.Config.Subjects)) == 0
}

// findStream looks up a stream.
func findStream(ctx context.Context, js jetstream.JetStream, name string) *stream {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	s := &stream{name: name, nc: js.Conn()}
	before := time.Now()
	handle, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		s.err = fmt.Errorf("look up stream %s: %w", name, err)
	default:
		s.handle, s.info = handle, handle.CachedInfo()
		s.clock = measureClock(before, s.info.TimeStamp, time.Now())
	}
	return s
}

// checkBroker examines the server, and the limits of the account.
func checkBroker(ctx context.Context, e *examination) error {
	version, had := e.d.nc.ConnectedServerVersion(), len(e.findings)
	if err := jsremedy.CheckVersion(e.d.nc); err != nil {
		cause, do := jsremedy.Split(err.Error())
		e.fault("", do, "%s", cause)
	}
	js, err := e.js()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	account, err := js.AccountInfo(ctx)
	if do := jsremedy.Do(err); do != "" {
		e.fault("", do, "there is no JetStream on this connection: %v", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the account: %w", err)
	}
	compareTier(e, "", account.Tier)
	for name, tier := range account.Tiers {
		compareTier(e, " (tier "+name+")", tier)
	}
	if len(e.findings) == had {
		e.ok("", "NATS %s, JetStream with %s and %s", version, countOf(account.Streams, "stream"), countOf(account.Consumers, "consumer"))
	}
	return nil
}

// compareTier adds a warning for each limit that is used up to more than the share nearlyFull.
func compareTier(e *examination, of string, t jetstream.Tier) {
	for _, l := range []struct {
		what      string
		used, max float64
	}{
		//guard:doctor-accounts-full-of-storage remove
		{"bytes of storage", float64(t.Store), float64(t.Limits.MaxStore)},
		//guard:doctor-accounts-full-of-memory remove
		{"bytes of memory", float64(t.Memory), float64(t.Limits.MaxMemory)},
		//guard:doctor-accounts-full-of-streams remove
		{"streams", float64(t.Streams), float64(t.Limits.MaxStreams)},
		//guard:doctor-accounts-full-of-consumers remove
		{"consumers", float64(t.Consumers), float64(t.Limits.MaxConsumers)},
	} {
		if l.max > 0 && l.used > nearlyFull*l.max {
			e.warn("account"+of, "raise the limit of the account, or let streams keep less: at the limit, the broker refuses events",
				"%.0f of %.0f %s are used%s", l.used, l.max, l.what, of)
		}
	}
}

func checkStreams(ctx context.Context, e *examination) error {
	all, err := e.loadStreams(ctx)
	for _, s := range all {
		if s.name == "" || s.info != nil || s.err != nil {
			continue
		}
		why := "was named"
		if len(s.handlers) > 0 {
			why = "is read by handler " + s.handlers[0].Handler
		}
		e.fault(s.name, fmt.Sprintf("postroom stream ensure %s --subjects …", text.Word(s.name)), "the stream %s, and does not exist", why)
	}
	return errors.Join(err, e.each(ctx, func(s *stream) { checkStream(e, s) }))
}

// checkStream examines the configuration of a stream.
func checkStream(e *examination, s *stream) {
	cfg, had := s.info.Config, len(e.findings)
	for _, fault := range natsjs.ExamineStream(cfg) {
		remedy := fault.Remedy
		//guard:doctor-names-no-risk-that-no-relay-accepts true
		if slices.Contains(natsjs.Risks(), fault.Risk) {
			remedy += fmt.Sprintf(" (nats stream edit %s); a relay refuses it, unless --accept %s", s.name, fault.Risk)
		}
		e.fault(s.name, remedy, "%s", fault.Problem)
	}
	for _, sub := range s.handlers {
		if sub.Ordered && cfg.Retention != jetstream.LimitsPolicy {
			e.fault(s.name, "set its retention to limits", "it keeps events only for its consumers, and the ordered handler %s has no durable consumer", sub.Handler)
		}
	}
	if cluster := e.d.nc.ConnectedClusterName(); cluster != "" && cfg.Replicas < 2 {
		e.warn(s.name, fmt.Sprintf("nats stream edit %s --replicas 3", s.name), "only the server %s of the cluster stores it: if that server is lost, so are its events", cluster)
	}
	if c := s.info.Cluster; c != nil {
		for _, peer := range c.Replicas {
			if peer.Offline || !peer.Current {
				e.warn(s.name, "look at the server "+peer.Name, "its replica on %s is not up to date", peer.Name)
			}
		}
	}
	//guard:doctor-streams-full-of-bytes false
	if cfg.MaxBytes > 0 && float64(s.info.State.Bytes) > nearlyFull*float64(cfg.MaxBytes) {
		e.warn(s.name, "raise its limit, or give it a max_age", "%d of %d bytes are used: when it is full, it refuses events", s.info.State.Bytes, cfg.MaxBytes)
	}
	//guard:doctor-streams-full-of-messages false
	if cfg.MaxMsgs > 0 && float64(s.info.State.Msgs) > nearlyFull*float64(cfg.MaxMsgs) {
		e.warn(s.name, "raise its limit, or give it a max_age", "it has %d of %d messages: when it is full, it refuses events", s.info.State.Msgs, cfg.MaxMsgs)
	}
	if len(e.findings) == had {
		e.ok(s.name, "its settings drop no event, and it has room; its duplicate window is %s. How often the servers sync to disk (sync_interval) was not checked", cfg.Duplicates)
	}
}

// checkSubjects looks for events that no stream stores, and for handlers that no event can reach.
func checkSubjects(ctx context.Context, e *examination) error {
	all, err := e.loadStreams(ctx)
	had := len(e.findings)
	for _, s := range all {
		if len(s.missing) > 0 {
			e.fault("outbox", fmt.Sprintf("postroom stream ensure NAME --subjects %s", text.Word(strings.Join(s.missing, ","))),
				"no stream stores events of %s: they wait in the log", firstOf(s.missing))
		}
	}
	err = errors.Join(err, e.each(ctx, func(s *stream) {
		if len(s.info.Config.Sources) > 0 || s.info.Config.Mirror != nil {
			return // its messages come from another stream
		}
		for _, sub := range s.handlers {
			lacks := slices.DeleteFunc(wildcard.Uncovered(sub.Subjects, s.info.Config.Subjects), func(subject string) bool {
				return len(wildcard.Uncovered(s.info.Config.Subjects, []string{subject})) < len(s.info.Config.Subjects) // the stream stores some of the subjects that this wildcard matches
			})
			if len(lacks) > 0 {
				e.warn(sub.Handler, fmt.Sprintf("postroom stream ensure %s --subjects %s", text.Word(s.name), text.Word(strings.Join(lacks, ","))),
					"the stream %s does not store %s: such events do not reach the handler", s.name, firstOf(lacks))
			}
		}
	}))
	if err == nil && len(e.findings) == had {
		e.ok("", "a stream stores each subject in use")
	}
	return err
}
