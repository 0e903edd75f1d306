//go:build linux || darwin

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/identity"
)

// An observer examines everything when the faults are over.
type observer struct{ *stage }

// observe reads back everything from the databases and from every server.
func (s observer) observe(ctx context.Context, found *checker.State) error {
	if err := s.observeShop(ctx, found); err != nil {
		return err
	}
	if err := s.observeBooks(ctx, found); err != nil {
		return err
	}
	found.Streams = make(map[string][]checker.Message)
	for i := range s.brokers.Len() {
		messages, err := s.readStream(ctx, s.brokers.Name(i))
		if err != nil {
			return fmt.Errorf("read the stream of %s: %w", s.brokers.Name(i), err)
		}
		found.Streams[s.brokers.Name(i)] = messages
	}
	return s.keepTables(ctx, found.Streams)
}

func (s observer) observeShop(ctx context.Context, found *checker.State) error {
	type change struct {
		Event  string
		Key, N int
		Poison string
		Later  bool
	}
	changes, err := rig.Collect[change](ctx, s.db.shop, "SELECT event, key, n, poison, later FROM change")
	if err != nil {
		return err
	}
	for _, c := range changes {
		found.Domain = append(found.Domain, checker.Event{ID: c.Event, Key: c.Key, N: c.N, Poison: c.Poison, Later: c.Later})
	}
	found.Log, err = rig.Collect[checker.LogEntry](ctx, s.db.shop,
		"SELECT o.event_id, o.seq <= r.high AND NOT r.pending @> o.seq FROM postroom.outbox o, postroom.relay r ORDER BY o.seq")
	if err != nil {
		return err
	}
	if found.Archive, err = held(ctx, s.db.shop, "SELECT "+heldColumns+" FROM postroom.archive"); err != nil {
		return err
	}
	found.Marks, err = rig.Collect[checker.Mark](ctx, s.db.shop, "SELECT epoch, high FROM witness ORDER BY serial")
	return err
}

func (s observer) observeBooks(ctx context.Context, found *checker.State) (err error) {
	var instance string
	if err := s.db.books.Pool.QueryRow(ctx, "SELECT id::text FROM postroom.instance").Scan(&instance); err != nil {
		return err
	}
	for _, name := range workload.Handlers() {
		h := checker.Handler{Name: name, Consumer: identity.Consumer(instance, name)}
		if name == workload.Books {
			h.Ordered, h.Consumer = true, reader
		}
		found.Handlers = append(found.Handlers, h)
	}
	found.Handlers = append(found.Handlers, checker.Handler{Name: workload.Vendor, Inbox: workload.Letters})
	type effect struct {
		Handler, Event string
		Key, N         int
	}
	effects, err := rig.Collect[effect](ctx, s.db.books, "SELECT handler, event, key, n FROM effect ORDER BY serial")
	if err != nil {
		return err
	}
	found.Effects = make(map[string][]checker.Event)
	for _, e := range effects {
		found.Effects[e.Handler] = append(found.Effects[e.Handler], checker.Event{ID: e.Event, Key: e.Key, N: e.N})
	}
	if found.Held, err = held(ctx, s.db.books, "SELECT "+heldColumns+" FROM postroom.held"); err != nil {
		return err
	}
	archive, err := held(ctx, s.db.books, "SELECT "+heldColumns+" FROM postroom.archive")
	if err != nil {
		return err
	}
	found.Archive = append(found.Archive, archive...)
	if found.OpenReplays, err = s.db.books.Number(ctx, "SELECT count(*) FROM postroom.replay WHERE state = 'running'"); err != nil {
		return err
	}
	n, err := s.db.books.Number(ctx, "SELECT coalesce(sum(events), 0)::int FROM postroom.audit WHERE action = 'replay'")
	found.Replayed = int64(n)
	return err
}

const heldColumns = "handler, event_id, coalesce(class, ''), dead_at IS NOT NULL, attempts, coalesce(jsonb_array_length(failures::jsonb), 0), octet_length(data)"

// held returns events that a database holds or has archived.
func held(ctx context.Context, db *rig.Database, sql string) (all []checker.Held, err error) {
	type row struct {
		Handler, Event, Class string
		Dead                  bool
		Attempts, Failures    int
		Bytes                 int
	}
	rows, err := rig.Collect[row](ctx, db, sql)
	for _, r := range rows {
		all = append(all, checker.Held{
			Event: checker.Event{ID: r.Event, Handler: r.Handler, Class: r.Class},
			Dead:  r.Dead, Attempts: r.Attempts, Failures: r.Failures, Bytes: r.Bytes,
		})
	}
	return all, err
}

// addCalls adds the calls that the vendor carried out to the effects.
func addCalls(found *checker.State, history []checker.Record) {
	for _, r := range history {
		if r.What == checker.Call {
			found.Effects[workload.Vendor] = append(found.Effects[workload.Vendor], r.Events...)
		}
	}
}

// reads is how many messages of a stream readStream requests at the same time.
const reads = 64

// readStream reads every message that one server has, from that server. Only the leader of a stream
// answers, so readStream first makes that server the leader.
func (s observer) readStream(ctx context.Context, server string) (all []checker.Message, err error) {
	var first, last uint64
	err = rig.Again(ctx, rig.Patience, "lead the stream", func(ctx context.Context) error {
		str, err := s.client.JS.Stream(ctx, workload.Stream)
		if err != nil {
			return err
		}
		info := str.CachedInfo()
		first, last = info.State.FirstSeq, info.State.LastSeq
		if s.opt.nodes == 1 || info.Cluster != nil && info.Cluster.Leader == server {
			return nil
		}
		wish := fmt.Sprintf(`{"placement": {"preferred": %q}}`, server)
		_, err = s.client.Conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+workload.Stream, []byte(wish))
		return errors.Join(fmt.Errorf("%s does not lead", server), err)
	})
	if err != nil || last < first {
		return nil, err
	}
	type slot struct {
		m   checker.Message
		yes bool
	}
	slots := make([]slot, last-first+1)
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, failed := first, error(nil)
	for range reads {
		wg.Go(func() {
			for {
				mu.Lock()
				seq := next
				next++
				stop := failed != nil
				mu.Unlock()
				if stop || seq > last {
					return
				}
				m, yes, err := s.message(ctx, seq)
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				slots[seq-first] = slot{m, yes}
			}
		})
	}
	wg.Wait()
	for _, slot := range slots {
		if slot.yes {
			all = append(all, slot.m)
		}
	}
	return all, failed
}

// message asks the stream's leader for a message. If the sequence has no message, or the message is
// not an event, the result event is false.
func (s observer) message(ctx context.Context, seq uint64) (m checker.Message, event bool, err error) {
	var answer struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Message struct {
			Subject string `json:"subject"`
			Headers []byte `json:"hdrs"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	err = rig.Again(ctx, rig.Patience, "read a message", func(ctx context.Context) error {
		reply, err := s.client.Conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+workload.Stream, fmt.Appendf(nil, `{"seq": %d}`, seq))
		if err != nil {
			return err
		}
		return json.Unmarshal(reply.Data, &answer)
	})
	const notFound = 10037
	switch {
	case err != nil:
		return m, false, err
	case answer.Error != nil && answer.Error.Code == notFound:
		return m, false, nil
	case answer.Error != nil:
		return m, false, errors.New(answer.Error.Description)
	case isLease(answer.Message.Subject):
		return m, false, nil
	}
	headers, err := nats.DecodeHeadersMsg(answer.Message.Headers)
	if err != nil {
		return m, false, fmt.Errorf("message %d: %w", seq, err)
	}
	b, err := workload.Read(answer.Message.Data)
	if err != nil {
		return m, false, fmt.Errorf("message %d: %w", seq, err)
	}
	return checker.Message{Event: b.Event(headers.Get("ce-id")), Seq: seq, Republished: headers.Get("postroom-republish") != ""}, true, nil
}

// leaked returns the places that contain the canary, although they must not contain payloads or
// URLs. It searches logs, journals, and the failures that are stored with events. The logs also
// show leaks in metrics: if a metric of a process contains the canary, the process logs it.
func (s observer) leaked(ctx context.Context) (places []string, err error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if !strings.HasSuffix(name, ".log") && !strings.HasSuffix(name, checker.Journals) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if at := bytes.Index(text, []byte(s.canary)); at >= 0 {
			places = append(places, fmt.Sprintf("%s, line %d", filepath.Base(name), 1+bytes.Count(text[:at], []byte("\n"))))
		}
	}
	for name, db := range map[string]*rig.Database{"shop": s.db.shop, "books": s.db.books} {
		for _, table := range []string{"held", "archive"} {
			n, err := db.Number(ctx, "SELECT count(*) FROM postroom."+table+" WHERE strpos(failures::text, $1) > 0", s.canary)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				places = append(places, fmt.Sprintf("the failures of %d events in %s of %s", n, table, name))
			}
		}
	}
	return places, nil
}
