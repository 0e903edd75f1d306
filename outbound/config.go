package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// Config tunes a [Transport]. The zero value is ready to use, for callers that wait for the answer.
// For other callers, use [Background].
//
// Fields that belong together are types: Protocol, Budget, Breaker, Hosts.
type Config struct {
	// Next makes the attempts. It must not repeat attempts or follow redirects itself. An error
	// that matches postroom.ErrPermanent says that Next refuses the request: no attempt follows,
	// and the breaker does not count it as a failure of the host.
	//
	// Defaults to a copy of http.DefaultTransport that keeps 32 idle connections
	// for each host.
	Next http.RoundTripper

	// Protocol says how the vendor gets the key of an operation, and what its answers
	// mean. A Transport has one protocol, even if it calls several vendors.
	//
	// Defaults to an Idempotency-Key header.
	Protocol Protocol

	// GenerateKeys generates a key for an operation without a key if its method is not idempotent.
	// Such a key protects against repetitions by this Transport. Only a key of [WithKey] also
	// protects against repetitions after a restart of the process.
	GenerateKeys bool

	// Attempts is the largest number of attempts that an operation may have.
	//
	// Defaults to 5.
	Attempts int

	// Schedule says how long to wait between attempts. postroom.Backoff is a Schedule.
	//
	// Defaults to Exponential{}: random waits of up to 200 ms, 400 ms, 800 ms, 1.6 s.
	Schedule Schedule

	// AttemptTimeout limits one attempt. The attempt ends when its response has been read.
	//
	// Defaults to 5 seconds, or to Total if Total is shorter.
	AttemptTimeout time.Duration

	// Total limits an operation: attempts, the waits between them, and reading the response. If a
	// wait would end after Total, the operation ends without the wait.
	//
	// Defaults to 10 seconds, or to AttemptTimeout if AttemptTimeout is longer.
	Total time.Duration

	// MaxRetryAfter is the longest Retry-After for which the Transport waits. A longer Retry-After
	// ends the operation with the response that asks for it.
	//
	// Defaults to 30 seconds.
	MaxRetryAfter time.Duration

	// MaxBody is the largest request body in bytes that the Transport reads into memory. It reads a
	// body if the key is a member of the body. It also reads a body that it may have to send again,
	// if the request has no GetBody. The Transport refuses a larger body.
	//
	// Defaults to 1 MiB.
	MaxBody int64

	// Budget limits retries for each host.
	Budget Budget

	// Breaker stops calls to a host that does not work.
	Breaker Breaker

	// Hosts lets several transports share the budget and the breaker of each host. Hosts has its
	// own settings for both, so Budget and Breaker of the Config must be empty.
	//
	// Defaults to Hosts that only this transport uses, with the settings Budget and Breaker.
	Hosts *Hosts

	// Decide says whether to try again after the response or the error of an attempt. The Transport
	// calls it before Protocol.Decide. Decide must not read the response's body. If it is not safe
	// to repeat a call, Decide cannot make the Transport repeat it: see [Repeatable].
	Decide func(resp *http.Response, err error) Decision

	// Refresh returns a new value for the Authorization header. If the vendor answers 401, the
	// Transport calls Refresh once for an operation, and then tries again with the new value. The
	// context of req has no key: what Refresh calls is another operation.
	Refresh func(req *http.Request) (authorization string, err error)

	// TimeoutHeader names a header that tells the vendor how many milliseconds the attempt has, for
	// instance X-Request-Timeout. If TimeoutHeader is empty, the Transport sends no such header.
	TimeoutHeader string

	// RedactKeys makes logs and spans show a digest in place of a key.
	RedactKeys bool

	// Logger receives messages about retries and changes of breakers.
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

// Background returns settings for calls whose caller does not wait, for instance the calls of a
// job. Waits are 500 ms, 2 s, 5 s and 30 s, each with up to a fifth more. An attempt may take 30 s
// and an operation three minutes.
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
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = min(5*time.Second, cmp.Or(max(c.Total, 0), 5*time.Second))
	}
	c.Total = cmp.Or(c.Total, max(10*time.Second, c.AttemptTimeout))
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, 30*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	if c.Hosts == nil {
		c.Budget, c.Breaker = c.Budget.defaults(), c.Breaker.defaults()
	}
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

// defaultNext returns a transport that keeps more idle connections than the default transport, so
// that many calls to one vendor can reuse connections.
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
	fault(c.AttemptTimeout < time.Millisecond, "AttemptTimeout is %s, want at least 1ms", c.AttemptTimeout)
	fault(c.Total < time.Millisecond, "Total is %s, want at least 1ms", c.Total)
	//guard:an-attempt-is-not-cut-without-a-word 1 false
	fault(c.AttemptTimeout > c.Total && c.Total > 0, "AttemptTimeout is %s, want at most Total, which is %s", c.AttemptTimeout, c.Total)
	fault(c.MaxRetryAfter < 0, "MaxRetryAfter is %s, want more than 0", c.MaxRetryAfter)
	fault(c.MaxBody < 0, "MaxBody is %d, want more than 0", c.MaxBody)
	fault(c.TimeoutHeader != "" && !isToken(c.TimeoutHeader), "TimeoutHeader %.40q is not a header name", c.TimeoutHeader)
	fault(isOfMessage(c.TimeoutHeader), "TimeoutHeader %q is no header of a caller", c.TimeoutHeader)
	fault(c.TimeoutHeader != "" && strings.EqualFold(c.TimeoutHeader, c.Protocol.header()), "TimeoutHeader %q is the header of the key", c.TimeoutHeader)
	if s, ok := c.Schedule.(Exponential); ok {
		faults = append(faults, s.validate())
	}
	faults = append(faults, c.Protocol.validate())
	if c.Hosts == nil {
		faults = append(faults, c.Budget.validate(), c.Breaker.validate())
	} else {
		//guard:hosts-are-made-with-newhosts 1 false
		fault(c.Hosts.known == nil, "Hosts: make it with NewHosts")
		fault(c.Budget != (Budget{}), "Budget must be empty if Hosts is set: pass it to NewHosts")
		fault(c.Breaker != (Breaker{}), "Breaker must be empty if Hosts is set: pass it to NewHosts")
		faults = append(faults, c.Hosts.err)
	}
	return errors.Join(faults...)
}
