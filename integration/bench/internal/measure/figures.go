package measure

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/postroom/postroom/integration/bench/internal/machine"
	"github.com/postroom/postroom/integration/bench/internal/sagas"
	"github.com/postroom/postroom/integration/bench/internal/webhooks"
)

// A sample is the result of one measurement.
type sample struct {
	value float64
	p50   float64 // for latencies: their median (value is their 99th percentile); for other measurements: 0
	cpu   float64 // the processor time of an idle relay, in percent of a core
	note  string  // a text that the report adds to the conditions
}

// addNote adds a text to the note of the sample.
func (s *sample) addNote(text string) {
	if s.note != "" {
		s.note += "; "
	}
	s.note += text
}

// A trial makes one measurement, and returns its result.
type trial func(ctx context.Context, b *bench) (sample, error)

// A figure is a measurement that the report shows.
type figure struct {
	name       string
	unit       string
	trial      string // the name of its trial; if empty, the figure's name
	against    string // the name of the trial that is its reference; empty if it has none
	apart      bool   // the figure is measured in a separate process
	synced     bool   // the figure is measured on a broker that syncs every message
	conditions string // one line; describe replaces {events}, {bytes} and other names
}

// References that are not figures themselves.
const (
	rawPublish    = "reference.publish"
	plainTx       = "reference.transaction"
	handOutbox    = "reference.outbox"
	lonelyWrite   = "reference.write"
	directPublish = "reference.direct"
	handLoop      = "reference.loop"
	sharedKeys    = "reference.keys"
	rawSynced     = "reference.publish_fsync"
	plainRequest  = "reference.request"
	handKeys      = "reference.key_table"
	bareRequest   = "reference.request_bare"
	handWebhook   = "reference.webhook"
	handAnswer    = "reference.webhook_latency"
	handWork      = "reference.webhook_jobs"
	handStep      = "reference.saga"
)

// The trial idleRelay measures two figures.
const (
	idleRelay = "relay.idle"
	idleCPU   = "relay.idle_cpu"
)

const drained = "backlog of {events} events of {bytes} bytes of JSON, %s, all CloudEvents headers and a message id; " +
	"from the relay's lease until the last acknowledgement is recorded, {relay}; "

const againstRaw = "reference: PublishMsgAsync of as many messages of {bytes} bytes with message ids, window 1024, no other headers, until the last acknowledgement"

const batched = ", in atomic batches; "

const wroteTx = "{clients} clients, each: begin, insert a row, write one event of {bytes} bytes, which has no ID of its own, commit"

const toAck = "{rate} transactions a second on {clients} clients, each with one event of {bytes} bytes; from the return of commit until the relay is given " +
	"the broker's acknowledgement, relay in the process of the producers; value is the 99th percentile; " +
	"reference: no event is written, and the same bytes are published by the client after its commit, until PublishMsg returns the acknowledgement"

const stocked = "backlog of %s events of {bytes} bytes of JSON in a file stream, distinct keys, all CloudEvents headers and a message id; "

const handled = stocked +
	"one handler with {workers} workers; each effect is one small insert; "

const untilAcked = "from the start of Run until the last effect is committed and acknowledged; "

const requests = "{clients} clients over HTTP on the loopback interface, server and clients in the process that measures, request bodies of {bytes} bytes of JSON; "

const received = "each a webhook of Standard Webhooks with an id of its own, received by package webhook and stored for a handler in another process; %sreference: a receiver written by hand that verifies the signature, inserts a row with the id as its primary key, and answers"

const firsts = requests + "each request with a key of its own; a guard in transaction mode answers it, and its handler %s; "

const pays = "inserts a row and a ledger entry and writes one event of {bytes} bytes"

const inPlain = "reference: the same handler in a plain transaction, a round trip for each statement, begin and commit"

const ordered = "backlog of {backlog} events of {bytes} bytes of JSON in a file stream, {keys} keys in turn, all CloudEvents headers and a message id; " +
	"one ordered handler with {workers} workers; each effect is one small insert; "

const untilSettled = "from the start of Run until all events are stored in held and acknowledged, and run from there: each call noted before and after it, and nothing held; "

// In these measurements the inbox makes only first attempts: the second come an hour later.
const untilHeld = "from the start of Run until the last event has its effect or is held, and is acknowledged, all of them counted; "

const againstLoop = "reference: {workers} workers in a loop without Postroom, over {backlog} such events, each: begin, insert the same inbox row, the same effect, commit, a round trip for each, then acknowledge; the same pool"

// The figures are in the order of the report and of the measurements. Some figures have a floor: a
// worst allowed value (see docs/reference/benchmarks.md). The benchmark measures such a figure
// shortly before or after its reference, because the speed of a machine changes within seconds.
// Names must not change, because programs use them.
//
// A name begins with its group and a dot. Exception: all names "live.*" are in group producer.
var figures = []figure{
	{name: "relay.drain", unit: "events/s", against: rawPublish, conditions: fmt.Sprintf(drained, "distinct keys") + againstRaw},
	{name: "relay.refused", unit: "events/s", against: "relay.drain", conditions: fmt.Sprintf(drained, "5 % with one key and a subject without a stream, all of these end in held and do not count, the others distinct") + "reference: distinct keys"},
	{name: "relay.drain_unkeyed", unit: "events/s", against: rawPublish, conditions: fmt.Sprintf(drained, "no keys") + againstRaw},
	{name: "relay.drain_10_keys", unit: "events/s", against: rawPublish, conditions: fmt.Sprintf(drained, "10 keys in turn") + againstRaw},
	{name: "relay.hot_5", unit: "events/s", against: "relay.drain", conditions: fmt.Sprintf(drained, "5 % with one key, the others distinct") + "reference: distinct keys"},
	{name: "relay.hot_20", unit: "events/s", against: "relay.drain", conditions: fmt.Sprintf(drained, "20 % with one key, the others distinct") + "reference: distinct keys"},
	{name: "relay.atomic", unit: "events/s", against: "relay.drain", conditions: fmt.Sprintf(drained, "distinct keys"+batched+"a stream that allows these") + "reference: single publishes in a window"},
	{name: "relay.atomic_hot_20", unit: "events/s", against: "relay.atomic", conditions: fmt.Sprintf(drained, "20 % with one key, the others distinct"+batched+"a stream that allows these") + "reference: distinct keys"},
	{name: "relay.atomic_fsync", unit: "events/s", against: rawSynced, synced: true, conditions: fmt.Sprintf(drained, "distinct keys"+batched+"a broker that syncs every message before it acknowledges it (sync_interval: always)") +
		"reference: PublishMsgAsync of {synced} messages of {bytes} bytes with message ids to the same broker, window 1024, no other headers, until the last acknowledgement"},
	{name: "relay.idle_statements", trial: idleRelay, unit: "statements/s", apart: true, conditions: "a leading relay without events for {seconds} s, in a process of its own; statements counted in its driver"},
	{name: idleCPU, trial: idleRelay, unit: "% of a core", apart: true, conditions: "a leading relay without events for {seconds} s, in a process of its own; user and system time of that process (getrusage), its Go runtime and its broker connection included"},

	{name: "producer.write", unit: "transactions/s", against: plainTx, conditions: wroteTx + ", a round trip for each; reference: the same without the event, in turns of {turn} with it"},
	{name: "producer.write_by_hand", trial: "producer.write", unit: "transactions/s", against: handOutbox, conditions: wroteTx + ", a round trip for each; reference: the same without Postroom, the event in a table written by hand that has an id, a type, a key, a time, the data and one index, in turns of {turn} with it"},
	{name: "producer.queue", unit: "transactions/s", against: plainTx, conditions: "{clients} clients, each: insert a row, one event of {bytes} bytes, which has no ID of its own, and commit in one batch and one round trip; reference: begin, insert, commit, a round trip for each, without the event, in turns of {turn} with it"},
	{name: "live.writers", unit: "transactions/s", against: lonelyWrite, conditions: wroteTx + ", and call Wake; a relay in the same process publishes meanwhile; reference: the same without a relay"},
	{name: "live.writers_poll", unit: "transactions/s", against: lonelyWrite, conditions: wroteTx + "; a relay in the same process polls and publishes meanwhile; reference: the same without a relay"},

	{name: "latency.wake", unit: "ms", against: directPublish, conditions: "the producer calls Wake after its commit; " + toAck},
	{name: "latency.poll", unit: "ms", against: directPublish, conditions: "no program calls Wake; " + toAck},

	{name: "inbox.transactional", unit: "events/s", against: handLoop, conditions: fmt.Sprintf(handled, "{backlog}") + "one transaction for each event; " + untilAcked + againstLoop},
	{name: "inbox.batched", unit: "events/s", against: handLoop, conditions: fmt.Sprintf(handled, "{batched}") + "{batch} events in one transaction; " + untilAcked + againstLoop},
	{name: "inbox.batched_failing", unit: "events/s", against: "inbox.batched", conditions: fmt.Sprintf(handled, "{batched}") + "{batch} events in one transaction, 1 % of all fail always; " + untilHeld + "reference: none fails"},
	{name: "inbox.failing", unit: "events/s", against: "inbox.transactional", conditions: fmt.Sprintf(handled, "{backlog}") + "one transaction for each event, 30 % of all fail always; " + untilHeld + "reference: none fails"},
	{name: "inbox.external", unit: "events/s", against: "inbox.transactional", conditions: fmt.Sprintf(stocked, "{backlog}") + "one external handler with {callers} workers and one step, a call that takes no time; " + untilSettled + "reference: a transactional handler that makes one small insert"},
	{name: "inbox.ordered", unit: "events/s", against: sharedKeys, conditions: ordered + "from the start of Run until the last effect is committed; reference: the same handler without an order"},
	{name: "inbox.ordered_flaky", unit: "events/s", against: "inbox.ordered", conditions: ordered + "5 % of the events fail at their first attempt and are tried again after 100 ms; from the start of Run until the last effect is committed; reference: none fails"},
	{name: "inbox.ordered_blocked", unit: "events/s", against: "inbox.ordered", conditions: ordered + "{stuck} others wait behind a dead event of their key; from the start of Run until the last effect is committed; reference: none waits"},

	{name: "http.first", unit: "requests/s", against: plainRequest, conditions: fmt.Sprintf(firsts, pays) + inPlain},
	{name: "http.first_by_hand", trial: "http.first", unit: "requests/s", against: handKeys, conditions: fmt.Sprintf(firsts, pays) + "reference: the same handler with a table of keys written by hand, in one transaction: the key inserted before, updated with the answer after, a round trip for each statement, begin and commit"},
	{name: "http.first_bare", unit: "requests/s", against: bareRequest, conditions: fmt.Sprintf(firsts, "inserts one row and nothing else") + inPlain},
	{name: "http.replay", unit: "requests/s", against: "http.first", conditions: requests + "requests with {repeated} keys, all answered before, in turn; reference: each with a key of its own"},

	{name: "webhook.ack", unit: "requests/s", against: handWebhook, conditions: requests + fmt.Sprintf(received, "")},
	{name: "webhook.latency", unit: "ms", against: handAnswer, conditions: requests + fmt.Sprintf(received, "from sending a request until its answer was read; value is the 99th percentile; ")},
	{name: "webhook.effect", unit: "events/s", against: handWork, conditions: "backlog of {webhooks} accepted events of {bytes} bytes of JSON; one handler without a stream with {webhook_workers} workers; each effect is one small insert; from the start of Run until the last effect is committed; reference: as many workers by hand over a table of jobs, each: begin, take the oldest with SKIP LOCKED, the same effect, commit"},

	{name: "saga.step", unit: "steps/s", against: handStep, conditions: "{clients} clients, each: begin, give the saga the reply of one of {processes} processes of 20 steps with a state of {bytes} bytes, which writes the next command, commit; after the last step another process begins; reference: the same by hand, a round trip for each statement: begin, lock a row with step and state, compare the cause, update the row, write the command, commit"},
}

// The map trials has the trials of figures and references, by name.
var trials = map[string]trial{
	rawPublish:            rawTrial(maxEvents),
	"relay.drain":         drainTrial("distinct", 0),
	"relay.drain_unkeyed": drainTrial("none", 0),
	"relay.drain_10_keys": drainTrial("modulo", 10),
	"relay.hot_5":         drainTrial("hot", 20),
	"relay.hot_20":        drainTrial("hot", 5),
	"relay.refused":       refusedTrial(20),
	"relay.atomic":        atomicTrial("distinct", 0),
	"relay.atomic_hot_20": atomicTrial("hot", 5),
	"relay.atomic_fsync":  onSynced(atomicTrial("distinct", 0)),
	rawSynced:             onSynced(rawTrial(maxSynced)),
	idleRelay:             idleTrial,

	plainTx:             txTrial(transactions[plainTx]),
	"producer.write":    txTrial(transactions["producer.write"]),
	"producer.queue":    txTrial(transactions["producer.queue"]),
	handOutbox:          txTrial(transactions[handOutbox]),
	lonelyWrite:         txTrial((*producer).write), // not in turns, because the trials with a relay take no turns either
	"live.writers":      liveTrial(true),
	"live.writers_poll": liveTrial(false),

	directPublish:  directTrial,
	"latency.wake": latencyTrial(true),
	"latency.poll": latencyTrial(false),

	handLoop:                backlogTrial(load{part: singlePart}, loop),
	"inbox.transactional":   inboxTrial(load{part: singlePart}, 0),
	"inbox.batched":         inboxTrial(load{part: batchedPart}, batchSize),
	"inbox.batched_failing": inboxTrial(load{part: batchedPart, failing: rarely}, batchSize),
	"inbox.failing":         inboxTrial(load{part: singlePart, failing: often}, 0),
	"inbox.external":        backlogTrial(load{part: singlePart, external: true}, external),
	sharedKeys:              inboxTrial(load{part: singlePart, keys: keys}, 0),
	"inbox.ordered":         orderedTrial(load{part: singlePart, keys: keys}),
	"inbox.ordered_flaky":   orderedTrial(load{part: singlePart, keys: keys, flaky: flaky}),
	"inbox.ordered_blocked": orderedTrial(load{part: singlePart, keys: keys, stuck: stuck}),

	plainRequest:      httpTrial(false, (*endpoint).unguarded, (*endpoint).pay),
	handKeys:          httpTrial(false, (*endpoint).byHand, (*endpoint).pay),
	bareRequest:       httpTrial(false, (*endpoint).unguarded, (*endpoint).place),
	"http.first":      httpTrial(false, (*endpoint).guarded, (*endpoint).pay),
	"http.first_bare": httpTrial(false, (*endpoint).guarded, (*endpoint).place),
	"http.replay":     httpTrial(true, (*endpoint).guarded, (*endpoint).pay),

	handWebhook:       ackTrial(handWebhooks),
	"webhook.ack":     ackTrial(receivedWebhooks),
	handAnswer:        answerTrial(handWebhooks),
	"webhook.latency": answerTrial(receivedWebhooks),
	handWork:          effectTrial(jobsByHand),
	"webhook.effect":  effectTrial(acceptedEvents),

	handStep: stepTrial(func(_ context.Context, e *endpoint) (*sagas.Steps, error) {
		return sagas.ByHand(e.pool, e.schema, e.data, processes), nil
	}),
	"saga.step": stepTrial(func(ctx context.Context, e *endpoint) (*sagas.Steps, error) {
		return sagas.WithSaga(ctx, e.pool, e.schema, e.data, processes)
	}),
}

// processes is how many processes of a saga there are at a time.
const processes = 200

// stepTrial measures how many steps of sagas the clients make per second.
func stepTrial(prepare func(ctx context.Context, e *endpoint) (*sagas.Steps, error)) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		e, err := openEndpoint(ctx, b)
		if err != nil {
			return sample{}, err
		}
		steps, err := prepare(ctx, e)
		if err != nil {
			return sample{}, err
		}
		return throughput(ctx, b, steps.Do)
	}
}

// Groups returns the names of the groups of figures.
func Groups() []string {
	return []string{"relay", "producer", "latency", "inbox", "http", "webhook", "saga"}
}

// Names returns the names of all figures.
func Names() []string {
	var names []string
	for _, f := range figures {
		if f.possible() {
			names = append(names, f.name)
		}
	}
	return names
}

func (f figure) group() string {
	group, _, _ := strings.Cut(f.name, ".")
	if group == "live" {
		return "producer"
	}
	return group
}

// measure returns the name of the figure's trial.
func (f figure) measure() string { return cmp.Or(f.trial, f.name) }

// value returns the part of a sample that the figure reports.
func (f figure) value(s sample) float64 {
	if f.name == idleCPU {
		return s.cpu
	}
	return s.value
}

// possible reports whether this system can measure the figure.
func (f figure) possible() bool {
	return f.name != idleCPU || machine.CanMeasureTime
}

// chosen returns what c asks for, except figures that need a SyncedURL that c lacks.
func (c Config) chosen() []figure {
	var chosen []figure
	for _, f := range figures {
		if c.wants(f) && (!f.synced || c.Broker.SyncedURL != "") {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// leftOut returns the names of the figures that c asks for and that need a SyncedURL that c lacks.
func (c Config) leftOut() []string {
	var names []string
	for _, f := range figures {
		if c.wants(f) && f.synced && c.Broker.SyncedURL == "" {
			names = append(names, f.name)
		}
	}
	return names
}

// wants reports whether c asks for a figure, and this system can measure the figure.
func (c Config) wants(f figure) bool {
	switch {
	case !f.possible(),
		f.apart && len(c.Self) == 0,
		len(c.Groups) > 0 && !slices.Contains(c.Groups, f.group()),
		len(c.Only) > 0 && !slices.Contains(c.Only, f.name):
		return false
	}
	return true
}

// trialsOf returns the names of the trials for figures, each name once. The reference of a figure
// comes before the figure's trial, unless an earlier figure has the same trial.
func trialsOf(figures []figure) []string {
	var order []string
	for _, f := range figures {
		for _, name := range []string{f.against, f.measure()} {
			if name != "" && !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	return order
}

// describe returns the conditions, with values in place of the names in braces.
func (f figure) describe(cfg Config) string {
	relay := "in the process that measures"
	if cfg.Broker.Where != "" {
		relay += ", with the broker " + cfg.Broker.Where
	}
	return strings.NewReplacer(
		"{events}", fmt.Sprint(cfg.Events), "{synced}", fmt.Sprint(min(cfg.Events, maxSynced)), "{bytes}", fmt.Sprint(eventBytes), "{clients}", fmt.Sprint(clients),
		"{rate}", fmt.Sprint(rate), "{turn}", turn.String(), "{seconds}", fmt.Sprint(cfg.Span.Seconds()), "{relay}", relay,
		"{workers}", fmt.Sprint(workers), "{callers}", fmt.Sprint(callers), "{batch}", fmt.Sprint(batchSize),
		"{keys}", fmt.Sprint(keys), "{repeated}", fmt.Sprint(repeated), "{stuck}", fmt.Sprint(stuck),
		"{processes}", fmt.Sprint(processes), "{webhooks}", fmt.Sprint(cfg.Events/webhookPart), "{webhook_workers}", fmt.Sprint(webhooks.Workers),
		"{backlog}", fmt.Sprint(cfg.Events/singlePart), "{batched}", fmt.Sprint(cfg.Events/batchedPart),
	).Replace(f.conditions)
}

// collect frees the garbage of a measurement, so that it does not slow the next one.
func collect() { runtime.GC() }
