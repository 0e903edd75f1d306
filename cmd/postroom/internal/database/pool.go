package database

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// poolConfig reads the settings of a pool from the URL, such as pool_max_conns.
func poolConfig(one *pgx.ConnConfig, origin string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(one.ConnString())
	if err != nil { // the error does not contain err, which can contain a part of the password
		return nil, exit.Usagef("%s has an invalid setting of the pool (pool_max_conns or another pool_ setting)", origin)
	}
	return cfg, nil
}

// Pool returns a pool for a relay. It does not connect, because a relay can start before its
// database.
func (d *Target) Pool(ctx context.Context) (*pgxpool.Pool, error) {
	one, origin, err := d.config()
	if err != nil {
		return nil, err
	}
	cfg, err := poolConfig(one, origin)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.ConnectTimeout = one.ConnectTimeout
	for _, name := range []string{"application_name", "datestyle"} {
		cfg.ConnConfig.RuntimeParams[name] = one.RuntimeParams[name]
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// LookPool returns a pool for a command with many statements. If a statement takes too long, the
// command loses only one connection, and continues with another connection of the pool.
func (d *Target) LookPool(ctx context.Context) (*pgxpool.Pool, error) {
	conn, err := d.Connect(ctx) // its errors are clearer than those of a pool
	if err != nil {
		return nil, err
	}
	if err := Close(ctx, conn); err != nil {
		return nil, err
	}
	pool, err := d.Pool(ctx)
	if err != nil {
		return nil, err
	}
	cfg := pool.Config()
	pool.Close()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 2, 0, 0
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // works with every pooler
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}
