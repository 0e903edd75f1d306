package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/outbound"
	"github.com/postroom/postroom/webhook/internal/lanes"
)

// ClassDisabled is the class of dead events whose endpoint is disabled. To send such events, enable
// the endpoint and replay the events.
const ClassDisabled = "endpoint_disabled"

// mostRetryAfter limits the wait for which an endpoint can ask with Retry-After.
const mostRetryAfter = 24 * time.Hour

// target has the data of an endpoint that one attempt needs.
type target struct {
	id       string
	account  string
	url      string
	secrets  []string
	disabled bool
	fails    bool    // the last attempt failed
	paused   float64 // for how many more seconds the endpoint is paused
	status   int     // of the last recorded answer; 0 if there was none
	stale    bool    // if this attempt succeeds, it must change the row of the endpoint
}

// receipt is the result of a delivery's step: the answer of the endpoint.
type receipt struct {
	Status int   `json:"status"` // the HTTP status
	Millis int64 `json:"ms"`     // the time from the DNS lookup until the status arrived
}

// deliver is the external handler. It tries once to send an event to its endpoint.
func (s *Sender) deliver(ctx context.Context, attempt *inbox.Attempt) error {
	err := s.try(ctx, attempt)
	s.count(ctx, outcomeOf(err))
	return err
}

// count counts an attempt, or an event that no endpoint gets, by its outcome.
func (s *Sender) count(ctx context.Context, outcome string) {
	s.delivered.Add(context.WithoutCancel(ctx), 1, telemetry.With(telemetry.Handler.String(s.cfg.Name), telemetry.Outcome.String(outcome)))
}

// outcomeOf returns the outcome of an attempt, for metrics.
func outcomeOf(err error) string {
	_, isDisabled := errors.AsType[*cause.ClassError](err)
	_, snoozes := postroom.SnoozeDelay(err)
	switch {
	case err == nil:
		return "delivered"
	case isDisabled:
		return "disabled"
	case errors.Is(err, postroom.ErrPermanent):
		return "blocked"
	case snoozes:
		return "snoozed"
	}
	return "failed"
}

// try makes an attempt if the endpoint is enabled, not paused, and its lane has room.
func (s *Sender) try(ctx context.Context, attempt *inbox.Attempt) error {
	to, err := s.read(ctx, attempt.Event.Key)
	switch {
	case errors.Is(err, ErrUnknownEndpoint):
		return s.unsent(ctx, attempt, err)
	case err != nil:
		return err
	//guard:webhook-disabled-endpoint-gets-nothing false
	case to.disabled:
		return s.unsent(ctx, attempt, disabled(to.id))
	case to.paused > 0:
		return postroom.SnoozeKey(spread(time.Duration(to.paused*float64(time.Second))), lanes.SlowPace, &cause.WaitError{Err: pausedBy(to)})
	}
	size := size(attempt.Event)
	if w, ok := s.lanes.Enter(to.id, to.account, size, to.fails); !ok {
		return s.noRoom(to, w)
	}
	success := false
	defer func() { s.lanes.Leave(to.id, to.account, size, success) }()
	r, err := inbox.Step(ctx, attempt, "deliver", func(ctx context.Context, _ string) (receipt, error) { return s.send(ctx, attempt, to) })
	if err != nil {
		return err
	}
	success = true
	// Another attempt may have failed since s.read, before the answer to this attempt came.
	//guard:webhook-success-ends-a-failure-that-began-meanwhile false
	if !to.stale {
		now, err := s.read(ctx, to.id)
		to.stale = err != nil || now.stale // after an error, the statement of OnSuccess finds out
	}
	if to.stale && r.Status != 0 { // an operator can record that the event was delivered, without an answer
		told := false // the transaction may be repeated
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return s.succeeded(ctx, tx, attempt.Event, to, r, &told) })
	}
	return nil
}

// unsent returns the reason why an event can no longer be sent. If an earlier attempt delivered the
// event, and could not record that the event is done, unsent returns nil.
func (s *Sender) unsent(ctx context.Context, attempt *inbox.Attempt, reason error) error {
	//guard:webhook-event-that-was-delivered-is-not-dead do @; err = reason
	_, err := inbox.Step(ctx, attempt, "deliver", func(context.Context, string) (receipt, error) { return receipt{}, postroom.NotApplied(reason) })
	if errors.Is(err, inbox.ErrOutcomeUnknown) { // an operator edited the event, so only the earlier content may have been delivered
		return reason
	}
	return err
}

// pausedBy returns an error that says what paused an endpoint.
func pausedBy(to *target) error {
	//guard:webhook-waiting-event-shows-what-paused-its-endpoint false
	if to.status != 0 {
		return fmt.Errorf("webhook: endpoint %s is paused, because it answered %d", to.id, to.status)
	}
	return fmt.Errorf("webhook: endpoint %s is paused, because it gave no answer", to.id)
}

// noRoom returns the error that makes an event wait, because the running deliveries to its endpoint
// have reached their limit.
func (s *Sender) noRoom(to *target, w lanes.Wait) error {
	err := &cause.WaitError{Err: fmt.Errorf("webhook: the limit of running deliveries to endpoint %s, or to all endpoints of its account, is reached", to.id)}
	after := spread(s.waitFor(to, w.Busy))
	//guard:a-slow-endpoint-holds-up-no-other false
	if w.Many {
		return postroom.SnoozeKey(after, w.Pace, err)
	}
	return postroom.Snooze(after, err)
}

// waitFor returns how long an event waits if the deliveries to its endpoint have reached their
// limit. If the endpoint fails, one delivery tests whether the endpoint works again, and the event
// waits as long as that delivery may take. Otherwise the event waits for three times busy: at
// least 100 ms, at most Timeout. So an event whose endpoint hangs asks for room only a few times.
func (s *Sender) waitFor(to *target, busy time.Duration) time.Duration {
	if to.fails {
		return s.cfg.Timeout
	}
	return min(max(3*busy, 100*time.Millisecond), s.cfg.Timeout)
}

// spread adds up to half of d, at random, so that events that waited together do not all come back
// at the same moment.
func spread(d time.Duration) time.Duration { return d + rand.N(d/2+time.Millisecond) }

// read reads the endpoint. If the database does not answer, the event waits and loses no attempt.
func (s *Sender) read(ctx context.Context, id string) (*target, error) {
	to := &target{id: id}
	err := s.endpoints.db.QueryRow(ctx, s.endpoints.sql.Endpoint, id).Scan(&to.account, &to.url, &to.secrets, &to.disabled, &to.fails, &to.paused, &to.stale, &to.status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, postroom.Permanent(fmt.Errorf("webhook: %w: %s", ErrUnknownEndpoint, id))
	case err != nil:
		return nil, postroom.Snooze(time.Second, fmt.Errorf("webhook: read endpoint %s: %w", id, s.endpoints.explain(err)))
	}
	return to, nil
}

func disabled(id string) error {
	return postroom.Permanent(&cause.ClassError{Class: ClassDisabled, Err: fmt.Errorf("webhook: endpoint %s is disabled", id)})
}

// send makes the request, and returns a receipt.
func (s *Sender) send(ctx context.Context, attempt *inbox.Attempt, to *target) (receipt, error) {
	req, err := request(ctx, attempt.Event, to)
	if err != nil {
		return receipt{}, postroom.NotApplied(postroom.Permanent(fmt.Errorf("webhook: endpoint %s: %w", to.id, err)))
	}
	began := time.Now()
	resp, err := s.out.RoundTrip(req)
	took := time.Since(began)
	if err != nil {
		return receipt{}, s.unanswered(ctx, attempt, to, err)
	}
	discard(resp)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return receipt{}, s.refused(ctx, attempt, to, resp)
	}
	return receipt{Status: resp.StatusCode, Millis: took.Milliseconds()}, nil
}

// request returns the signed request of an event. Its errors contain no part of the URL or the
// secrets.
func request(ctx context.Context, ev postroom.Event, to *target) (*http.Request, error) {
	u, err := checkURL(to.url)
	if err != nil {
		return nil, err
	}
	body, err := bodyOf(ev)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Postroom")
	// The time is from this process's clock. The receiver compares the time with its own clock.
	if err := Sign(Standard(to.secrets...), req.Header, Message{ID: webhookID(ev), Time: time.Now()}, body); err != nil {
		return nil, err
	}
	return req, nil
}

// webhookID returns the event's id. The id is the same in each attempt and replay. It must fit into
// a header. It must not have a dot: receivers refuse an id with a dot, because they could read a
// part of the id as the signed time. If the event's id breaks one of these rules, webhookID returns
// a digest of the event's source and id.
func webhookID(ev postroom.Event) string {
	if ev.ID != "" && !strings.ContainsFunc(ev.ID, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' }) {
		return ev.ID
	}
	sum := sha256.Sum256([]byte(ev.Source + " " + ev.ID))
	return "sha256-" + hex.EncodeToString(sum[:16])
}

// bodyOf returns the body in the format that Standard Webhooks recommends. If the data is not JSON,
// the body contains it in base64.
func bodyOf(ev postroom.Event) ([]byte, error) {
	envelope := struct {
		Type   string          `json:"type"`
		Time   time.Time       `json:"timestamp"`
		Data   json.RawMessage `json:"data,omitempty"`
		Binary []byte          `json:"data_base64,omitempty"`
	}{Type: ev.Type, Time: ev.Time.UTC()}
	if ev.Time.IsZero() {
		envelope.Time = ev.LoggedAt.UTC()
	}
	if (ev.ContentType == "" || isJSON(ev.ContentType)) && json.Valid(ev.Data) {
		envelope.Data = ev.Data
	} else {
		envelope.Binary = ev.Data
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(envelope)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// isJSON reports whether a content type is that of JSON. The outbox decides in the same way.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// discard reads a little of a response and closes it, to use the connection again.
func discard(resp *http.Response) {
	limit := time.AfterFunc(250*time.Millisecond, func() { _ = resp.Body.Close() })
	defer limit.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10) // an error makes no difference: the content is not used
	_ = resp.Body.Close()
}

// unanswered returns the error for the inbox if no answer came. It records the endpoint's failures.
func (s *Sender) unanswered(ctx context.Context, attempt *inbox.Attempt, to *target, err error) error {
	err = fmt.Errorf("webhook: endpoint %s: %w", to.id, err)
	switch {
	case ctx.Err() != nil: // this process stops, or has lost its claim on the event
		return err
	case errors.Is(err, errBlocked):
		return postroom.NotApplied(postroom.Permanent(err))
	case isOursToMend(ctx, s.cfg.Resolver, err):
		return postroom.NotApplied(postroom.Snooze(unsentWait, err))
	}
	return s.failed(ctx, attempt, to, failure{err: err, outage: true})
}

// refused records an answer that is not a success, and returns the error for the inbox.
func (s *Sender) refused(ctx context.Context, attempt *inbox.Attempt, to *target, resp *http.Response) error {
	f := failure{status: resp.StatusCode, err: fmt.Errorf("webhook: endpoint %s answered %d", to.id, resp.StatusCode)}
	switch status := resp.StatusCode; {
	case status == http.StatusGone:
		reason := "it answered 410 Gone"
		//guard:webhook-gone-disables remove
		f.gone = &reason
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		f.outage = true
		if wait, ok := outbound.ParseRetryAfter(resp.Header, time.Now()); ok {
			wait = min(wait, mostRetryAfter)
			f.wait = &wait
		}
	}
	return s.failed(ctx, attempt, to, f)
}

// failure describes a failed attempt.
type failure struct {
	err    error
	status int            // 0 if there was no answer
	outage bool           // the failure concerns the endpoint, not only the event
	wait   *time.Duration // the wait that the endpoint asked for; nil if it asked for no wait
	gone   *string        // the reason to disable the endpoint at once; nil if there is no reason
}

// failed records a failed attempt in the endpoint's row, and returns the error for the inbox.
func (s *Sender) failed(ctx context.Context, attempt *inbox.Attempt, to *target, f failure) error {
	var isDisabled, now, began bool
	var reason string
	var pause *float64
	if f.wait != nil {
		seconds := f.wait.Seconds()
		pause = &seconds
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.endpoints.db.QueryRow(noting, s.endpoints.sql.Failed, to.id, f.status, pause, f.outage, f.gone, disableAfter, s.cfg.Name, clock.Latest()).
		Scan(&isDisabled, &now, &began, &reason)
	switch {
	//guard:webhook-endpoint-that-was-removed-meanwhile-is-gone false
	case errors.Is(err, pgx.ErrNoRows):
		return postroom.Permanent(fmt.Errorf("%w, and %w", f.err, ErrUnknownEndpoint))
	case err != nil:
		f.err = errors.Join(f.err, fmt.Errorf("webhook: record that endpoint %s failed: %w", to.id, s.endpoints.explain(err)))
	case now:
		s.cfg.Logger.WarnContext(ctx, "webhook endpoint disabled", "handler", s.cfg.Name, "endpoint", to.id, "reason", reason)
	case began:
		//guard:webhook-endpoint-that-begins-to-fail-is-told remove
		s.cfg.Logger.WarnContext(ctx, "webhook endpoint fails", "handler", s.cfg.Name, "endpoint", to.id, "error", f.err)
	}
	switch {
	case isDisabled:
		return postroom.Permanent(&cause.ClassError{Class: ClassDisabled, Err: fmt.Errorf("%w, and the endpoint is disabled: %s", f.err, reason)})
	//guard:webhook-retry-after false
	case f.wait != nil:
		//guard:webhook-retry-after-floor 1 = @1
		return postroom.RetryAfter(max(*f.wait, s.schedule.Delay(attempt.Number)), f.err)
	}
	return f.err
}

// succeeded records a success in the endpoint's row. It runs only if to.stale is true. The value told
// says whether it has logged that the endpoint works again.
func (s *Sender) succeeded(ctx context.Context, tx pgx.Tx, ev postroom.Event, to *target, r receipt, told *bool) error {
	var failed bool
	err := tx.QueryRow(ctx, s.endpoints.sql.Succeeded, to.id, r.Status, s.cfg.Name, identity.Bounded(dedupeKey(ev))).Scan(&failed)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the endpoint is gone, or a later success is recorded
	case err != nil:
		return fmt.Errorf("webhook: record that endpoint %s works: %w", to.id, err)
	//guard:webhook-endpoint-that-works-again-is-told-once 2 true
	case failed && !*told:
		*told = true
		s.cfg.Logger.InfoContext(ctx, "webhook endpoint works again", "handler", s.cfg.Name, "endpoint", to.id)
	}
	return nil
}
