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
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/idempotency/internal/header"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/schema"
)

// How long answers are kept. [Route.TTL] and [Operation.TTL] also take any other duration.
const (
	// TTLRequests is the default time.
	TTLRequests = 24 * time.Hour

	// TTLPayments is for operations that move money.
	TTLPayments = 30 * 24 * time.Hour

	// TTLJobs is for runs of scheduled jobs.
	TTLJobs = 7 * 24 * time.Hour
)

// Omit is the name for a header in a [Config] with which the guard leaves this header out.
const Omit = "-"

// Config has the settings that all routes of a [Guard] share. The zero value is ready to
// use for [Do]; [Guard.Handler] needs Principal.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Principal returns the caller that sends a request, for instance a customer or the id of an
	// API key. Authentication must have checked the caller. Each principal has its own keys: if two
	// principals use the same key, there are two operations. If Principal returns no name or an
	// error, the guard answers 401, or 503 if the error says that a time limit or a context ended.
	// Use [Anonymous] for services without authentication. Required for Handler.
	Principal func(r *http.Request) (string, error)

	// HashPrincipal makes the guard store only a digest of the principal. Set it if the principal
	// is a secret, such as a token. If the setting changes, the guard still recognises the keys of
	// earlier requests.
	HashPrincipal bool

	// StatusHeader and ReplayedHeader name headers of answers. If the guard keeps an answer, it
	// sends the StatusHeader with "stored". If it repeats an answer, it sends the StatusHeader with
	// "replayed", and the ReplayedHeader with "true". [Omit] leaves a header out.
	//
	// Default to Idempotency-Status and Idempotent-Replayed.
	StatusHeader, ReplayedHeader string

	// Codes replaces codes of problems (RFC 9457). Use [CodesUpper], [CodesDotted] or your own map.
	Codes map[Code]string

	// DocsURL is the page on which the service describes its use of keys. If DocsURL is set, the
	// type of a problem is this URL with its [Code] as fragment, and a Link header has this URL.
	DocsURL string

	// Codec encodes the bodies of answers before the guard stores them, and decodes them later.
	Codec Codec

	// StoreTimeout limits each use of the database by the guard, but not by the handler. If a use
	// takes longer, the guard treats the database as unavailable and answers 503.
	//
	// Defaults to 5 seconds.
	StoreTimeout time.Duration

	// PurgeEvery is how often Run looks for rows that have expired.
	//
	// Defaults to an hour.
	PurgeEvery time.Duration

	// Archive, if set, gets the records that a purge removes, in the transaction of the purge. The
	// guard adds records to a call until their answers together have 4 MiB or more. If the Codec
	// cannot decode an answer, Archive gets it in its stored form ([Record.Undecoded]). If Archive
	// returns an error, the purge removes none of the records of this call.
	Archive func(ctx context.Context, tx pgx.Tx, gone []Record) error

	// RedactKeys makes logs and spans show a digest in place of a key.
	RedactKeys bool

	// LogOutcomes is the lowest level at which the guard logs the outcome and duration of each
	// request with a key. If LogOutcomes is set, logs and spans show a digest of the key.
	//
	// Defaults to nil: the level is debug, or higher for takeovers, mismatches and database errors.
	LogOutcomes slog.Leveler

	// Logger receives the guard's messages and the outcome of each request with a key.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider
}

// Codec encodes bodies before they are stored, for instance encrypts them, and decodes them later.
// Decode must return exactly the bytes that Encode got. The guard calls both methods concurrently.
type Codec interface {
	Encode(ctx context.Context, k Key, body []byte) ([]byte, error)
	Decode(ctx context.Context, k Key, kept []byte) ([]byte, error)
}

func (c Config) defaults() Config {
	c.StatusHeader = cmp.Or(c.StatusHeader, "Idempotency-Status")
	c.ReplayedHeader = cmp.Or(c.ReplayedHeader, "Idempotent-Replayed")
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	c.PurgeEvery = cmp.Or(c.PurgeEvery, time.Hour)
	c.Logger, c.LogOutcomes = guard.Logger(cmp.Or(c.Logger, slog.Default())), guard.Leveler(c.LogOutcomes)
	return c
}

// shortest is the shortest duration that a setting may have. A shorter one is a number without its
// unit.
const shortest = time.Millisecond

// faultsOf collects the faults of a configuration.
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
	faults.add(c.StoreTimeout < shortest, "StoreTimeout is %s, want at least %s", c.StoreTimeout, shortest)
	faults.add(c.PurgeEvery < shortest, "PurgeEvery is %s, want at least %s", c.PurgeEvery, shortest)
	faults.add(c.StatusHeader != Omit && !header.IsToken(c.StatusHeader), "StatusHeader %.40q is not a header name", c.StatusHeader)
	faults.add(c.ReplayedHeader != Omit && !header.IsToken(c.ReplayedHeader), "ReplayedHeader %.40q is not a header name", c.ReplayedHeader)
	for _, name := range []string{c.StatusHeader, c.ReplayedHeader} {
		faults.add(header.IsOfMessage(name), "%q is a header of the message, which a handler cannot set", name)
	}
	faults.add(c.ReplayedHeader != Omit && strings.EqualFold(c.StatusHeader, c.ReplayedHeader), "StatusHeader and ReplayedHeader are both %q", c.ReplayedHeader)
	for _, code := range slices.Sorted(maps.Keys(c.Codes)) {
		faults.add(statusOf[code] == 0, "Codes names %.60q, which is not a code of this package", string(code))
		faults.add(c.Codes[code] == "", "Codes has no text for %.60q", string(code))
	}
	return errors.Join(faults...)
}
