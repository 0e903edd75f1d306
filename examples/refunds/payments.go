package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statements
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
)

// Movement is money that moves between the provider and a merchant. It is the data of events and
// answers. The body of a request has only the amount and, for a refund, the charge.
type Movement struct {
	ID       string `json:"id"`
	Charge   string `json:"charge"` // the charge that a refund undoes; a charge names itself here
	Merchant string `json:"merchant"`
	Amount   int64  `json:"amount"` // cents
}

// kind has everything in which a charge and a refund differ. The steps and their order are the same
// for both.
type kind struct {
	name, path string
	event      string // the type of the event that announces the movement
	prefix     string // the ids of movements begin with it

	// undoes says that a movement of this kind takes its money from a charge. The request names
	// that charge.
	undoes bool

	// hold locks the charge from which a refund takes its money, until tx ends. It returns the
	// provider's name for that charge, and how much of the charge is left. For a movement that is a
	// charge, it locks nothing.
	hold func(ctx context.Context, tx pgx.Tx, m Movement) (of string, left int64, err error)

	// row returns the statement that inserts the movement, and the arguments.
	row func(m Movement, ref, key string) (sql string, args []any)

	// accounts returns the account that the money leaves, and the one that gets it.
	accounts func(merchant string) (debit, credit string)
}

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/given_back.sql
	givenBackSQL string
	//go:embed sql/reserve.sql
	reserveSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/charge.sql
	chargeSQL string
	//go:embed sql/refund.sql
	refundSQL string
	//go:embed sql/enter.sql
	enterSQL string
)

var charge = kind{
	name: "charge", path: "/charges", event: "payment.charged", prefix: "ch_",
	hold: func(context.Context, pgx.Tx, Movement) (string, int64, error) { return "", math.MaxInt64, nil },
	row: func(m Movement, ref, key string) (string, []any) {
		return chargeSQL, []any{m.ID, m.Merchant, m.Amount, ref, key}
	},
	accounts: func(merchant string) (string, string) { return "provider", merchant },
}

var refund = kind{
	name: "refund", path: "/refunds", event: "payment.refunded", prefix: "re_", undoes: true,
	hold: func(ctx context.Context, tx pgx.Tx, m Movement) (of string, left int64, err error) {
		var amount, back int64
		err = tx.QueryRow(ctx, lockSQL, m.Charge, m.Merchant).Scan(&of, &amount)
		if errors.Is(err, pgx.ErrNoRows) {
			return "", 0, errNoCharge
		}
		if err == nil {
			err = tx.QueryRow(ctx, givenBackSQL, m.Charge).Scan(&back)
		}
		if err != nil {
			return "", 0, fmt.Errorf("look up charge: %w", err)
		}
		return of, amount - back, nil
	},
	row: func(m Movement, ref, key string) (string, []any) {
		return refundSQL, []any{m.ID, m.Charge, m.Merchant, m.Amount, ref, key}
	},
	accounts: func(merchant string) (string, string) { return merchant, "provider" },
}

// reservation is the record of the first phase: the movement, and the provider's name for the
// charge from which a refund takes its money.
type reservation struct {
	Movement Movement
	Of       string
}

// carryOut moves money, once for each key. While it runs, the request has the claim of its key.
// When a step is done, carryOut records it. After a crash or a failure, the next request with the
// key continues after the last recorded step. While carryOut calls the provider, it has no
// transaction open.
func (s *service) carryOut(ctx context.Context, k kind, m Movement) (Movement, receipt, error) {
	held, err := idempotency.Phase(ctx, "reserve", func(ctx context.Context, tx pgx.Tx) (reservation, error) {
		return s.reserve(ctx, tx, k, m)
	})
	if err != nil {
		return m, receipt{}, err
	}
	m = held.Movement
	dieAt(ctx, beforeCall)
	got, err := idempotency.Call(ctx, "provider", func(ctx context.Context, key string) (receipt, error) {
		got, err := s.provider.move(ctx, k, key, held)
		dieAt(ctx, afterCall)
		return got, err
	})
	if err != nil {
		return m, got, err
	}
	_, err = idempotency.Phase(ctx, "settle", func(ctx context.Context, tx pgx.Tx) (bool, error) {
		err := s.settle(ctx, tx, k, m, got)
		dieAt(ctx, beforeCommit)
		return err == nil, err
	})
	if err == nil && got.Declined != "" {
		err = declined(got.Declined)
	}
	dieAt(ctx, afterCommit)
	return m, got, err
}

// reserve reserves the amount. Because hold locks the charge, refunds of one charge are reserved
// one after the other, even if their keys differ. So their sum cannot exceed the charge.
func (s *service) reserve(ctx context.Context, tx pgx.Tx, k kind, m Movement) (reservation, error) {
	of, left, err := k.hold(ctx, tx, m)
	if err != nil {
		return reservation{}, err
	}
	if left < m.Amount {
		return reservation{}, tooLarge(left)
	}
	m.ID = k.prefix + strings.ToLower(rand.Text()[:12])
	if m.Charge == "" {
		m.Charge = m.ID
	}
	if _, err := tx.Exec(ctx, reserveSQL, m.ID, k.name, m.Charge, m.Merchant, m.Amount, keyOf(ctx)); err != nil {
		return reservation{}, fmt.Errorf("reserve %s: %w", k.name, err)
	}
	return reservation{m, of}, nil
}

// settle removes the reservation and records the movement: its row, its entry in the ledger and its
// event. If the provider declined, settle records nothing. It locks the charge of a refund before
// it writes the event, so that events of a charge are in the order of their commits.
func (s *service) settle(ctx context.Context, tx pgx.Tx, k kind, m Movement, got receipt) error {
	if _, _, err := k.hold(ctx, tx, m); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, releaseSQL, m.ID); err != nil {
		return fmt.Errorf("release reservation: %w", err)
	}
	if got.Declined != "" {
		return nil
	}
	sql, args := k.row(m, got.Ref, keyOf(ctx))
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("insert %s: %w", k.name, err)
	}
	debit, credit := k.accounts(m.Merchant)
	if _, err := tx.Exec(ctx, enterSQL, m.ID, debit, credit, m.Amount); err != nil {
		return fmt.Errorf("enter %s in the ledger: %w", k.name, err)
	}
	ev := postroom.NewEvent(k.event, m)
	ev.Key = m.Charge // events of one charge stay in order
	return s.outbox.Write(ctx, tx, ev)
}

// keyOf returns the Idempotency-Key of the request.
func keyOf(ctx context.Context) string {
	info, _ := idempotency.FromContext(ctx)
	return info.Key.Value
}

// referenceHeader is a header of answers. Its value is the provider's name for the movement.
const referenceHeader = "Provider-Reference"

// move answers POST /charges and POST /refunds.
func (s *service) move(k kind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := readMovement(r, k)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		done, got, err := s.carryOut(r.Context(), k, m)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set(referenceHeader, got.Ref)
		reply(w, http.StatusCreated, "application/json", done)
	})
}

// readMovement reads the movement that a request asks for.
func readMovement(r *http.Request, k kind) (Movement, error) {
	var asked struct {
		Charge string `json:"charge"`
		Amount int64  `json:"amount"`
	}
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	if err := body.Decode(&asked); err != nil {
		return Movement{}, invalid("The body is no JSON object with the members of a " + k.name + ".")
	}
	const most = 1_000_000_00
	if asked.Amount < 1 || asked.Amount > most {
		return Movement{}, invalid(fmt.Sprintf("The amount has to be 1 to %d cents.", most))
	}
	if k.undoes != (asked.Charge != "") {
		return Movement{}, invalid("A refund names its charge, and a charge none.")
	}
	merchant, err := merchantOf(r)
	return Movement{Charge: asked.Charge, Merchant: merchant, Amount: asked.Amount}, err
}

//go:embed sql/ledger.sql
var ledgerSQL string

// ledger answers GET /ledger.
func (s *service) ledger(w http.ResponseWriter, r *http.Request) {
	merchant, err := merchantOf(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	var text json.RawMessage
	if err := s.pool.QueryRow(r.Context(), ledgerSQL, merchant).Scan(&text); err != nil {
		s.refuse(w, r, err)
		return
	}
	reply(w, http.StatusOK, "application/json", text)
}
