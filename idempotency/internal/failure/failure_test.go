package failure_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/idempotency/internal/failure"
)

// endless is an error that contains itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// An error of the database may prove that nothing was committed. That decides whether a request may
// be carried out again. So each kind of error must be in exactly its classes.
func TestClasses(t *testing.T) {
	t.Parallel()
	server := func(severity, code string) error {
		return fmt.Errorf("commit: %w", &pgconn.PgError{Severity: severity, Code: code})
	}
	translated := &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505"}
	for name, tt := range map[string]struct {
		err                                      error
		contention, interruption, refusal, short bool
	}{
		"serialization failure":           {err: server("ERROR", "40001"), contention: true, refusal: true},
		"deadlock":                        {err: server("ERROR", "40P01"), contention: true, refusal: true},
		"a constraint":                    {err: server("ERROR", "23505"), refusal: true},
		"a constraint, in German":         {err: translated, refusal: true},
		"a statement that took too long":  {err: server("ERROR", "57014"), interruption: true},
		"a server that shuts down":        {err: server("FATAL", "57P01")},
		"an error while it shuts down":    {err: server("ERROR", "57P01")},
		"a session that ends":             {err: server("FATAL", "25P03")},
		"a connection that broke":         {err: server("ERROR", "08006")},
		"a full disk":                     {err: server("ERROR", "53100"), refusal: true, short: true},
		"a server that takes no sessions": {err: server("FATAL", "53300"), short: true},
		"a server that takes no writes":   {err: server("ERROR", "25006"), refusal: true, short: true},
		"a pooler that keeps nothing":     {err: &pgconn.PgError{Severity: "ERROR", Code: "26000", Message: `prepared statement "stmtcache_0a" does not exist`}, refusal: true, short: true},
		"a transaction that was aborted":  {err: server("ERROR", "25P02"), refusal: true},
		"a context that ended":            {err: fmt.Errorf("read: %w", context.Canceled), interruption: true},
		"a deadline":                      {err: fmt.Errorf("read: %w", context.DeadlineExceeded), interruption: true},
		"a time limit of the network":     {err: fmt.Errorf("read: %w", os.ErrDeadlineExceeded), interruption: true},
		"a connection that ended":         {err: errors.New("unexpected EOF")},
		"a connection that was reset":     {err: &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}},
		"no error":                        {},
	} {
		got := []bool{failure.IsContention(tt.err), failure.IsInterruption(tt.err), failure.IsShort(tt.err)}
		want := []bool{tt.contention, tt.interruption, tt.short}
		refusal := failure.IsRefusal(tt.err)
		if fmt.Sprint(got) != fmt.Sprint(want) || refusal != tt.refusal {
			t.Errorf("%s: contention, interruption, shortage %v, refusal %t; want %v, %t", name, got, refusal, want, tt.refusal)
		}
	}
	if failure.IsInterruption(endless{}) {
		t.Error("a user's error without an end is an interruption")
	}
}
