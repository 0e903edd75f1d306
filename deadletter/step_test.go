package deadletter

import "context"

// Step makes one step of a replay.
func (s *Store) Step(ctx context.Context, id int64) (moved bool, err error) { return s.step(ctx, id) }

// LockToDiscard is the statement that locks the events that are discarded.
func (s *Store) LockToDiscard() string { return s.sql.DiscardLock }
