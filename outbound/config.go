package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// Config tunes a [Transport]. The zero value is ready to use, and meant for calls
// that somebody waits for; [Background] is for those that nobody waits for.
//
// Wide because each field is one decision of whoever calls a vendor, and all but two or three
// are left as they are; what belongs together is a type: Protocol, Budget, Breaker, Hosts.
type Config struct {
	// Next makes the attempts. It must not repeat any itself, nor follow redirects.
	//
	// Defaults to a copy of http.DefaultTransport that keeps 32 idle connections
	// for each host.
	Next http.RoundTripper

	// Protocol says how the vendor is given the key of an operation, and what its
	// answers mean. A Transport for several vendors can only have one.
	//
	// Defaults to an Idempotency-Key header.
	Protocol Protocol

	// GenerateKeys has operations by methods that are not idempotent, and that were
	// given no key, get one. It protects against repetitions by this Transport, and
	// not against those after a restart of the process: [WithKey] does.
	GenerateKeys bool

	// Attempts is how often an operation is tried at the most.
	//
	// Defaults to 5.
	Attempts int

	// Schedule says how long to wait between attempts. postroom.Backoff is one.
	//
	// Defaults to Exponential{}: full jitter below 200 ms, 400 ms, 800 ms, 1.6 s.
	Schedule Schedule

	// AttemptTimeout bounds one attempt, until its response has been read.
	//
	// Defaults to 5 seconds.
	AttemptTimeout time.Duration

	// Total bounds an operation: attempts, the waits between them, and reading the
	// response. A wait that would not end in time is not begun.
	//
	// Defaults to 10 seconds.
	Total time.Duration

	// MaxRetryAfter is the longest Retry-After that is waited for. A longer one ends
	// the operation with the response that asks for it.
	//
	// Defaults to 30 seconds.
	MaxRetryAfter time.Duration

	// MaxBody is the most bytes of a request's body that are kept in memory in
	// order to send them again, if the request has no GetBody. A longer one is
	// refused.
	//
	// Defaults to 1 MiB.
	MaxBody int64

	// Budget bounds retries for each host.
	Budget Budget

	// Breaker stops calls to a host that is out of order.
	Breaker Breaker

	// Hosts has this transport share budgets and breakers with others, by host. It
	// brings its own settings of both: Budget and Breaker must be empty beside it.
	//
	// Defaults to some of the transport's own, made of Budget and Breaker.
	Hosts *Hosts

	// Decide has the first word about what an attempt ended with, a response or an
	// error; it must not read the response's body. Repeating a call that may have been
	// acted on is never done at its word: see [Repeatable].
	Decide func(resp *http.Response, err error) Decision

	// Refresh returns a new value for the Authorization header. It is called once
	// for an operation that is answered 401, which is then tried again with it.
	Refresh func(req *http.Request) (authorization string, err error)

	// TimeoutHeader names a header that tells the vendor how many milliseconds the
	// attempt has, for instance X-Request-Timeout. None is sent if it is empty.
	TimeoutHeader string

	// RedactKeys has logs and spans show a digest in place of a key.
	RedactKeys bool

	// Logger receives retries and what breakers do.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each attempt.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

// Background returns the settings for calls that nobody waits for, such as a job's:
// waits of 500 ms, 2 s, 5 s and 30 s with up to a fifth more, 30 s for an attempt, three
// minutes in all.
func Background() Config {
	return Config{
		Schedule: postroom.FastBackoff(), AttemptTimeout: 30 * time.Second, Total: 3 * time.Minute, MaxRetryAfter: time.Minute,
	}
}

func (c Config) defaults() Config {
	if c.Next == nil {
		c.Next = defaultNext()
	}
	if c.Schedule == nil {
		c.Schedule = Exponential{}
	}
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 5*time.Second)
	c.Total = cmp.Or(c.Total, 10*time.Second)
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, 30*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	if c.Hosts == nil {
		c.Budget, c.Breaker = c.Budget.defaults(), c.Breaker.defaults()
	}
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

// defaultNext returns a transport of its own: many calls to one vendor would
// else open a connection each.
func defaultNext() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 32
	return t
}

func (c Config) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("config: "+format, args...))
		}
	}
	fault(c.Attempts < 1, "Attempts is %d, want at least 1", c.Attempts)
	fault(c.AttemptTimeout < 0, "AttemptTimeout is %s, want more than none", c.AttemptTimeout)
	fault(c.Total < 0, "Total is %s, want more than none", c.Total)
	fault(c.MaxRetryAfter < 0, "MaxRetryAfter is %s, want more than none", c.MaxRetryAfter)
	fault(c.MaxBody < 0, "MaxBody is %d, want more than none", c.MaxBody)
	fault(c.TimeoutHeader != "" && !isToken(c.TimeoutHeader), "TimeoutHeader %.40q is no name of a header", c.TimeoutHeader)
	if s, ok := c.Schedule.(Exponential); ok {
		faults = append(faults, s.validate())
	}
	faults = append(faults, c.Protocol.validate())
	if c.Hosts == nil {
		faults = append(faults, c.Budget.validate(), c.Breaker.validate())
	} else {
		fault(c.Budget != (Budget{}), "Budget is given beside Hosts, which has one: give it to NewHosts")
		fault(c.Breaker != (Breaker{}), "Breaker is given beside Hosts, which has one: give it to NewHosts")
		faults = append(faults, c.Hosts.err)
	}
	return errors.Join(faults...)
}
