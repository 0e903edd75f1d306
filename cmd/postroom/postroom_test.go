package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// asProgram is an environment variable. If it is 1, the test binary is the program postroom. So no
// test has to build the program.
const asProgram = "POSTROOM_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main() // ends the process
	}
	devtest.Main(m)
}

// program returns a command that runs the program in a process of its own. The process does not see
// the environment of this process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	cmd.Env = []string{asProgram + "=1"}
	return cmd
}

// result is the output and the exit status of a command line.
type result struct {
	code        int
	out, errors string
}

// environment is the environment variables of a run.
type environment map[string]string

// postroom runs a command line. It does not see the environment of this process.
func postroom(t testing.TB, env environment, args ...string) result {
	t.Helper()
	r := postroomUntil(t.Context(), env, args...)
	if slices.Contains(args, "--json") && !slices.Contains(args, "--help") {
		wantAnswer(t, r)
	}
	return r
}

// postroomUntil runs the command until ctx ends.
func postroomUntil(ctx context.Context, env environment, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, args, func(name string) string { return env[name] }, &out, &errs)
	return result{code, out.String(), errs.String()}
}

func (r result) want(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit status %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.errors)
	}
	if (r.code == exitOK) != (r.errors == "") {
		t.Errorf("exit status %d with standard error %q", r.code, r.errors)
	}
	return r
}

func (r result) says(t testing.TB, parts ...string) result {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(r.out+r.errors, part) {
			t.Errorf("want %q in\nstdout: %s\nstderr: %s", part, r.out, r.errors)
		}
	}
	return r
}

func databaseURL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

func inDatabase(pool *pgxpool.Pool) environment {
	return environment{"POSTROOM_DATABASE_URL": databaseURL(pool)}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	env := inDatabase(pool)

	postroom(t, env, "migrate", "status").want(t, exitTodo).
		says(t, "VERSION   NAME        APPLIED AT\n", "1         log         pending\n", "run 'postroom migrate up'")
	postroom(t, env, "migrate", "up").want(t, exitOK).says(t, "applied 1 log\n")
	if err := schema.Require(t.Context(), pool, ""); err != nil {
		t.Errorf("Require = %v", err)
	}
	got := postroom(t, env, "migrate", "status").want(t, exitOK)
	if strings.Contains(got.out, "pending") || !strings.Contains(got.out, "1         log         20") {
		t.Errorf("status = %s", got.out)
	}
	postroom(t, env, "migrate", "up").want(t, exitOK).says(t, "nothing to do: schema postroom of database ", " is up to date\n")
}

func TestMigrateJSON(t *testing.T) {
	t.Parallel()
	env := inDatabase(devtest.EmptyPool(t))
	type step struct {
		Name      string     `json:"name"`
		AppliedAt *time.Time `json:"applied_at"`
	}
	decode := func(r result) (steps []step) {
		t.Helper()
		var answer struct{ Migrations []step }
		if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
			t.Fatalf("%v: %s", err, r.out)
		}
		return answer.Migrations
	}
	if steps := decode(postroom(t, env, "migrate", "status", "--json").want(t, exitTodo)); len(steps) == 0 || steps[0].AppliedAt != nil {
		t.Errorf("status before = %+v", steps)
	}
	if steps := decode(postroom(t, env, "migrate", "up", "--json").want(t, exitOK)); len(steps) == 0 || steps[0].Name != "log" {
		t.Errorf("up = %+v", steps)
	}
	if steps := decode(postroom(t, env, "migrate", "status", "--json").want(t, exitOK)); len(steps) == 0 || steps[0].AppliedAt == nil {
		t.Errorf("status after = %+v", steps)
	}
	if r := postroom(t, env, "migrate", "up", "--json").want(t, exitOK); r.out != "{\n  \"migrations\": []\n}\n" {
		t.Errorf("up again = %q, want an empty list", r.out)
	}
}

// If a migration cannot get its locks, it says which session is in the way, but does not show the
// statement of that session. --timeout ends it, and the next run succeeds.
func TestMigrateSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	env := inDatabase(pool)
	script, err := schema.Print("")
	if err != nil {
		t.Fatal(err)
	}
	script, _, _ = strings.Cut(script, "\n-- Migration 3:")
	if _, err := pool.Exec(t.Context(), script+"\nCOMMIT"); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET application_name = 'report'; BEGIN; DELETE FROM postroom.inbox WHERE handler = 'secret'"); err != nil {
		t.Fatal(err)
	}
	r := postroom(t, env, "migrate", "up", "--timeout", "8s").want(t, exitFailed).
		says(t, "migration 3 operators waits for a lock behind pid ", "(report)", "idle in transaction", "the next try is in", "was not applied")
	if strings.Contains(r.errors, "secret") {
		t.Errorf("the statement of another session is shown: %s", r.errors)
	}
	postroom(t, env, "migrate", "up", "--timeout", "-1s").want(t, exitUsage).says(t, "--timeout")
}

func TestMigrateTwoSchemas(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	env := inDatabase(pool)
	postroom(t, env, "migrate", "up").want(t, exitOK)
	postroom(t, env, "migrate", "status", "--schema", "shop").want(t, exitTodo).says(t, "schema shop of database ")
	env["POSTROOM_SCHEMA"] = "shop"
	postroom(t, env, "migrate", "up").want(t, exitOK).says(t, "applied 1")
	postroom(t, env, "migrate", "up", "--schema", "other").want(t, exitOK).says(t, "applied 1") // the flag wins
	for _, name := range []string{"postroom", "shop", "other"} {
		if err := schema.Require(t.Context(), pool, name); err != nil {
			t.Errorf("Require(%s) = %v", name, err)
		}
	}
}

func TestMigrateTooNew(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.migration VALUES (1000, 'later', 1000)"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"up", "status"} {
		postroom(t, inDatabase(pool), "migrate", verb).want(t, exitFailed).says(t, "too new", "deploy a newer Postroom")
	}
}

// The SQL that print prints creates a schema that this program accepts.
func TestMigratePrint(t *testing.T) {
	tests := []struct {
		name, schema string
		args         []string
	}{
		{"default schema", "postroom", nil},
		{"another schema", "shop", []string{"--schema", "shop"}},
	}
	ways := map[string]func(t *testing.T, pool *pgxpool.Pool, script string){"psql": applyWithPSQL, "pgx": applyWithPGX}
	for _, tt := range tests {
		for way, apply := range ways {
			t.Run(way+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				script := postroom(t, nil, append([]string{"migrate", "print"}, tt.args...)...).want(t, exitOK).out
				pool := devtest.EmptyPool(t)
				apply(t, pool, script)
				if err := schema.Require(t.Context(), pool, tt.schema); err != nil {
					t.Errorf("Require = %v", err)
				}
				postroom(t, inDatabase(pool), append([]string{"migrate", "up"}, tt.args...)...).want(t, exitOK).says(t, "nothing to do")
			})
		}
	}
}

func applyWithPGX(t *testing.T, pool *pgxpool.Pool, script string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.PgConn().Exec(t.Context(), script).ReadAll() // the simple protocol
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func applyWithPSQL(t *testing.T, pool *pgxpool.Pool, script string) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		devtest.Missing(t, fmt.Errorf("no psql; the same is tested with pgx: %w", err))
	}
	cmd := exec.CommandContext(t.Context(), psql, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", databaseURL(pool))
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// The flag names the database. Without the flag, the first variable that is set names it.
func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	url := databaseURL(devtest.Pool(t))
	const wrong = "postgres://nobody@127.0.0.1:1/nowhere?sslmode=disable"
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	tests := []struct {
		name string
		env  environment
		args []string
		want int
		says string
	}{
		{"flag", nil, []string{"--database-url", url}, exitOK, ""},
		{"flag before variable", environment{"POSTROOM_DATABASE_URL": wrong}, []string{"--database-url", url}, exitOK, ""},
		{"variable", environment{"POSTROOM_DATABASE_URL": url, "DATABASE_URL": wrong}, nil, exitOK, ""},
		{"fallback", environment{"DATABASE_URL": url}, nil, exitOK, ""},
		{"settings of a pool", environment{"DATABASE_URL": url + separator + "pool_max_conns=7&pool_max_conn_lifetime=1h"}, nil, exitOK, ""},
		{"a bad setting of a pool", environment{"DATABASE_URL": url + separator + "pool_max_conns=x"}, nil, exitUsage, "DATABASE_URL has an invalid setting of the pool"},
		{"none", nil, nil, exitUsage, "POSTROOM_DATABASE_URL"},
		{"no server", environment{"DATABASE_URL": wrong}, nil, exitFailed, `"nowhere" at 127.0.0.1:1 as "nobody" (DATABASE_URL): is the server running`},
		{"no such database", environment{"DATABASE_URL": strings.Replace(url, "/postroom_test_", "/no_such_", 1)}, nil, exitFailed, "createdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			postroom(t, tt.env, append([]string{"migrate", "status"}, tt.args...)...).want(t, tt.want).says(t, tt.says)
		})
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		says string
	}{
		{"no command", nil, "audit, completion, dead, doctor, events, handlers, held, keys, migrate, reconcile, relay, replay, republish, saga, status, stream, tables, version, webhook"},
		{"no verb", []string{"migrate"}, "print, status, up"},
		{"unknown command", []string{"frobnicate"}, `unknown command "frobnicate"`},
		{"mistyped command", []string{"migrat"}, `did you mean "migrate"?`},
		{"mistyped verb", []string{"migrate", "statsu"}, `did you mean "status"?`},
		{"an earlier word", []string{"dead", "replays"}, "unknown command \"replays\"; use 'postroom replay list'"},
		{"more than one", []string{"replays"}, "unknown command \"replays\"; use 'postroom replay list'"},
		{"an earlier word with its flags", []string{"dead", "cancel", "7", "--reason", "wrong"}, "unknown command \"cancel\"; use 'postroom replay cancel'"},
		{"an earlier word behind a flag", []string{"dead", "--schema", "s", "resume", "7"}, "use 'postroom replay resume'"},
		{"a word of another program", []string{"relay", "status"}, "use 'postroom status'"},
		{"a list that is none", []string{"handlers", "lists"}, "say what to do: pause, resume"},
		{"two words behind a list", []string{"keys", "list", "list"}, "takes flags only"},
		{"unknown flag behind a list", []string{"handlers", "list", "--force"}, "unknown flag: --force"},
		{"unknown flag of a group", []string{"migrate", "--force"}, "unknown flag: --force"},
		{"unknown flag", []string{"migrate", "up", "--force"}, "unknown flag: --force"},
		{"flag without its value", []string{"migrate", "up", "--schema"}, "flag needs an argument"},
		{"an argument", []string{"version", "2"}, "takes flags only"},
		{"invalid schema", []string{"migrate", "print", "--schema", "pg_x"}, "invalid schema name"},
		{"SQL as schema", []string{"migrate", "print", "--schema", `x"; DROP SCHEMA public`}, "invalid schema name"},
		{"stream without name", []string{"stream", "ensure", "--subjects", "a.>"}, "give the name"},
		{"stream with two names", []string{"stream", "ensure", "A", "B", "--subjects", "a.>"}, "give the name"},
		{"stream without subjects", []string{"stream", "ensure", "SHOP"}, "--subjects 'order.>'"},
		{"too many replicas", []string{"stream", "ensure", "SHOP", "--subjects", "a.>", "--replicas", "6"}, "want 1 to 5"},
		{"negative replicas", []string{"stream", "ensure", "SHOP", "--subjects", "a.>", "--replicas", "-1"}, "want 1 to 5"},
		{"negative age", []string{"stream", "ensure", "SHOP", "--subjects", "a.>", "--max-age", "-1h"}, "want a positive duration"},
		{"age without a unit", []string{"stream", "ensure", "SHOP", "--subjects", "a.>", "--max-age", "7"}, "want a positive duration"},
		{"no broker", []string{"stream", "ensure", "SHOP", "--subjects", "a.>"}, "POSTROOM_NATS_URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := postroom(t, nil, tt.args...).want(t, exitUsage).says(t, tt.says, " --help' for usage.")
			if r.out != "" {
				t.Errorf("standard output %q, want none", r.out)
			}
		})
	}
}

// canary is a password. No output may show it or a part of it.
const canary = "c4naryS3cret"

func TestNoOutputShowsAPassword(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	host := pool.Config().ConnConfig.Host
	urls := []struct{ name, url string }{
		{"no server", "postgres://me:" + canary + "@127.0.0.1:1/shop"},
		{"no such host", "postgres://me:" + canary + "@no-such-host.invalid/shop"},
		{"no such user", strings.Replace(databaseURL(pool), "postgres://postgres@", "postgres://no_such_user:"+canary+"@", 1)},
		{"slash in it", "postgres://me:" + canary + "/x@" + host + "/shop"},
		{"question mark in it", "postgres://me:" + canary + "?x@" + host + "/shop"},
		{"question mark behind digits", "postgres://me:12?" + canary + "@" + host + "/shop"},
		{"hash in it", "postgres://me:1#" + canary + "@" + host + "/shop"},
		{"percent in it", "postgres://me:" + canary + "%zz@" + host + "/shop"},
		{"space in it", "postgres://me:" + canary + " x@" + host + "/shop"},
		{"bracket in it", "postgres://me:" + canary + "[@" + host + "/shop"},
		{"at sign in it", "postgres://me:x@" + canary + "@127.0.0.1:1/shop"},
		{"bad port", "postgres://me:" + canary + "@" + host + ":port/shop"},
		{"unknown setting", "postgres://me:" + canary + "@127.0.0.1:1/shop?sslmode=perhaps"},
		{"in the query", "postgres://127.0.0.1:1/shop?user=me&password=" + canary},
		{"other scheme", "mysql://me:" + canary + "@" + host + "/shop"},
		{"no scheme", "me:" + canary + "@" + host + "/shop"},
		{"key and value", "host=127.0.0.1 port=1 user=me password=" + canary},
		{"key and value, not closed", "host=127.0.0.1 password='" + canary},
		{"key and value, bad port", "host=127.0.0.1 port=x password=" + canary},
		{"newline", "postgres://me:" + canary + "\n@" + host + "/shop"},
	}
	verbs := []struct {
		name string
		args []string
		flag string
		env  string
	}{
		{"up", []string{"migrate", "up"}, "--database-url", "POSTROOM_DATABASE_URL"},
		{"status", []string{"migrate", "status", "--json"}, "--database-url", "DATABASE_URL"},
		{"doctor", []string{"doctor"}, "--database-url", "POSTROOM_DATABASE_URL"},
		{"stream ensure", []string{"stream", "ensure", "SHOP", "--subjects", "a.>"}, "--nats-url", "POSTROOM_NATS_URL"},
		{"status of a database", []string{"status"}, "--database-url", "DATABASE_URL"},
	}
	for _, u := range urls {
		for _, verb := range verbs {
			t.Run(verb.name+"/"+u.name, func(t *testing.T) {
				t.Parallel()
				url := u.url
				if strings.HasPrefix(verb.name, "stream") {
					url = strings.Replace(url, "postgres://", "nats://", 1)
				}
				env := environment{verb.env: url}
				runs := []result{
					postroom(t, env, verb.args...),
					postroom(t, nil, append(slices.Clone(verb.args), verb.flag, url)...),
					postroom(t, nil, append(slices.Clone(verb.args), verb.flag+"="+url)...),
					postroom(t, nil, append(slices.Clone(verb.args), verb.flag, url, verb.flag, url)...),
					postroom(t, nil, append(slices.Clone(verb.args), verb.flag+"x", url)...), // mistyped
					postroom(t, nil, append(slices.Clone(verb.args), url)...),                // in the wrong place
					postroom(t, nil, verb.args[0], url),
					postroom(t, nil, url),
					postroom(t, env, append(slices.Clone(verb.args), "--help")...),
				}
				for i, r := range runs {
					for _, part := range []string{canary, canary[:6], canary[6:]} {
						if strings.Contains(r.out+r.errors, part) {
							t.Errorf("run %d shows %q:\n%s%s", i, part, r.out, r.errors)
						}
					}
					if r.code == exitOK && i < len(runs)-1 {
						t.Errorf("run %d succeeded", i)
					}
				}
			})
		}
	}
}

// No command takes URLs as arguments, except one that sends to a URL. Every other command refuses
// them as wrong usage, and does not show them.
func TestNoCommandShowsAnArgument(t *testing.T) {
	t.Parallel()
	url := "postgres://me:" + canary + "@127.0.0.1:1/shop"
	for _, cmd := range commands(newRoot(func(string) string { return "" })) {
		if !cmd.Runnable() {
			continue
		}
		r := postroom(t, nil, append(strings.Fields(cmd.CommandPath())[1:], url, url, url)...).want(t, exitUsage)
		if strings.Contains(r.out+r.errors, canary) {
			t.Errorf("%s shows %q:\n%s%s", cmd.CommandPath(), canary, r.out, r.errors)
		}
	}
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	env := inDatabase(devtest.EmptyPool(t))
	if code := run(ctx, []string{"migrate", "up"}, func(n string) string { return env[n] }, &out, &errs); code != exitFailed {
		t.Errorf("exit status %d, want %d: %s", code, exitFailed, errs.String())
	}
}

// brokenWriter is a standard output whose reader has gone.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestBrokenOutputIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"migrate", "print"}} {
		var errs bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, brokenWriter{}, &errs)
		if code != exitFailed || !strings.Contains(errs.String(), "write output") {
			t.Errorf("%v: exit status %d, %q", args, code, errs.String())
		}
	}
}

// Every other word for a command runs it, and what Elsewhere names is a command.
func TestOtherWords(t *testing.T) {
	root := newRoot(func(string) string { return "" })
	for line, words := range command.Aliases {
		cmd, rest, _ := root.Find(strings.Fields(line))
		for _, word := range words {
			other := append(strings.Fields(strings.TrimSuffix(line, cmd.Name())), word)
			if got, more, _ := root.Find(other); got != cmd || len(rest)+len(more) > 0 {
				t.Errorf("postroom %s is not postroom %s", strings.Join(other, " "), line)
			}
		}
	}
	for line, meant := range command.Elsewhere {
		if cmd, rest, _ := root.Find(strings.Fields(meant)); !cmd.Runnable() || len(rest) > 0 {
			t.Errorf("postroom %s: there is no command postroom %s", line, meant)
		}
		postroom(t, nil, strings.Fields(line)...).want(t, exitUsage).says(t, "use 'postroom "+meant+"'")
	}
	env := environment{"DATABASE_URL": "postgres://127.0.0.1:1/none"} // nothing listens there
	for _, line := range []string{"handlers list", "handler list", "keys list", "tables list", "audit list", "webhook endpoints list", "webhook list"} {
		postroom(t, env, append(strings.Fields(line), "--json")...).want(t, exitFailed)
	}
}

func TestVersion(t *testing.T) {
	if flag, want := postroom(t, nil, "--version"), postroom(t, nil, "version"); flag != want {
		t.Errorf("--version prints %+v, version %+v", flag, want)
	}
	postroom(t, nil, "version").want(t, exitOK).says(t, "postroom   ", fmt.Sprintf("schema     %d\n", newest(t)), "go         go1.")
	var a about
	if err := json.Unmarshal([]byte(postroom(t, nil, "version", "--json").want(t, exitOK).out), &a); err != nil {
		t.Fatal(err)
	}
	if a.Version == "" || a.Schema < 1 || a.Go == "" || a.Platform == "" {
		t.Errorf("version --json = %+v", a)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		postroom(t, nil, "completion", shell).want(t, exitOK).says(t, "postroom")
	}
	postroom(t, nil, "__complete", "migrate", "s").says(t, "status\tShow which migrations are applied")
	postroom(t, nil, "__complete", "stream", "ensure", "").says(t, ":4\n") // no file names
}

// Every command has a help text, and accepts the command lines of its examples.
func TestHelp(t *testing.T) {
	root := newRoot(func(string) string { return "" })
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if cmd.Short == "" || cmd.Long == "" {
			t.Errorf("%s has no help", cmd.CommandPath())
		}
		if cmd.HasSubCommands() && cmd.Example == "" { // it only groups other commands
			return
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(cmd.Example, "\\\n", ""), "\n") {
			checkExample(t, newRoot(func(string) string { return "" }), line) // anew, because each flag keeps its value
		}
	}
	walk(root)
	postroom(t, nil, "--help").want(t, exitOK).says(t, "Exit status:", "Examples:", "POSTROOM_DATABASE_URL")
}

// shellWord is one word of a shell's command line, including its quotes.
var shellWord = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)

func checkExample(t *testing.T, root *cobra.Command, line string) {
	t.Helper()
	_, line, ok := strings.Cut(" "+line, " postroom ")
	if !ok {
		t.Errorf("an example does not call postroom: %s", line)
		return
	}
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " > ")
	words := shellWord.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "'", "")
	}
	if words[0] == "completion" {
		return // cobra adds it when it runs
	}
	cmd, rest, err := root.Find(words)
	if err != nil || !cmd.Runnable() || cmd.HasSubCommands() && cmd.Example == "" {
		t.Errorf("example %q: no such command: %v", line, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("example %q: %v", line, err)
		return
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("example %q: %v", line, err)
	}
}

// The program itself, once: main and its exit status.
func TestProgram(t *testing.T) {
	err := program(t, "migrate").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
		t.Errorf("postroom migrate: %v, want exit status %d", err, exitUsage)
	}
}

// newest returns the number of the newest migration.
func newest(t *testing.T) int {
	t.Helper()
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	return len(steps)
}
