package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/relay/broker"
)

// Inspect examines streams as [broker.Publisher] describes. If it gets names, it reads only these
// streams, so the connection's user needs no permission to read other streams.
func (p *publisher) Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error) {
	return p.inspect(ctx, streams, subjects, ExamineStream)
}

// InspectAtomic examines streams as [broker.Publisher] describes.
func (p *publisher) InspectAtomic(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error) {
	covered, faults, err = p.inspect(ctx, streams, subjects, examineAtomicStream)
	if version := p.nc.ConnectedServerVersion(); jsremedy.IsOlder(version, atomicMinor, 0) {
		faults = append(faults, postroom.Unrecoverable(fmt.Errorf(
			"the NATS server has version %s, and atomic batches came with %s: upgrade it, or publish without relay.Config.Atomic", version, minAtomic)))
	}
	return covered, faults, err
}

// inspect examines streams with the given function.
func (p *publisher) inspect(ctx context.Context, streams, subjects []string, examine func(jetstream.StreamConfig) []*StreamError,
) (covered bool, faults []error, err error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return false, nil, fmt.Errorf("jetstream: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, 2*ackTimeout)
	defer cancel()
	look := inspection{js: js, examine: examine, subjects: subjects}
	if len(streams) > 0 {
		err = look.byName(asking, streams, subjects)
	} else {
		err = look.bySubject(asking, subjects)
	}
	if err == nil {
		//guard:the-check-finds-full-accounts remove
		err = look.checkAccount(asking)
	}
	err = p.unanswered(ctx, err)
	//guard:the-check-compares-the-largest-message false
	if most := p.nc.MaxPayload(); most > 0 && most < maxMessage {
		look.faults = append(look.faults, postroom.Unrecoverable(fmt.Errorf(
			"%w: the NATS server refuses messages above %d bytes (max_payload), and an event can have %d with its headers: set max_payload to 1MB, or accept the risk: natsjs.SmallMessages in relay.Config.AcceptRisks, --accept small-messages for 'postroom relay'",
			SmallMessages, most, maxMessage)))
	}
	covered = len(wildcard.Uncovered(subjects, look.covered)) < len(subjects)
	return covered, look.faults, err
}

// inspection is one check of the streams.
type inspection struct {
	js       jetstream.JetStream
	examine  func(jetstream.StreamConfig) []*StreamError
	subjects []string                 // the subjects in use
	streams  []jetstream.StreamConfig // the streams that were examined so far
	covered  []string                 // the subjects that these streams take
	faults   []error
}

// byName examines the streams with the given names.
func (i *inspection) byName(ctx context.Context, streams, subjects []string) error {
	for _, name := range streams {
		if err := i.stream(ctx, name); err != nil {
			return err
		}
	}
	if missing := wildcard.Uncovered(subjects, i.covered); len(missing) > 0 {
		i.faults = append(i.faults, fmt.Errorf("%s: not in the streams of Config.Streams (%s): %w",
			firstOf(missing), strings.Join(streams, ", "), broker.ErrNoStream))
	}
	return nil
}

// maxMissing is the number of subjects without a stream after which the search ends, if another subject
// has one. Otherwise the search goes on while it has time: if no subject had a stream, the relay would keep
// all events in memory, and a producer of many such subjects would stop it.
const maxMissing = 10

// bySubject examines the streams that take the given subjects.
func (i *inspection) bySubject(ctx context.Context, subjects []string) error {
	var missing []string
search:
	for _, subject := range subjects {
		if len(wildcard.Uncovered([]string{subject}, i.covered)) == 0 {
			continue
		}
		name, err := i.js.StreamNameBySubject(ctx, subject)
		if err == nil {
			err = i.stream(ctx, name)
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, subject)
		case err != nil && len(missing) >= maxMissing && errors.Is(err, context.DeadlineExceeded):
			break search
		case err != nil:
			return explain("look for the stream of "+subject, err)
		}
		//guard:many-subjects-without-a-stream-hide-no-other = len(missing) >= maxMissing
		if len(missing) >= maxMissing && len(i.covered) > 0 {
			break
		}
	}
	if len(missing) > 0 {
		i.faults = append(i.faults, fmt.Errorf("%s: %w", firstOf(missing), broker.ErrNoStream))
	}
	return nil
}

// stream examines one stream.
func (i *inspection) stream(ctx context.Context, name string) error {
	s, err := i.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.faults = append(i.faults, fmt.Errorf("stream %s does not exist: %w", name, broker.ErrNoStream))
		return nil
	case err != nil:
		return explain("look at stream "+name, err)
	}
	cfg := s.CachedInfo().Config
	i.streams = append(i.streams, cfg)
	i.covered = append(i.covered, cfg.Subjects...)
	for _, fault := range i.examine(cfg) {
		i.faults = append(i.faults, fault)
	}
	//guard:the-check-finds-full-streams = nil
	return i.checkRoom(ctx, s)
}

// explain adds advice to a timeout: a missing permission may be the cause, because the broker does
// not answer a request that is not allowed.
func explain(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w (may this user publish to $JS.API.STREAM.INFO.* and, unless Config.Streams is set, $JS.API.STREAM.NAMES?)", what, err)
	}
	return fmt.Errorf("%s: %w", what, jsremedy.Explain(err))
}

// firstOf lists the first few subjects.
func firstOf(subjects []string) string {
	const most = 5
	text := "subjects " + strings.Join(subjects[:min(most, len(subjects))], ", ")
	if len(subjects) > most {
		text += " and others"
	}
	return text
}
