package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/remedy"
)

// poolerRounds is how often checkPooler uses each connection in turn. A transaction pooler gives each
// statement any free connection to the server. While the pooler has no other client, it gives both
// connections the same one, so the first round shows that.
const poolerRounds = 8

// checkPooler examines whether a pooler loses prepared statements. By default, the driver of producers
// and consumers prepares statements, so some of their statements would fail. The doctor itself
// prepares none, so its other checks would not notice that. The mode says whether the programs prepare
// statements.
func checkPooler(ctx context.Context, e *examination) error {
	cfg := connConfigOf(e.d.db)
	if cfg == nil {
		e.skip("", "", "not checked: the doctor does not know the address of the database")
		return nil
	}
	//guard:doctor-reads-the-mode-of-the-url false
	if mode := cmp.Or(e.d.cfg.ExecMode, cfg.DefaultQueryExecMode); mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec {
		e.ok("", "with the mode of these connections (default_query_exec_mode %s), programs work through every pooler; whether there is one was not checked", mode)
		return nil
	}
	lost, err := losesStatements(ctx, cfg)
	switch {
	case err != nil:
		return err
	//guard:doctor-finds-a-pooler-that-keeps-no-statements false
	case lost != nil:
		e.warn("", "put default_query_exec_mode=exec into the database URL of producers and consumers, or let the pooler keep prepared statements (PgBouncer: max_prepared_statements)",
			"there is a transaction pooler between the doctor and the database that keeps no prepared statements, so some statements of producers and consumers fail: %v", lost)
	}
	return nil
}

// connConfigOf returns the configuration of a connection of db, or nil if db is of a type that the
// doctor does not know.
func connConfigOf(db DB) *pgx.ConnConfig {
	switch db := db.(type) {
	case *pgxpool.Pool:
		return db.Config().ConnConfig
	case *pgx.Conn:
		return db.Config()
	}
	return nil
}

// losesStatements opens two connections, prepares a statement of the same name on each, and uses both
// in turn. If a statement fails because a pooler keeps no prepared statements, the result lost is the
// error of that statement.
func losesStatements(ctx context.Context, cfg *pgx.ConnConfig) (lost, err error) {
	name := "stmt_doctor_" + rand.Text() // no other program uses this name
	var both [2]*pgx.Conn
	for i := range both {
		conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the statement ends with the connection, or with that of the pooler to the server
		both[i] = conn
	}
	for _, conn := range both {
		if _, err := conn.Prepare(ctx, name, "SELECT 1"); err != nil {
			return lostOr(err)
		}
		defer func() { _ = conn.Deallocate(context.WithoutCancel(ctx), name) }() // the pooler may have lost the statement
	}
	for range poolerRounds {
		for _, conn := range []*pgx.Conn{both[0], both[1], both[1], both[0]} {
			if _, err := conn.Exec(ctx, name); err != nil {
				return lostOr(err)
			}
		}
	}
	return nil, nil
}

// lostOr returns err as the first result if a pooler lost a prepared statement.
func lostOr(err error) (lost, other error) {
	if remedy.IsUnprepared(err) {
		return err, nil
	}
	return nil, fmt.Errorf("prepare a statement: %w", err)
}
