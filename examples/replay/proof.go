package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/postroom/postroom/examples/internal/demo"
)

//go:embed sql/prove.sql
var proveSQL string

// errUnproven says that a check of the proof found violations.
var errUnproven = errors.New("the proof failed")

func prove(ctx context.Context, db demo.Querier, discarded int) ([]demo.Check, error) {
	return demo.Prove(ctx, db, proveSQL, discarded)
}

// prove runs the proof, and prints the checks and the last line.
func (n *night) prove(ctx context.Context) error {
	checks, err := prove(ctx, n.Pool, n.discarded)
	if err != nil {
		return err
	}
	n.say("\n04:00  Every effect exactly once?\n")
	var violations int64
	rows := [][]string{{"CHECK", "RESULT"}}
	for _, c := range checks {
		result := "ok"
		if c.Violations > 0 {
			result = fmt.Sprintf("FAILED: %d", c.Violations)
		}
		violations += c.Violations
		rows = append(rows, []string{c.Name, result})
	}
	n.table(rows...)
	verdict := "ok"
	if violations > 0 {
		verdict = "FAILED"
	}
	n.say("\nreplay: orders=%d died=%d replayed=%d edited=%d discarded=%d violations=%d verdict=%s",
		n.opt.orders, n.died, n.replayed, n.edited, n.discarded, violations, verdict)
	if violations > 0 {
		return errUnproven
	}
	return nil
}
