package ledger

import (
	"context"
	"fmt"
)

// EnterMember begins the part of one event of a batch. With a savepoint, its failure undoes
// no other's effects: it travels with the handler's first statement. It returns what was
// to be sent before.
func (t *Tx) EnterMember(savepoint bool) (pending []string) {
	pending = t.first
	if savepoint {
		t.first = append(pending, "SAVEPOINT postroom_member")
	}
	return pending
}

// LeaveMember ends the part of one event, and releases its savepoint if it has one. It
// reports whether the handler sent nothing.
func (t *Tx) LeaveMember(pending []string, release bool) (silent bool) {
	silent = len(t.first) > 0
	switch {
	case silent:
		t.first = pending
	case release:
		t.first = []string{"RELEASE SAVEPOINT postroom_member"}
	}
	return silent
}

// UndoMember undoes what one event of a batch did.
func (t *Tx) UndoMember(ctx context.Context) error {
	if _, err := t.Tx.Exec(ctx, "ROLLBACK TO SAVEPOINT postroom_member; RELEASE SAVEPOINT postroom_member"); err != nil {
		return fmt.Errorf("roll back one event of a batch: %w", err)
	}
	return nil
}

// Differs reports whether a handler has changed the session for those behind it.
func (t *Tx) Differs() bool { return t.loan.Differs() }
