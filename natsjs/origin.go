package natsjs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/relay/broker"
)

// An origin says whether a stream that answered is one of the JetStream that the publisher asks.
// Another JetStream, at a leaf node or in another domain, may have a stream that takes the same
// subjects. It answers too, sometimes first, and what it stores counts for nothing: the relay never
// looks at its streams. It has another domain, or its stream has a name that ours does not have.
type origin struct {
	name, domain string
	foreign      bool      // there is no such stream
	until        time.Time // until then, the stream is not looked up again although its answer does not count
}

// originFor is how long answers of a stream are ignored without another lookup. Then a stream of its name
// may have been created, or ours may have another domain.
const originFor = time.Second

// originOf looks up a stream that answered.
func originOf(ctx context.Context, nc *nats.Conn, name string) (origin, error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+name, nil)
	if err != nil {
		return origin{}, fmt.Errorf("look up stream %s, which answered: %w (may this user publish to $JS.API.STREAM.INFO.*?)", name, err)
	}
	var answer struct {
		Domain string          `json:"domain"`
		Config json.RawMessage `json:"config"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Status      int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	err = json.Unmarshal(reply.Data, &answer)
	switch {
	case err != nil || answer.Config == nil && answer.Error == nil:
		return origin{}, fmt.Errorf("look up stream %s, which answered: %w", name, errUnreadable)
	case answer.Error != nil && answer.Error.Code == codeNoStream:
		return origin{name: name, foreign: true, until: time.Now().Add(originFor)}, nil
	case answer.Error != nil:
		return origin{}, fmt.Errorf("look up stream %s, which answered: %w", name,
			&BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description})
	}
	return origin{name: name, domain: answer.Domain, until: time.Now().Add(originFor)}, nil
}

// sent reports whether an answer is of the stream. An error does not name its domain.
func (o origin) sent(a ack, err error) bool {
	//guard:the-acknowledgement-of-another-domain-is-ignored 2.2 true
	return !o.foreign && (err != nil || string(a.domain) == o.domain)
}

// unproven is an answer of a stream that has not been looked up.
type unproven struct {
	of  slotRef
	ack ack
	err error
}

// lookUpOrigins looks up the streams whose answers wait, until ctx ends. A lookup that is not answered
// holds back no other: the user may lack the permission to look up a stream of another JetStream.
func (w *window) lookUpOrigins(ctx context.Context, nc *nats.Conn) {
	var looking sync.WaitGroup
	defer looking.Wait()
	//guard:a-lookup-without-an-answer-holds-back-no-other = make(chan struct{}, 1)
	room := make(chan struct{}, maxLookups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.originDue:
		}
		for _, name := range w.takeUnlooked() {
			select {
			case <-ctx.Done():
				return
			case room <- struct{}{}:
			}
			looking.Go(func() {
				defer func() { <-room }()
				o, err := originOf(ctx, nc, name)
				w.prove(name, o, err)
			})
		}
	}
}

// takeUnlooked returns the names of the streams that must be looked up.
func (w *window) takeUnlooked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.unlooked
	w.unlooked = nil
	return names
}

// prove handles the answers that waited for a lookup.
func (w *window) prove(name string, o origin, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.unproven[name]
	delete(w.unproven, name)
	if err == nil {
		if len(w.origins) >= maxDoubts { // another program made up names: forget all
			clear(w.origins)
		}
		w.origins[name] = o
	}
	for _, u := range waiting {
		g := w.group(u.of)
		switch {
		case g == nil: // it has its outcome
		case err != nil:
			o := failure(fmt.Errorf("%w: %w", broker.ErrUnacknowledged, err))
			//guard:a-refused-lookup-refuses-no-event remove
			o.Class = broker.Unknown // a refusal of the lookup is none of the event
			w.count(u.of, g, o)
		default:
			w.take(u.of, g, u.ack, u.err)
		}
	}
}

// take handles the answer of a stream for a group. If the stream was not looked up yet, the answer
// waits. If it is a stream of another JetStream, the group goes on waiting for ours.
func (w *window) take(p slotRef, g *ackGroup, a ack, err error) {
	o := broker.Outcome{Class: broker.Stored, Duplicate: a.duplicate, Sequence: a.seq}
	if err != nil {
		o = failure(err)
	}
	from, known := w.origins[string(a.stream)]
	switch {
	//guard:an-origin-that-does-not-fit-is-looked-up-again 2 false
	case !known, !from.sent(a, err) && time.Now().After(from.until):
		w.await(p, g, a, err)
	//guard:the-acknowledgement-of-another-jetstream-is-ignored false
	case !from.sent(a, err):
		w.ignore(g)
	default:
		o.Stream = from.name // one allocation for each name
		w.count(p, g, o)
	}
}

// await keeps an answer until its stream was looked up.
func (w *window) await(p slotRef, g *ackGroup, a ack, err error) {
	name := string(a.stream)
	waiting, asked := w.unproven[name]
	if !asked {
		if len(w.unproven) >= maxDoubts { // another program made up names
			w.ignore(g)
			return
		}
		w.unlooked = append(w.unlooked, name)
		signal(w.originDue)
	}
	w.unproven[name] = append(waiting, unproven{p, a, err})
}

// ignore handles an answer that is not of a stream that takes the group's events: the answer of our
// stream may still come. If it is not known which stream that is, there may be none.
func (w *window) ignore(g *ackGroup) {
	for _, f := range g.messages {
		if f.AckGroup == "" {
			w.doubt(f.Subject)
		}
	}
}
