//go:build linux || darwin

package workload

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/integration/checker"
)

// A producer may claim only what it knows after an attempt.
func TestPhaseOf(t *testing.T) {
	t.Parallel()
	commit := func(err error) error { return fmt.Errorf("write: %w", &sentCommit{err}) }
	for _, tt := range []struct {
		name string
		err  error
		want checker.Phase
	}{
		{"committed", nil, checker.OK},
		{"refused before the commit", &pgconn.PgError{Severity: "ERROR"}, checker.Failed},
		{"connection lost before the commit", net.ErrClosed, checker.Failed},
		{"rolled back on purpose", errOnPurpose, checker.Failed},
		{"commit refused", commit(&pgconn.PgError{Severity: "ERROR", Code: "40001"}), checker.Failed},
		{"commit that rolled back", commit(pgx.ErrTxCommitRollback), checker.Failed},
		{"connection lost in the commit", commit(net.ErrClosed), checker.Unknown},
		{"server ended in the commit", commit(&pgconn.PgError{Severity: "FATAL", Code: "57P01"}), checker.Unknown},
		{"patience lost in the commit", commit(context.DeadlineExceeded), checker.Unknown},
	} {
		if got := phaseOf(tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
