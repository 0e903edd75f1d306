package idempotency_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// The database stops and starts, and is killed while a handler runs. While it is away, nothing
// runs. Each retry gets a true answer.
func TestOutage(t *testing.T) { // C12, E6, E7
	t.Parallel()
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	url, err := server.CreateDatabase(t.Context(), "outage", "")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := schema.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	r := newRigOn(t, pool)
	restart := func() {
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		devtest.Eventually(t, patience, "the database is back", func() bool { return pool.Ping(t.Context()) == nil })
	}
	kill := false
	h := func(w http.ResponseWriter, req *http.Request) {
		if kill {
			r.insert(req.Context())
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
			r.calls.Add(1)
			w.WriteHeader(http.StatusCreated)
			return
		}
		r.refund(w, req)
	}
	path := r.mount(idempotency.Route{}, h)
	first := r.post(path, "k")
	r.want(first, 201, "")

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "new"} {
		w := r.post(path, key)
		r.want(w, 503, "idempotency_store_unavailable")
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if n := r.calls.Load(); n != 1 {
		t.Errorf("%d calls: a handler ran without the store", n)
	}
	if n := r.counts()["idempotent.store_error"]; n != 2 {
		t.Errorf("%d store errors", n)
	}
	restart()
	r.wantReplay(first, r.post(path, "k"))
	r.want(r.post(path, "new"), 201, "")
	r.wantCalls(2, 2)

	kill = true
	if w := r.post(path, "killed"); w.Code != 503 {
		t.Errorf("killed under the handler: %d %s", w.Code, w.Body)
	}
	kill = false
	restart()
	r.want(r.post(path, "killed"), 201, "")
	r.wantCalls(4, 3)
}

// proxy stands between a guard and its database. On request, it loses the next message of one side,
// and cuts the connection.
type proxy struct {
	listener net.Listener
	to       string
	skip     atomic.Int32 // how many answers pass before that
	lose     atomic.Int32
	lost     chan struct{}
}

const (
	loseAnswer    = 1 // of the database: the request was carried out
	loseRequest   = 2 // to the database: the request was not carried out
	replaceAnswer = 3 // of the database, by the end of the session: the request was carried out
	replaceByFull = 4 // of the database, by the panic of a server whose disk is full: the request was carried out
)

// ends are the errors that replace an answer.
var ends = map[int32]pgproto3.ErrorResponse{
	replaceAnswer: {Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "XX000", Message: "the session ended"}, // like a pooler that has lost its server
	replaceByFull: {Severity: "PANIC", SeverityUnlocalized: "PANIC", Code: "53100", Message: "could not write to file"},
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{listener: listener, to: to, lost: make(chan struct{}, 10)}
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.carry(conn) // ends with the connection
		}
	}()
	return p
}

func (p *proxy) carry(client net.Conn) {
	server, err := net.Dial("tcp4", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	end := sync.OnceFunc(func() { _, _ = client.Close(), server.Close() })
	go p.pass(server, client, loseRequest, end)
	p.pass(client, server, loseAnswer, end)
}

func (p *proxy) pass(to io.Writer, from io.Reader, what int32, end func()) {
	defer end()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 && what == loseAnswer && p.lose.Load() != 0 && p.skip.Add(-1) >= 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		if n > 0 && p.lose.CompareAndSwap(what, 0) {
			p.lost <- struct{}{}
			return
		}
		if end, ok := ends[p.lose.Load()]; ok && n > 0 && what == loseAnswer {
			p.lose.Store(0)
			text, _ := end.Encode(nil) // it is short
			_, _ = to.Write(text)
			p.lost <- struct{}{}
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Either a COMMIT or its answer is lost, and the guard does not know which. It runs nothing again,
// and the retry finds out.
func TestLostReply(t *testing.T) { // E7
	t.Parallel()
	url := devtest.DatabaseURL(t)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port))))
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = "127.0.0.1", uint16(p.listener.Addr().(*net.TCPAddr).Port)
	cfg.ConnConfig.Fallbacks, cfg.MaxConns = nil, 1
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r := newRigOn(t, pool)
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		for what, done := range map[int32]bool{loseAnswer: true, replaceAnswer: true, replaceByFull: true, loseRequest: false} {
			r.calls.Store(0)
			r.exec("TRUNCATE ledger, postroom.idempotency")
			path := r.mount(idempotency.Route{Mode: mode, Store: idempotency.StoreAll}, func(w http.ResponseWriter, req *http.Request) {
				if mode == idempotency.TxMode {
					r.insert(req.Context())
				}
				if req.Header.Get("Idempotency-Key") != "warm" && r.calls.Add(1) == 1 {
					p.lose.Store(what)
				}
				w.WriteHeader(http.StatusCreated)
			})
			r.want(r.post(path, "warm"), 201, "") // the connection knows the statements then
			r.exec("TRUNCATE ledger")
			w := r.post(path, "k")
			r.want(w, 503, "idempotency_outcome_unknown")
			if w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			<-p.lost
			if mode == idempotency.LeaseMode && !done {
				r.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s' WHERE state = 'pending'")
			}
			devtest.Eventually(t, patience, "the retry is answered", func() bool { w = r.post(path, "k"); return w.Code != 409 })
			r.want(w, 201, "")
			if replayed := w.Header().Get("Idempotent-Replayed") == "true"; replayed != done {
				t.Errorf("mode %d, lost %d: a replay: %t", mode, what, replayed)
			}
			calls, effects := int64(2), 0
			if done {
				calls = 1
			}
			if mode == idempotency.TxMode {
				effects = 1
			}
			r.wantCalls(calls, effects)
		}
	}
}

// After a failover, the connections of the pool lead to a server that takes no writes, and new
// connections would lead to one that does. The guard leaves the old connections, whether the handler
// writes or only the guard does.
func TestGuardLeavesAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		r.withPool(2, pgx.QueryExecModeCacheStatement)
		path := r.mount(idempotency.Route{Mode: mode}, func(w http.ResponseWriter, req *http.Request) {
			if mode == idempotency.TxMode {
				if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), "INSERT INTO ledger (note) VALUES ('it')"); err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
			}
			w.WriteHeader(http.StatusCreated)
		})
		devtest.TakeNoWrites(t, r.pool)
		if w := r.send(path, sending{key: "first"}); w.Code < 500 {
			t.Errorf("mode %v: the answer is %d, want that nothing was done", mode, w.Code)
		}
		if w := r.send(path, sending{key: "second"}); w.Code != http.StatusCreated {
			t.Errorf("mode %v: the next answer is %d %s, want 201", mode, w.Code, w.Body)
		}
	}
}
