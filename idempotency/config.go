package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/schema"
)

// For how long answers are kept. [Route.TTL] and [Operation.TTL] take any other.
const (
	// TTLRequests is the default.
	TTLRequests = 24 * time.Hour

	// TTLPayments is for operations that move money.
	TTLPayments = 30 * 24 * time.Hour

	// TTLJobs is for runs of scheduled jobs.
	TTLJobs = 7 * 24 * time.Hour
)

// Omit is the name of a header that is not sent.
const Omit = "-"

// Config is what all routes of a [Guard] have in common. The zero value is ready to use
// for [Do]; [Guard.Handler] needs Principal.
//
// Wide because each field is one decision, as in a [Route].
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Principal returns who sends a request: what authentication found out, such as a
	// customer or an API key's id. Keys of one mean nothing to another. If it returns an
	// error or no name, the request is refused with 401, or with 503 if a time limit or a
	// context ended while it asked; [Anonymous] is for services
	// without authentication. Required for Handler.
	Principal func(r *http.Request) (string, error)

	// HashPrincipal has the database keep a digest of the principal only, for one that
	// is a secret, such as a token.
	HashPrincipal bool

	// StatusHeader and ReplayedHeader name the headers of an answer that say that it is
	// kept (StatusHeader: stored) or repeated (StatusHeader: replayed, ReplayedHeader:
	// true). [Omit] leaves one out.
	//
	// Default to Idempotency-Status and Idempotent-Replayed.
	StatusHeader, ReplayedHeader string

	// Codes has problems carry other codes: [CodesUpper], [CodesDotted], or others.
	Codes map[Code]string

	// DocsURL is where the service describes its use of keys. A problem's type is then
	// this with the code as its fragment, and a Link header leads there.
	DocsURL string

	// Codec changes the bodies of answers on their way to and from the database.
	Codec Codec

	// StoreTimeout bounds each use of the database but for the handler's: what takes
	// longer is unavailable, and answered with 503.
	//
	// Defaults to 5 seconds.
	StoreTimeout time.Duration

	// PurgeEvery is how often Run looks for rows that have expired.
	//
	// Defaults to an hour.
	PurgeEvery time.Duration

	// Archive, if it is set, is given what a purge removes, in its transaction.
	Archive func(ctx context.Context, tx pgx.Tx, gone []Record) error

	// RedactKeys has logs and spans show a digest in place of a key.
	RedactKeys bool

	// Logger receives what becomes of keys.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider
}

// Codec changes bodies on their way to the database and back, for instance encrypts them.
// What Decode returns must be what Encode was given, byte for byte. It is called
// concurrently.
type Codec interface {
	Encode(ctx context.Context, k Key, body []byte) ([]byte, error)
	Decode(ctx context.Context, k Key, kept []byte) ([]byte, error)
}

func (c Config) defaults() Config {
	c.StatusHeader = cmp.Or(c.StatusHeader, "Idempotency-Status")
	c.ReplayedHeader = cmp.Or(c.ReplayedHeader, "Idempotent-Replayed")
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	c.PurgeEvery = cmp.Or(c.PurgeEvery, time.Hour)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

// faultsOf collects faults.
type faultsOf []error

func (f *faultsOf) add(bad bool, format string, args ...any) {
	if bad {
		*f = append(*f, fmt.Errorf("config: "+format, args...))
	}
}

func (c Config) validate() error {
	var faults faultsOf
	if _, err := schema.Name(c.Schema); err != nil {
		faults.add(true, "Schema: %w", err)
	}
	faults.add(c.StoreTimeout < 0, "StoreTimeout is %s, want more than none", c.StoreTimeout)
	faults.add(c.PurgeEvery < 0, "PurgeEvery is %s, want more than none", c.PurgeEvery)
	faults.add(c.StatusHeader != Omit && !isToken(c.StatusHeader), "StatusHeader %.40q is no name of a header", c.StatusHeader)
	faults.add(c.ReplayedHeader != Omit && !isToken(c.ReplayedHeader), "ReplayedHeader %.40q is no name of a header", c.ReplayedHeader)
	for _, code := range slices.Sorted(maps.Keys(c.Codes)) {
		faults.add(statusOf[code] == 0, "Codes names %.60q, which is no code of this package", string(code))
		faults.add(c.Codes[code] == "", "Codes has no text for %.60q", string(code))
	}
	return errors.Join(faults...)
}
