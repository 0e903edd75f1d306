package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/postroom/postroom"

// What packages may import, by pattern: "x" is the package x, "x/..." is x and all packages below
// it.
const (
	rootPath       = module
	schemaPath     = module + "/schema"
	eventlogPath   = module + "/internal/eventlog"
	brokerPath     = module + "/relay/broker"
	natsjsPath     = module + "/natsjs"
	reconcilePath  = module + "/internal/reconcile"
	sleepPath      = module + "/internal/sleep"
	wirePath       = module + "/internal/wire"
	wildcardPath   = module + "/internal/wildcard"
	clockPath      = module + "/internal/clock"
	telemetryPath  = module + "/internal/telemetry"
	resultPath     = module + "/internal/result"
	jsonfitPath    = module + "/internal/jsonfit"
	vendorCallPath = module + "/internal/vendorcall"
	causePath      = module + "/internal/cause"
	guardPath      = module + "/internal/guard"
	identityPath   = module + "/internal/identity"
	consumerPath   = module + "/internal/consumer"
	sessionPath    = module + "/internal/session"
	lentPath       = module + "/internal/lent"
	remedyPath     = module + "/internal/remedy"
	jsremedyPath   = module + "/internal/jsremedy"
	repeatPath     = module + "/internal/repeat"
	eventTypePath  = module + "/internal/eventtype"
	sqlFilePath    = module + "/internal/sqlfile"
	textPath       = module + "/internal/text"
	heldPath       = module + "/internal/held"
	changePath     = module + "/internal/change"
	snapshotPath   = module + "/internal/snapshot"
	eventFindPath  = module + "/internal/eventsearch"
	pglogPath      = module + "/internal/pglog"
	seqsetPath     = module + "/internal/seqset"
	anylogPath     = module + "/internal/anylog"
	sameSchema     = module + "/internal/sameschema"

	inboxDeliveryPath = module + "/inbox/internal/delivery"
	inboxLedgerPath   = module + "/inbox/internal/ledger"

	pgxPath        = "github.com/jackc/pgx/v5"
	pgxAllPath     = pgxPath + "/..."
	natsPath       = "github.com/nats-io/nats.go/..."
	natsServerPath = "github.com/nats-io/nats-server/..."
	otelPath       = "go.opentelemetry.io/otel/..."
	otelSDKPath    = "go.opentelemetry.io/otel/sdk/..."
	uuidPath       = "github.com/google/uuid"
	containersPath = "github.com/testcontainers/..."
	breakerPath    = "github.com/sony/gobreaker/v2"
	ssrfPath       = "code.dny.dev/ssrf"
	fieldsPath     = "github.com/dunglas/httpsfv"
	watermillPath  = "github.com/ThreeDotsLabs/..."
)

// layers is the dependency table. Each package has a row, which says what the package may import
// besides the standard library. Test files are exempt. A new package needs a row.
var layers = []struct {
	dir string // below the root of the module; a pattern
	may []string
	why string
}{
	{".", []string{jsonfitPath, guardPath, resultPath, vendorCallPath, pgxPath, pgxPath + "/pgconn", uuidPath}, "every package imports it, so every user gets its dependencies"},
	{"schema", []string{rootPath, remedyPath, pgxAllPath}, "it creates the tables and knows no package that uses them"},
	{"internal/eventlog", []string{brokerPath}, "it is a port: it has the types that relay and log exchange, without behaviour"},
	{"outbox", []string{rootPath, schemaPath, wirePath, sqlFilePath, remedyPath, telemetryPath, pgxAllPath, otelPath, uuidPath}, "it writes the log; internal/pglog reads it, and the relay talks to brokers"},
	{"internal/pglog", []string{rootPath, eventlogPath, brokerPath, module + "/internal/sagas", schemaPath, seqsetPath, sqlFilePath, causePath, remedyPath, pgxAllPath, clockPath}, "it reads the log in PostgreSQL and records progress; it knows no relay and no producer, and of the broker only the types of its port"},
	{"internal/anylog", []string{eventlogPath, brokerPath}, "through it, tests and measurements give a relay another log; package relay sets its variable"},
	{"internal/seqset", nil, "it has sets of numbers, and knows no table"},
	{"relay/broker", []string{rootPath, wirePath}, "it is a port: it has the types that relay and broker exchange, without behaviour"},
	{"internal/reconcile", []string{eventlogPath, brokerPath, wildcardPath, sleepPath}, "it compares a log with a stream through their ports; it knows no database and no broker"},
	{"relay", []string{rootPath, module + "/relay/internal/position", module + "/relay/internal/schedule", reconcilePath, eventlogPath, pglogPath, anylogPath, brokerPath, wirePath, wildcardPath, telemetryPath, guardPath, repeatPath, sleepPath, pgxPath + "/pgxpool", otelPath, uuidPath}, "it moves events from one port to another; it gives its pool to internal/pglog, and knows no table and no broker"},
	{"relay/internal/position", []string{rootPath, module + "/relay/internal/schedule", eventlogPath, brokerPath, wirePath}, "it follows the last acknowledged message of each stream, without I/O, clock or goroutines"},
	{"relay/internal/schedule", []string{rootPath, eventlogPath, brokerPath, wirePath}, "it decides which event may be sent, without I/O, clock or goroutines"},
	{"natsjs", []string{rootPath, module + "/natsjs/internal/replies", module + "/natsjs/internal/contents", eventlogPath, brokerPath, wirePath, wildcardPath, jsremedyPath, sleepPath, natsPath}, "it implements the port `broker` for JetStream; it knows no relay and no database"},
	{"natsjs/internal/replies", []string{brokerPath, natsPath}, "it matches replies with requests"},
	{"natsjs/internal/contents", []string{brokerPath, wirePath, module + "/internal/messages", natsPath}, "it reads the messages of a stream"},
	{"inbox", []string{rootPath, module + "/inbox/internal/...", module + "/internal/filters", sameSchema, schemaPath, consumerPath, telemetryPath, guardPath, remedyPath, jsremedyPath, repeatPath, sleepPath, vendorCallPath, pgxAllPath, natsPath, otelPath, uuidPath}, "it connects a broker's stream with a database"},
	{"inbox/internal/accept", []string{rootPath, inboxDeliveryPath, inboxLedgerPath, telemetryPath, pgxAllPath, uuidPath}, "it checks and identifies events that come without a broker; package ledger stores them"},
	{"inbox/internal/batch", []string{inboxDeliveryPath}, "it decides several deliveries in one transaction; the loop decides single deliveries"},
	{"inbox/internal/claims", []string{rootPath, inboxDeliveryPath, inboxLedgerPath, module + "/inbox/internal/dryrun", wirePath, guardPath, sleepPath}, "it decides which held events this process may run; it runs none and asks no database"},
	{"inbox/internal/delivery", []string{rootPath, consumerPath, wirePath, wildcardPath, causePath, guardPath, identityPath, remedyPath, pgxAllPath, natsPath}, "it has the types that the parts of the inbox share, without behaviour"},
	{"inbox/internal/dispatch", []string{inboxDeliveryPath}, "it decides which delivery may run; it knows no server and no handler"},
	{"inbox/internal/dryrun", []string{inboxDeliveryPath, inboxLedgerPath, guardPath}, "it receives requests for dry runs and answers them; it runs no handler itself"},
	{"inbox/internal/gate", []string{inboxDeliveryPath, guardPath}, "it decides whether a handler may run; it knows no server and no handler"},
	{"inbox/internal/holder", []string{inboxDeliveryPath}, "it collects deliveries that must be held; the inbox stores and finishes these deliveries"},
	{"inbox/internal/invoke", []string{rootPath, inboxDeliveryPath, causePath, guardPath, lentPath, resultPath, pgxAllPath}, "it calls handlers and does not know where events come from; it needs pgx for the errors that handlers return"},
	{"inbox/internal/ledger", []string{rootPath, inboxDeliveryPath, schemaPath, guardPath, lentPath, sessionPath, sqlFilePath, pgxAllPath, uuidPath, clockPath}, "it has every transaction and statement of the inbox; it knows no broker and calls no handler"},
	{"inbox/internal/preflight", []string{rootPath, inboxDeliveryPath, inboxLedgerPath, consumerPath, identityPath, jsremedyPath, eventTypePath, natsPath}, "it checks the set-up before an inbox starts and changes nothing"},
	{"inbox/internal/share", nil, "it divides connections and memory among handlers; it only counts"},
	{"inbox/internal/signals", []string{rootPath, inboxDeliveryPath, telemetryPath, guardPath, sleepPath, pgxAllPath, otelPath}, "it counts and traces what the other parts do; it needs pgx for error codes"},
	{"inbox/internal/steps", []string{jsonfitPath, rootPath, inboxDeliveryPath, inboxLedgerPath, guardPath, sleepPath, vendorCallPath, pgxAllPath}, "it decides whether a call may be made; package ledger stores receipts; it needs pgx for the transaction that records success"},
	{"inbox/internal/stream", []string{rootPath, inboxDeliveryPath, consumerPath, wirePath, wildcardPath, identityPath, sleepPath, jsremedyPath, natsPath}, "it reads streams; package ledger stores its state, so it knows no database"},
	{"inbox/internal/upkeep", []string{rootPath, inboxDeliveryPath, inboxLedgerPath, guardPath, sleepPath, uuidPath, clockPath}, "it decides when to renew a process's registration and when to remove old inbox rows; it asks no database itself"},
	{"deadletter", []string{rootPath, heldPath, changePath, snapshotPath, sqlFilePath, textPath, schemaPath, remedyPath, pgxAllPath}, "it reads and changes held events with SQL; it runs no handler and publishes nothing"},
	{"operator", []string{rootPath, heldPath, changePath, pglogPath, seqsetPath, textPath, sqlFilePath, schemaPath, pgxAllPath}, "it stores what operators decide; processes and relays obey"},
	{"saga", []string{jsonfitPath, rootPath, module + "/outbox", module + "/saga/internal/merge", sameSchema, changePath, guardPath, lentPath, sessionPath, sqlFilePath, schemaPath, remedyPath, telemetryPath, pgxAllPath, otelPath, clockPath, textPath, module + "/internal/jcs"}, "it is a handler like any other; it writes to an outbox, and knows no inbox or broker"},
	{"saga/internal/merge", nil, "it merges JSON documents; it knows no saga"},
	{"internal/filters", []string{schemaPath, sqlFilePath, textPath, pgxAllPath}, "receivers and senders of webhooks write its table, and status reads it; it chooses no event"},
	{"internal/sagas", []string{schemaPath, sqlFilePath, textPath, pgxAllPath}, "it reads the tables of sagas for tools and metrics; package saga changes them"},
	{"internal/messages", []string{natsPath}, "it reads headers of messages; it knows no event"},
	{"internal/inspect", []string{rootPath, brokerPath, natsjsPath, module + "/internal/filters", module + "/internal/sagas", module + "/internal/messages", heldPath, snapshotPath, eventFindPath, textPath, consumerPath, sqlFilePath, schemaPath, wirePath, wildcardPath, identityPath, remedyPath, jsremedyPath, eventTypePath, pgxAllPath, natsPath, uuidPath}, "it reads the database and the broker and changes neither; it examines streams as relays do"},
	{"outbound", []string{rootPath, sleepPath, telemetryPath, guardPath, vendorCallPath, breakerPath, otelPath}, "it calls other systems over HTTP; it knows no database, broker or handler"},
	{"idempotency", []string{jsonfitPath, rootPath, sleepPath, textPath, vendorCallPath, module + "/idempotency/internal/...", schemaPath, telemetryPath, guardPath, lentPath, sessionPath, remedyPath, module + "/internal/jcs", sqlFilePath, pgxAllPath, otelPath, clockPath}, "it stores answers in a database; it calls no vendor and writes no event"},
	{"idempotency/internal/answer", []string{textPath}, "it decides which part of an answer is stored"},
	{"idempotency/internal/claim", []string{module + "/idempotency/internal/failure", sleepPath, schemaPath, sqlFilePath, pgxAllPath, uuidPath, clockPath}, "it has the statements of lease mode and calls no handler"},
	{"idempotency/internal/failure", []string{guardPath, remedyPath, pgxAllPath}, "it classifies errors of the database"},
	{"idempotency/internal/fingerprint", []string{module + "/internal/jcs"}, "it computes fingerprints of requests"},
	{"idempotency/internal/header", []string{fieldsPath}, "it reads a key from the lines of a header"},
	{"idempotency/internal/watched", []string{module + "/idempotency/internal/failure", sessionPath, pgxAllPath}, "it records what happens in one transaction"},
	{"postroomtest/idempotencytest", nil, "it tests any endpoint over HTTP"},
	{"webhook", []string{rootPath, module + "/webhook/internal/lanes", module + "/internal/filters", module + "/inbox", module + "/outbox", module + "/outbound", sameSchema, causePath, telemetryPath, guardPath, repeatPath, wildcardPath, changePath, remedyPath, sqlFilePath, textPath, schemaPath, pgxAllPath, otelPath, uuidPath, ssrfPath, clockPath, identityPath}, "it verifies requests of providers and stores them as events of an inbox; it sends events to customers' endpoints"},
	{"webhook/internal/lanes", nil, "it limits the requests to each endpoint; it sends nothing"},
	{"postroomtest/webhooktest", nil, "it tests any endpoint over HTTP"},
	{"internal/consumer", []string{wirePath, wildcardPath, identityPath, guardPath, natsPath}, "it compares a handler's durable consumer with its settings"},
	{"internal/identity", nil, "it makes the names of handlers at the broker, and the keys of events in the inbox"},
	{"internal/sameschema", []string{rootPath}, "it compares names; it asks no database"},
	{"internal/sqlfile", nil, "it loads statements from files"},
	{"internal/text", nil, "it says which texts PostgreSQL can store, and what a terminal or a shell would obey"},
	{"internal/eventsearch", []string{schemaPath, sqlFilePath, textPath, identityPath, pgxAllPath}, "it reads events in the log, in held and in archive"},
	{"internal/held", []string{rootPath, changePath, schemaPath, sqlFilePath, textPath, pgxAllPath}, "it reads and changes held events with SQL; it runs no handler and publishes nothing"},
	{"internal/change", []string{rootPath, sqlFilePath, textPath, schemaPath, remedyPath, pgxAllPath}, "it begins the transactions of operators, locks, and writes the audit; its callers make the changes"},
	{"internal/snapshot", []string{pgxAllPath}, "it begins transactions that only read; it knows no table"},
	{"internal/jcs", nil, "it turns one text into another"},
	{"internal/lent", []string{guardPath, pgxAllPath}, "it lends a transaction to a user's code; it begins and ends none"},
	{"internal/session", []string{pgxAllPath}, "it resets one connection"},
	{"internal/doctor", []string{rootPath, module + "/internal/inspect", module + "/internal/messages", textPath, sqlFilePath, schemaPath, eventlogPath, natsjsPath, wirePath, wildcardPath, identityPath, consumerPath, remedyPath, jsremedyPath, eventTypePath, pgxAllPath, natsPath}, "it examines a set-up with the parts' own checks and changes nothing"},
	{"internal/sleep", nil, "it waits for a time or a context"},
	{"internal/wire", []string{rootPath}, "it converts events to headers and back"},
	{"internal/wildcard", nil, "it compares subjects with wildcards"},
	{"internal/clock", nil, "it asks no database and no broker for the time"},
	{"internal/cause", nil, "it recognises failures with the same cause"},
	{"internal/guard", nil, "every package that calls users' code imports it"},
	{"internal/remedy", []string{pgxAllPath}, "it recognises errors of the set-up of the database, and says or does what helps"},
	{"internal/jsremedy", []string{natsPath}, "it recognises errors of the set-up of the broker, and says or does what helps"},
	{"internal/eventtype", []string{natsPath}, "it compares type names and asks a stream for its subjects"},
	{"internal/repeat", nil, "it limits repeated log lines"},
	{"internal/terminal", nil, "it fits lines to a terminal"},
	{"internal/verdict", nil, "it maps verdicts to exit statuses"},
	{"internal/result", nil, "it passes one text from the root package to the inbox"},
	{"internal/jsonfit", []string{guardPath}, "it compares JSON with a Go type, for packages that decode what another version of a program may have written"},
	{"internal/vendorcall", []string{guardPath}, "it judges errors of calls; the root package, inbox, idempotency and outbound share it"},
	{"internal/telemetry", []string{rootPath, otelPath}, "it shortens calls of the OpenTelemetry API"},
	{"internal/devstack", []string{pgxAllPath}, "it starts servers and does not know which tests use them"},
	{"internal/childproc", nil, "it runs programs of this repository as child processes"},
	{"internal/house", nil, "it has only tests, of the form of the repository"},
	{"internal/devtest/fakelog", []string{eventlogPath, brokerPath}, "it is a log in memory, for tests of packages that read a log"},
	{"postroomtest", []string{rootPath, eventlogPath, module + "/inbox", module + "/relay", module + "/postroomtest/servers", module + "/internal/devtest", guardPath, lentPath, identityPath, pgxAllPath, uuidPath}, "users' tests call it; it uses public functions of the parts, and its own SQL statements"},
	{"postroomtest/servers", []string{natsjsPath, module + "/internal/devtest", pgxAllPath, natsPath}, "it starts servers for users' tests"},
	{"internal/devtest/logtest", []string{rootPath, eventlogPath, brokerPath, module + "/outbox", pgxAllPath}, "tests of several packages that use the log share it"},
	{"internal/devtest", []string{rootPath, schemaPath, module + "/internal/devstack", pgxAllPath, natsPath}, "it starts servers for tests"},

	// In modules of their own.
	{"postmill", []string{rootPath, brokerPath, module + "/outbox", module + "/inbox", sameSchema, guardPath, pgxAllPath, natsPath, otelPath, watermillPath}, "it joins Watermill's interfaces with outbox and inbox; only its users get its dependencies"},
	{"postroomtest/containers", []string{natsjsPath, module + "/postroomtest/servers", module + "/internal/devtest", module + "/internal/devstack", pgxAllPath, natsPath, containersPath, "github.com/moby/...", "github.com/containerd/errdefs"}, "it starts servers in containers for users' tests; only its users get its dependencies"},

	// Programs, which wire everything together, in modules of their own.
	{"cmd/...", []string{"..."}, ""},
	{"examples/...", []string{"..."}, ""},
	{"integration/...", []string{"..."}, ""},
}

// bans apply in addition to the table. So they still apply if a row of the table allows too much by
// mistake.
var bans = []struct {
	rule string
	who  []string // patterns of directories
	but  []string // exceptions: patterns of directories that may import it
	what []string // patterns of imports
	save []string // exceptions: patterns of imports that are allowed
	own  bool     // packages of the directory's own module are allowed
	why  string
}{
	{
		rule: "outbox, relay and inbox do not import each other",
		who:  []string{"outbox", "relay", "inbox"},
		what: []string{module + "/outbox/...", module + "/relay/...", module + "/inbox/..."},
		save: []string{module + "/inbox/internal/...", module + "/relay/internal/...", brokerPath},
		why:  "each runs without the others, often in another process; what they share belongs in the root or in internal",
	},
	{
		rule: "the internal packages of the inbox import only delivery and ledger of each other",
		who:  []string{"inbox/internal/..."},
		what: []string{module + "/inbox/..."},
		save: []string{inboxDeliveryPath, inboxLedgerPath, module + "/inbox/internal/dryrun"},
		why:  "the types that they share are in delivery, the statements in ledger, and the inbox connects them",
	},
	{
		rule: "the root imports no other package of the module, except guard, jsonfit, result and vendorcall, which import at most guard",
		who:  []string{"."},
		what: []string{module + "/..."},
		save: []string{guardPath, jsonfitPath, resultPath, vendorCallPath},
		why:  "every other package imports it",
	},
	{
		rule: "the relay imports no broker",
		who:  []string{"relay/..."},
		what: []string{natsPath, natsjsPath},
		why:  "it publishes through its Publisher, so that it can be tested and run without one",
	},
	{
		rule: "the relay imports no database",
		who:  []string{"relay/..."},
		what: []string{"github.com/jackc/...", "database/sql/...", schemaPath},
		save: []string{pgxPath + "/pgxpool"},
		why:  "it reads the log through its Source, so that it can be tested without one; it only passes its pool on",
	},
	{
		rule: "no package imports a program",
		who:  []string{"..."},
		what: []string{module + "/cmd/...", module + "/examples/...", module + "/integration/..."},
		own:  true,
		why:  "a program is not a library; code that two programs share belongs in a package",
	},
	{
		rule: "no OpenTelemetry SDK outside programs",
		who:  []string{"..."},
		but:  []string{"cmd/...", "examples/...", "integration/..."},
		what: []string{otelSDKPath, "go.opentelemetry.io/otel/exporters/..."},
		why:  "the application chooses and wires the SDK; a library uses the API",
	},
	{
		rule: "no test servers in what users import",
		who:  []string{"..."},
		but:  []string{"internal/devtest", "postroomtest/...", "examples/...", "integration/..."},
		what: []string{module + "/internal/devstack", module + "/internal/devtest"},
		why:  "they start servers",
	},
	{
		rule: "the test kit is for tests",
		who:  []string{"..."},
		but:  []string{"postroomtest/...", "examples/...", "integration/..."},
		what: []string{module + "/postroomtest/..."},
		why:  "it starts servers, and imports package testing",
	},
	{
		rule: "large dependencies stay out of the library",
		who:  []string{"..."},
		but:  []string{"cmd/...", "examples/...", "integration/...", "postroomtest/containers"},
		what: []string{natsServerPath, containersPath, "github.com/moby/...", "github.com/docker/...", "github.com/containerd/...", "github.com/Shopify/...", "github.com/prometheus/...", "github.com/spf13/...", "golang.org/x/..."},
		why:  "each module in the library's go.mod is in the module graph of every user",
	},
	{
		rule: "Watermill stays in postmill",
		who:  []string{"..."},
		but:  []string{"postmill", "integration/..."},
		what: []string{watermillPath, module + "/postmill"},
		why:  "postmill is a separate module, so that only its users get Watermill",
	},
	{
		rule: "no server in programs that users run",
		who:  []string{"cmd/...", "examples/...", "integration/bench/..."},
		what: []string{natsServerPath, "github.com/Shopify/..."},
		why:  "integration/natsd is the server that they start",
	},
}

func TestImportsKeepToTheirLayer(t *testing.T) {
	packages := readImports(t)
	if len(packages["."]) == 0 || len(packages["relay"]) == 0 {
		t.Fatalf("the imports of the module were not found: %v", packages)
	}
	for _, v := range violations(packages) {
		t.Error(v)
	}
	for _, l := range layers {
		if _, ok := packages[l.dir]; !ok && !strings.HasSuffix(l.dir, "...") {
			t.Errorf("%s has a row in layers and no Go files: remove the row", l.dir)
		}
	}
}

func TestTheRelayHoldsNoSQL(t *testing.T) {
	for _, f := range files(t, isSQL) {
		if matches("relay/...", f.dir) {
			t.Errorf("%s: the relay holds no SQL; statements belong to its Source", f.path)
		}
	}
}

// nameOf returns the name of a package on a page.
func nameOf(dir string) string {
	if dir == "." {
		return "root"
	}
	return "`" + dir + "`"
}

// TestLayersPage checks that docs/reference/layers.md has the rows of layers.
func TestLayersPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Layers\n\nWhat each package may import. A test compares the imports with the table `layers` in\n" +
		"`internal/house/layers_test.go`. `make api` writes this page from that table.\n\n" +
		"| package | may import, besides the standard library | because |\n| --- | --- | --- |\n")
	for _, l := range layers {
		var may []string
		for _, what := range l.may {
			if what == "..." {
				may = append(may, "everything")
				continue
			}
			may = append(may, nameOf(strings.TrimSuffix(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(what, module), "/"), "."), "/...")))
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", nameOf(strings.TrimSuffix(l.dir, "/...")), cmp.Or(strings.Join(may, ", "), "nothing"), cmp.Or(l.why, "it is a program; no package imports it"))
	}
	generated(t, "docs/reference/layers.md", page.String())
}

// TestViolations checks that a violation of the rules is reported.
func TestViolations(t *testing.T) {
	tests := []struct {
		name    string
		dir     string
		imports string
		want    string // a part of the report; empty: nothing is reported
	}{
		{"the standard library is open to all", "relay", "net/http", ""},
		{"the root may import pgx", ".", pgxPath, ""},
		{"but no pool", ".", pgxPath + "/pgxpool", "not in the row"},
		{"nor, for the root, a broker", ".", "github.com/nats-io/nats.go", "not in the row"},
		{"nor OpenTelemetry", ".", "go.opentelemetry.io/otel", "not in the row"},
		{"nor a part", ".", schemaPath, "the root imports no other package"},
		{"but the guard", ".", guardPath, ""},
		{"the outbox may import a pool", "outbox", pgxPath + "/pgxpool", ""},
		{"and parts of the OpenTelemetry API", "outbox", "go.opentelemetry.io/otel/metric", ""},
		{"but not its SDK", "outbox", "go.opentelemetry.io/otel/sdk/metric", "no OpenTelemetry SDK"},
		{"nor what begins alike", "outbox", "go.opentelemetry.io/otelother", "not in the row"},
		{"nor, for the outbox, a broker", "outbox", "github.com/nats-io/nats.go", "not in the row"},
		{"nor the relay", "outbox", module + "/relay", "do not import each other"},
		{"the relay may import the ports", "relay", module + "/relay/broker", ""},
		{"but no broker", "relay", "github.com/nats-io/nats.go/jetstream", "imports no broker"},
		{"nor what speaks to one", "relay", module + "/natsjs", "imports no broker"},
		{"natsjs may import a broker", "natsjs", "github.com/nats-io/nats.go/jetstream", ""},
		{"but no relay", "natsjs", module + "/relay", "not in the row"},
		{"nor, for the relay, outbox", "relay", module + "/outbox", "do not import each other"},
		{"nor pgx", "relay", pgxPath, "no database"},
		{"but the pool that it passes on", "relay", pgxPath + "/pgxpool", ""},
		{"nor database/sql", "relay", "database/sql", "no database"},
		{"nor its drivers", "relay", "database/sql/driver", "no database"},
		{"nor the schema", "relay", schemaPath, "no database"},
		{"the inbox may import both sides", "inbox", pgxPath + "/pgconn", ""},
		{"but no relay", "inbox", module + "/relay", "do not import each other"},
		{"its parts may import what they share", "inbox/internal/dispatch", inboxDeliveryPath, ""},
		{"but not each other", "inbox/internal/dispatch", module + "/inbox/internal/invoke", "import only delivery and ledger"},
		{"and only the inbox has them", "relay", inboxDeliveryPath, "not in the row"},
		{"nor a test library", "inbox", "pgregory.net/rapid", "not in the row"},
		{"nor test servers", "inbox", module + "/internal/devstack", "no test servers"},
		{"nor the test kit", "inbox", module + "/postroomtest", "the test kit is for tests"},
		{"which may start containers in its own module", "postroomtest/containers", "github.com/testcontainers/testcontainers-go", ""},
		{"and nowhere else", "internal/devstack", "github.com/testcontainers/testcontainers-go", "large dependencies stay out"},
		{"which may start servers", "postroomtest/servers", module + "/internal/devtest", ""},
		{"nor a broker's server", "inbox", "github.com/nats-io/nats-server/v2/server", "large dependencies"},
		{"a package that imports a command", "inbox", module + "/cmd/postroom", "no package imports a program"},
		{"nor an example", "schema", module + "/examples/quickstart", "no package imports a program"},
		{"nor the integration tests", "internal/wire", module + "/integration", "no package imports a program"},
		{"not even a program does", "examples/quickstart", module + "/cmd/postroom", "no package imports a program"},
		{"but what lies in its own module", "integration/bench", module + "/integration/bench/internal/measure", ""},
		{"a program may import parts", "cmd/postroom", module + "/relay", ""},
		{"and the SDK", "cmd/postroom", "go.opentelemetry.io/otel/sdk/metric", ""},
		{"and test servers", "examples/quickstart", module + "/internal/devstack", ""},
		{"postmill may import Watermill", "postmill", "github.com/ThreeDotsLabs/watermill/message", ""},
		{"and both halves", "postmill", module + "/inbox", ""},
		{"but no test servers", "postmill", module + "/internal/devtest", "no test servers"},
		{"no other package may", "outbox", "github.com/ThreeDotsLabs/watermill/message", "Watermill stays in postmill"},
		{"nor import postmill", "cmd/postroom", module + "/postmill", "Watermill stays in postmill"},
		{"outbound may import a breaker", "outbound", breakerPath, ""},
		{"but no inbox", "outbound", module + "/inbox", "not in the row"},
		{"nor a database", "outbound", pgxPath, "not in the row"},
		{"idempotency may import a pool", "idempotency", pgxPath + "/pgxpool", ""},
		{"but no outbox", "idempotency", module + "/outbox", "not in the row"},
		{"nor outbound", "idempotency", module + "/outbound", "not in the row"},
		{"and its contract's test nothing of the module", "postroomtest/idempotencytest", module + "/idempotency", "not in the row"},
		{"a package needs a row", "parcel", "fmt", "has no row"},
		{"also below one that has", "relay/parcel", "fmt", "has no row"},
		{"also without imports", "parcel", "", "has no row"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var imports []imported
			if tt.imports != "" {
				imports = append(imports, imported{tt.imports, "a.go:1:1"})
			}
			got := strings.Join(violations(map[string][]imported{tt.dir: imports}), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s imports %s: reported %q, want %q", tt.dir, tt.imports, got, tt.want)
			}
		})
	}
}

// libraryModules are what the library's go.mod may list as direct requirements.
var libraryModules = []string{
	"code.dny.dev/ssrf", "github.com/dunglas/httpsfv", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/nats-io/nats.go", "github.com/sony/gobreaker/v2",
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace",
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/sdk/metric", "pgregory.net/rapid", // for tests
}

// mostModules is how many modules a program that imports outbox, relay and inbox may have
// in its module graph, itself included.
const mostModules = 44

func TestTheLibraryRequiresLittle(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, more, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "require ")), " v")
		if ok && !strings.Contains(more, "// indirect") && !slices.Contains(libraryModules, name) {
			t.Errorf("go.mod of the library requires %s: every user gets it; a dependency of programs belongs in the go.mod of the programs", name)
		}
	}

	dir := t.TempDir()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"main.go": "package main\n\nimport (\n\t_ \"" + module + "/inbox\"\n\t_ \"" + module + "/outbox\"\n\t_ \"" + module + "/relay\"\n)\n\nfunc main() {}\n",
		"go.mod":  "module example.com/shop\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-m", "all")
	list.Dir, list.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=", "GONOSUMDB=*", "GOSUMDB=off")
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("go list -m all: %v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n"); n > mostModules {
		t.Errorf("a program that imports outbox, relay and inbox has %d modules in its graph, want %d at the most:\n%s", n, mostModules, out)
	}
}

// TestDependenciesOfTheCore checks all direct and indirect dependencies of a program that imports
// outbox, relay and inbox.
func TestDependenciesOfTheCore(t *testing.T) {
	banned := []struct {
		what []string
		why  string
	}{
		{[]string{"testing/...", "pgregory.net/...", "github.com/stretchr/...", "gotest.tools/...", "go.uber.org/mock/..."}, "is for tests"},
		{[]string{natsServerPath}, "is a broker; programs connect to one"},
		{[]string{containersPath, "github.com/docker/...", "github.com/moby/...", "github.com/containerd/..."}, "is a container client, which only tests need"},
		{[]string{"github.com/chromedp/...", "github.com/go-rod/...", "github.com/playwright-community/..."}, "drives a browser"},
		{[]string{module + "/internal/devstack/...", module + "/internal/devtest/..."}, "starts servers for tests and demos"},
		{[]string{otelSDKPath, "go.opentelemetry.io/otel/exporters/..."}, "the application chooses"},
		{[]string{watermillPath, module + "/postmill/..."}, "is for the users of postmill"},
	}
	wants := map[string]string{ // if these are in the list, the list is complete
		"outbox": pgxPath, "relay": wirePath, "natsjs": "github.com/nats-io/nats.go", "inbox": wirePath,
	}

	imports := listImports(t, "./outbox", "./relay", "./natsjs", "./inbox")
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		t.Run(name, func(t *testing.T) {
			chains := chainsFrom(imports, module+"/"+name)
			if chains[wants[name]] == nil {
				t.Fatalf("%s is not among the %d dependencies of %s: the list is not complete", wants[name], len(chains), name)
			}
			for _, dep := range slices.Sorted(maps.Keys(chains)) {
				for _, b := range banned {
					if matchesAny(b.what, dep) {
						t.Errorf("%s depends on %s, which %s:\n\t%s", name, dep, b.why, strings.Join(chains[dep], "\n\timports "))
					}
				}
			}
		})
	}
}

// imported is an import and its place in the code.
type imported struct{ path, at string }

// violations returns the imports that break the rules. packages has the imports of each directory.
func violations(packages map[string][]imported) []string {
	var found []string
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		row := -1
		for i, l := range layers {
			if matches(l.dir, dir) {
				row = i
			}
		}
		if row < 0 {
			report("%s has no row in layers (internal/house/layers_test.go): add one that says what it may import, and why no more", dir)
			continue
		}
		for _, im := range packages[dir] {
			banned := false
			for _, b := range bans {
				if matchesAny(b.who, dir) && !matchesAny(b.but, dir) && matchesAny(b.what, im.path) && !matchesAny(b.save, im.path) && (!b.own || !sameModule(dir, im.path)) {
					banned = true
					report("%s: %s imports %s, but %s: %s", im.at, dir, im.path, b.rule, b.why)
				}
			}
			if !banned && !standard(im.path) && !matchesAny(layers[row].may, im.path) {
				report("%s: %s imports %s, which is not in the row of %s in layers: %s", im.at, dir, im.path, layers[row].dir, layers[row].why)
			}
		}
	}
	return found
}

// programModules are the directories of the modules that go.work uses together with the library.
var programModules = []string{"cmd/postroom", "examples", "integration"}

// sameModule reports whether a package belongs to the same module of programs as a directory.
func sameModule(dir, importPath string) bool {
	return slices.ContainsFunc(programModules, func(m string) bool {
		return matches(m+"/...", dir) && matches(module+"/"+m+"/...", importPath)
	})
}

// readImports returns the imports of each directory that has Go files. It leaves out tests.
func readImports(t *testing.T) map[string][]imported {
	t.Helper()
	packages := make(map[string][]imported)
	for _, f := range files(t, isCode) {
		if _, ok := packages[f.dir]; !ok {
			packages[f.dir] = nil // so that a package without imports is listed too
		}
		for _, spec := range f.syntax.Imports {
			packages[f.dir] = append(packages[f.dir], imported{importPath(spec), positions.Position(spec.Pos()).String()})
		}
	}
	return packages
}

func importPath(spec *ast.ImportSpec) string {
	what, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(err) // the parser accepts only strings
	}
	return what
}

// listImports returns the given packages and all packages that they depend on, each with its
// imports.
func listImports(t *testing.T, packages ...string) map[string][]string {
	t.Helper()
	args := append([]string{"list", "-mod=readonly", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, packages...)
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	var problems strings.Builder
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	imports := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			imports[fields[0]] = fields[1:]
		}
	}
	return imports
}

// chainsFrom returns the packages that a package imports directly or indirectly, each with the
// shortest chain of imports to it.
func chainsFrom(imports map[string][]string, from string) map[string][]string {
	chains := map[string][]string{from: {from}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range imports[queue[0]] {
			if chains[next] == nil {
				chains[next] = append(slices.Clone(chains[queue[0]]), next)
				queue = append(queue, next)
			}
		}
	}
	return chains
}

// standard reports whether an import is of the standard library. Other imports begin with a host
// name.
func standard(importPath string) bool {
	host, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(host, ".")
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// matches reports whether a pattern matches a name: "x" matches only x, "x/..." matches x and
// everything below it, "..." matches every name.
func matches(pattern, name string) bool {
	above, tree := strings.CutSuffix(pattern, "...")
	if !tree {
		return name == pattern
	}
	return strings.HasPrefix(path.Clean(name)+"/", above)
}
