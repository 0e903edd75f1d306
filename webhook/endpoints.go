package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

// EndpointsConfig tunes [Endpoints]. The zero value is ready to use.
type EndpointsConfig struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Endpoints adds and changes the endpoints to which a [Sender] sends. Attempts that begin after a
// change use the changed endpoint, in all processes. Each change writes a row to the audit, in the
// same transaction. With a *pgxpool.Pool, Endpoints is safe for concurrent use.
type Endpoints struct {
	db     postroom.DB
	schema string
	err    error // the fault of the config
	tables change.Tables
	sql    statements
}

// NewEndpoints returns endpoints. It does no I/O and cannot fail: if the config is wrong,
// [Endpoints.Check] and all other methods return the error.
func NewEndpoints(db postroom.DB, cfg EndpointsConfig) *Endpoints {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Endpoints{db: db, err: fmt.Errorf("webhook: config: Schema: %w", err)}
	}
	sql := sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
	return &Endpoints{db: db, schema: name, tables: change.New(db, name), sql: sql}
}

// Check returns an error if the database lacks the tables that the endpoints need.
func (s *Endpoints) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.explain(schema.Require(ctx, s.db, s.schema))
}

var (
	// ErrUnknownEndpoint says that there is no endpoint with this id.
	ErrUnknownEndpoint = errors.New("there is no such endpoint")

	// ErrEndpointExists says that the id of a new endpoint is taken.
	ErrEndpointExists = errors.New("an endpoint with this id exists")
)

// Add adds an endpoint, and returns its id and secret. Give the receiver the secret: no method
// shows it again. Add returns all faults of e at once, and [ErrEndpointExists] if its ID is taken.
func (s *Endpoints) Add(ctx context.Context, e EndpointSpec, by postroom.Audit) (id string, secret Secret, err error) {
	e.ID = cmp.Or(e.ID, "ep_"+rand.Text())
	if e.Secret == "" {
		e.Secret = makeSecret()
	}
	if e.Types == nil {
		e.Types = []string{}
	}
	if err := errors.Join(s.valid(by), e.validate()); err != nil {
		return "", "", fmt.Errorf("webhook: add: %w", err)
	}
	err = s.change(ctx, "add", e.ID, by, func(tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, s.sql.Add, e.ID, e.Account, e.URL, e.Types, string(e.Secret))
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrEndpointExists
		}
		return true, err
	})
	if err != nil {
		return "", "", err
	}
	return e.ID, e.Secret, nil
}

// Rotate gives an endpoint a new secret, and returns it. If secret is empty, Rotate makes one. For
// 24 hours the previous secret signs too, so that the receiver has time to change. If you call
// Rotate again in that time, the newest secrets (at most five) sign for 24 hours after that call.
func (s *Endpoints) Rotate(ctx context.Context, id string, secret Secret, by postroom.Audit) (Secret, error) {
	if secret == "" {
		secret = makeSecret()
	}
	if _, err := secret.key(); err != nil {
		return "", fmt.Errorf("webhook: rotate: %w", err)
	}
	if err := s.update(ctx, "rotate", s.sql.Rotate, by, id, string(secret)); err != nil {
		return "", err
	}
	return secret, nil
}

// Disable stops sending to an endpoint. The endpoint gets no new events. Events that already wait
// for the endpoint become dead at their next attempt, with the class endpoint_disabled. To send
// these events, enable the endpoint and replay them.
func (s *Endpoints) Disable(ctx context.Context, id string, by postroom.Audit) error {
	if by.Reason == "" {
		return errors.New("webhook: disable: Audit.Reason is empty: say why the endpoint is disabled")
	}
	return s.update(ctx, "disable", s.sql.Disable, by, id, by.Reason)
}

// Enable starts sending to an endpoint again. If the endpoint still fails, the sender disables it
// again after five days.
func (s *Endpoints) Enable(ctx context.Context, id string, by postroom.Audit) error {
	return s.update(ctx, "enable", s.sql.Enable, by, id)
}

// Remove removes an endpoint, with its URL and its secrets, for instance because the customer has left.
// Events that wait for the endpoint become dead at their next attempt, with the class permanent. If
// you only want to stop sending for a while, call Disable. Never give the id to another endpoint: dead
// and waiting events keep it, and could be sent to that endpoint.
func (s *Endpoints) Remove(ctx context.Context, id string, by postroom.Audit) error {
	if by.Reason == "" {
		return errors.New("webhook: remove: Audit.Reason is empty: say why the endpoint is removed")
	}
	return s.update(ctx, "remove", s.sql.Remove, by, id)
}

// List returns the endpoints of the accounts, or all endpoints if no account is named, sorted by
// account and id.
func (s *Endpoints) List(ctx context.Context, accounts ...string) ([]Endpoint, error) {
	if s.err != nil {
		return nil, s.err
	}
	rows, _ := s.db.Query(ctx, s.sql.List, accounts) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, scanEndpoint)
	if err != nil {
		return nil, fmt.Errorf("webhook: list endpoints: %w", s.explain(err))
	}
	return all, nil
}

func scanEndpoint(row pgx.CollectableRow) (e Endpoint, err error) {
	var rotated, disabled, failing, paused, last *time.Time
	var status *int
	err = row.Scan(&e.ID, &e.Account, &e.URL, &e.Types, &e.CreatedAt, &rotated, &disabled, &e.DisabledReason, &failing, &paused, &status, &last)
	e.RotatedAt, e.DisabledAt, e.FailingSince, e.PausedUntil, e.LastAt = timeOf(rotated), timeOf(disabled), timeOf(failing), timeOf(paused), timeOf(last)
	if status != nil {
		e.LastStatus = *status
	}
	return e, err
}

// timeOf returns the time, or zero for NULL.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// update runs a statement that changes one endpoint. The first argument of the statement is the
// endpoint's id.
func (s *Endpoints) update(ctx context.Context, action, sql string, by postroom.Audit, id string, args ...any) error {
	if err := s.valid(by); err != nil {
		return fmt.Errorf("webhook: %s: %w", action, err)
	}
	return s.change(ctx, action, id, by, func(tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, sql, append([]any{id}, args...)...)
		return tag.RowsAffected() > 0, err
	})
}

// change calls the function do to change an endpoint, and adds a row to the audit.
func (s *Endpoints) change(ctx context.Context, action, id string, by postroom.Audit, do func(tx pgx.Tx) (found bool, err error)) error {
	err := s.tables.InTx(ctx, func(tx pgx.Tx) error {
		found, err := do(tx)
		switch {
		case err != nil:
			return err
		case !found:
			return ErrUnknownEndpoint
		}
		_, err = s.tables.Audit(ctx, tx, change.Action{Name: "webhook " + action, By: by, Details: map[string]string{"endpoint": id}})
		return err
	})
	if err != nil {
		return fmt.Errorf("webhook: %s: %w", action, s.explain(err))
	}
	return nil
}

// explain adds advice to an error of the database.
func (s *Endpoints) explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "webhooks", Schema: s.schema, DB: s.db})
}

func (s *Endpoints) valid(by postroom.Audit) error {
	return errors.Join(s.err, change.Valid(by))
}
