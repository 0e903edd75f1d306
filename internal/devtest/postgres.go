package devtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/schema"
)

// prefix is the prefix of the name of each database of this process. It differs between processes,
// so that several test processes can share one server.
var prefix = "postroom_test_" + strings.ToLower(rand.Text()[:10]) + "_"

var databases atomic.Int64 // the number in the newest name of a database or a role

// postgres starts the shared server on its first call, and returns it.
var postgres = sync.OnceValues(func() (*devstack.Postgres, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	p, err := devstack.StartPostgres(ctx, devstack.Config{Local: where() == local, Container: where() == containers})
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndevtest: NO POSTGRESQL, its tests do not run: %v\n\n", err)
		return nil, err
	}
	started.Store(p)
	version, err := versionOf(ctx, p)
	if err != nil {
		return nil, err
	}
	announce("PostgreSQL", version, p.Source(), p.Hostname())
	return p, nil
})

func versionOf(ctx context.Context, p *devstack.Postgres) (version string, err error) {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

var started atomic.Pointer[devstack.Postgres]

// template creates a migrated database on its first call, and returns the database's name. The
// database exists until the server is closed.
var template = sync.OnceValues(func() (string, error) {
	p, err := postgres()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	name := prefix + "template"
	url, err := p.CreateDatabase(ctx, name, "")
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	_, err = schema.Migrate(ctx, conn, "")
	// A database cannot be cloned while it has sessions.
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return "", fmt.Errorf("migrate template: %w", err)
	}
	return name, nil
})

func stopPostgres() error {
	if p := started.Load(); p != nil {
		return p.Close()
	}
	return nil
}

// Postgres returns the server that this process's tests share. Do not close it. To stop
// or kill a server, use [OwnPostgres].
func Postgres(t testing.TB) *devstack.Postgres {
	t.Helper()
	p, err := postgres()
	if err != nil {
		Missing(t, err)
	}
	return p
}

// OwnPostgres returns an empty server that only this test uses. The test may kill and restart it.
// OwnPostgres removes the server when the test ends. If POSTROOM_TEST_SERVERS is containers, the
// server runs in a container. Otherwise it runs locally. OwnPostgres sets cfg.Local and
// cfg.Container accordingly.
func OwnPostgres(t testing.TB, cfg devstack.Config) *devstack.Postgres {
	t.Helper()
	cfg.Container = where() == containers
	cfg.Local = !cfg.Container
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	p, err := devstack.StartPostgres(ctx, cfg)
	if err != nil {
		Missing(t, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// PoolerURL starts a pooler in front of the given database and returns the pooler's URL. It stops
// the pooler when the test ends.
func PoolerURL(t testing.TB, database string, cfg devstack.PoolerConfig) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	p, err := devstack.StartPooler(ctx, database, cfg)
	if errors.Is(err, devstack.ErrNoPooler) {
		Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p.URL()
}

// Pool returns a pool for a migrated database that only this test uses. When the test ends, Pool
// closes the pool. The database is dropped soon after.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, DatabaseURL(t))
}

// EmptyPool is [Pool] with an empty database: it has no tables of Postroom.
func EmptyPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, database(t, Postgres(t), ""))
}

// DatabaseURL returns the URL of a migrated database that only this test uses. It is for tests that
// start processes or open connections themselves. Soon after the end of the test, DatabaseURL ends
// the remaining sessions and drops the database.
func DatabaseURL(t testing.TB) string {
	t.Helper()
	p := Postgres(t)
	from, err := template()
	if err != nil {
		t.Fatal(err)
	}
	return database(t, p, from)
}

func database(t testing.TB, p *devstack.Postgres, from string) string {
	t.Helper()
	url, drop, err := create(t.Context(), p, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		within := Patience(t, dropTime)
		drops.Go(func() {
			if err := drop(within); err != nil {
				dropErrs.Store(t.Name(), err)
			}
		})
	})
	return url
}

// drops are the databases that are being dropped, and dropErrs the errors by the name of the test.
// No test waits for that: the server sleeps a tenth of a second until the sessions have ended.
var (
	drops    sync.WaitGroup
	dropErrs sync.Map
)

// awaitDrops waits until the databases of the tests are dropped.
func awaitDrops() error {
	drops.Wait()
	var errs []error
	dropErrs.Range(func(test, err any) bool {
		errs = append(errs, fmt.Errorf("after %s: %w", test, err.(error)))
		return true
	})
	return errors.Join(errs...)
}

// NewDatabase is [DatabaseURL] for a test that needs many databases one after the other, or that
// needs a database outside its own goroutine. The caller calls drop to drop the database.
func NewDatabase(ctx context.Context) (url string, drop func() error, err error) {
	p, err := postgres()
	if err != nil {
		return "", nil, err
	}
	from, err := template()
	if err != nil {
		return "", nil, err
	}
	url, dropWithin, err := create(ctx, p, from)
	if err != nil {
		return "", nil, err
	}
	return url, func() error { return dropWithin(mostPatience) }, nil
}

// dropTime is how long an idle machine needs at the most to drop a database or a role.
const dropTime = 30 * time.Second

func create(ctx context.Context, p *devstack.Postgres, from string) (url string, drop func(within time.Duration) error, err error) {
	name := fmt.Sprint(prefix, databases.Add(1))
	url, err = p.CreateDatabase(ctx, name, from)
	if err != nil {
		return "", nil, err
	}
	return url, func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return p.DropDatabase(ctx, name)
	}, nil
}

// RolePool creates a role and returns its name, and a pool that connects to p's database as this
// role. The role may log in and has no other rights. When the test ends, RolePool closes the pool,
// and then drops the role and the rights that the role got.
func RolePool(t testing.TB, p *pgxpool.Pool) (_ *pgxpool.Pool, role string) {
	t.Helper()
	role = fmt.Sprintf("role_%d_%s", databases.Add(1), p.Config().ConnConfig.Database)
	secret := rand.Text()
	if _, err := p.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", role, secret)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience(t, dropTime))
		defer cancel()
		if _, err := p.Exec(ctx, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %s", role, role)); err != nil {
			t.Error(err)
		}
	})
	cfg := p.Config()
	cfg.ConnConfig.User, cfg.ConnConfig.Password = role, secret
	as, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, as) })
	return as, role
}

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 20
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, p) })
	return p
}

// closePool closes p. It fails the test if the test does not give back all connections. An idle
// machine needs 10 seconds for that at the most.
func closePool(t testing.TB, p *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() { // this goroutine ends when the test gives back the last connection
		defer close(closed)
		p.Close()
	}()
	select {
	case <-closed:
		return
	case <-time.After(Patience(t, 10*time.Second)):
	}
	select {
	case <-closed: // look again, because this goroutine may have waited long for a processor
	default:
		t.Errorf("%d connections of the pool are still in use after the test", p.Stat().AcquiredConns())
	}
}

// TakeNoWrites fills a pool with connections that take no writes. New connections take writes again
// when TakeNoWrites returns. So the pool looks as after a failover: its connections lead to the
// previous primary server, which is a standby now.
func TakeNoWrites(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	admin, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.WithoutCancel(ctx)) }() // the server ends the connection too
	set := func(what string) {
		t.Helper()
		sql := fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I %s', current_database()); END $$", what)
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	set("SET default_transaction_read_only = on")
	pool.Reset()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	set("RESET default_transaction_read_only")
}
