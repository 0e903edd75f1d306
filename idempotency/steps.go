package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/idempotency/internal/watched"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/jsonfit"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/vendorcall"
)

// Phase runs a step of a handler in lease mode. It runs fn in a transaction, and records in the
// same transaction that the step is done. If an earlier attempt has done the step, Phase returns
// the recorded result and does not run fn. Values of T must survive encoding as JSON, and have no
// U+0000. Names must be unique within an operation. Phase returns an error if a step of the same
// name is running.
//
// If Phase returns [ErrLeaseLost], another attempt may run: return from the handler. Return also
// after [ErrOutcomeUnknown]: the database did not answer the commit, and the next attempt will find
// out whether the step is done. Phase panics outside a handler of lease mode.
func Phase[T any](ctx context.Context, name string, fn func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	l := leaseFrom(ctx, "Phase")
	var out T
	if err := l.enter("phase", name); err != nil {
		return out, err
	}
	defer l.Leave(name)
	if done, err := l.checkpoint(name, &out); done || err != nil {
		return out, err
	}
	//guard:an-unanswered-commit-is-not-run-again false
	if l.IsDark(name) {
		return out, fmt.Errorf("phase %s: %w: the commit of an earlier run was not answered", name, ErrOutcomeUnknown)
	}
	var text []byte
	recorded := false
	what := watched.Of(l.store.sessions)
	err := l.store.lend(ctx, l.op.rules.Isolation, what, func(inner *lending) error {
		var began time.Time
		err := inner.QueryRow(ctx, l.store.sql.Began).Scan(&began)
		if err != nil {
			return err
		}
		out, err = fn(ctx, inner.loan)
		if used := inner.back(lent.Grace(l.op.timeout)); used != nil {
			err = errors.Join(used, err)
		}
		if err != nil {
			return err
		}
		if text, err = json.Marshal(out); err != nil {
			return fmt.Errorf("encode the result of phase %s: %w", name, err)
		}
		if err := what.AsOwn(ctx, inner.Conn()); err != nil {
			return fmt.Errorf("return to the guard's user: %w", err)
		}
		//guard:a-phase-has-its-own-transaction 0 remove
		//guard:a-phase-asks-whether-it-is-the-same-transaction 0 do err = nil
		if _, err = inner.Exec(ctx, l.store.sql.Still, began); failure.IsOther(err) {
			return errEnded
		} else if err != nil {
			return err
		}
		if err := l.Record(ctx, inner, name, text, true); err != nil {
			return err
		}
		recorded = true
		return nil
	})
	//guard:a-phase-in-doubt-is-dark = @ && false
	if err != nil && recorded && !failure.IsRefusal(err) && !errors.Is(err, pgx.ErrTxCommitRollback) {
		l.Darken(name)
		err = fmt.Errorf("phase %s: %w: %w", name, ErrOutcomeUnknown, err)
	}
	if err != nil {
		return out, because(ctx, err)
	}
	l.Remember(name, text)
	return out, nil
}

// because adds ErrLeaseLost to an error if the lost claim ended the context.
func because(ctx context.Context, err error) error {
	if err == nil || !errors.Is(causeOf(ctx), ErrLeaseLost) {
		return err
	}
	if !guard.Is(guard.Tree(err), ErrLeaseLost) { // the tree of a user's error may be infinite
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

func leaseFrom(ctx context.Context, who string) *lease {
	a := attemptFrom(ctx)
	if a == nil || a.lease == nil {
		panic("idempotency: " + who + " was called outside a handler of lease mode")
	}
	return a.lease
}

// enter marks a step as running. It returns an error if a step of this name already runs.
func (l *lease) enter(what, name string) error {
	//guard:a-call-is-made-once-at-a-time = @ && false
	if !l.Enter(name) {
		return fmt.Errorf("%s %s: %w", what, name, errStepBusy)
	}
	return nil
}

// derived returns the key that the vendor gets for a step.
func (l *lease) derived(name string) string {
	if !l.op.keyed {
		return DeriveKey(l.Owner(), name)
	}
	k := l.op.key
	//guard:each-postroom-has-vendor-keys-of-its-own 1 = ""
	//guard:each-schema-has-vendor-keys-of-its-own 2 = ""
	here := DeriveKey(l.Instance(), l.store.schema) // tenants and services may share a vendor's account
	return DeriveKey(here, DeriveKey(DeriveKey(k.Scope, k.Principal), DeriveKey(k.Value, name)))
}

// checkpoint reads the result of a step if the step is done.
func (l *lease) checkpoint(name string, into any) (bool, error) {
	if name == "" {
		return true, errStepName
	}
	text, ok := l.Done(name)
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return true, fmt.Errorf("read the result of %s in an earlier attempt: %w", name, err)
	}
	//guard:a-kept-step-of-another-shape-is-told false
	if problem := jsonfit.Problem(text, reflect.ValueOf(into).Elem()); problem != "" {
		return true, fmt.Errorf("read the result of %s in an earlier attempt%s", name, problem)
	}
	return true, nil
}

var (
	errStepName = errors.New("a step must have a name")
	errStepBusy = errors.New("a step of this name is running; each step of a handler must have its own name")
)

// Call runs a step of a handler in lease mode that calls another system. fn gets a key, made with
// [DeriveKey]. The key is the same in every attempt, and different in each schema and database.
// Give the key to the vendor: if the record of a call is lost, Call makes the call again. If an
// earlier attempt recorded a result, Call returns this result and does not run fn. Values of T must
// survive encoding as JSON, without U+0000. Names must be unique within an operation.
//
// Without options Call assumes that the vendor recognises the key for ever. If the vendor
// recognises keys only for a time, or not at all, use [postroom.VendorWindow], and use
// [postroom.Lookup] to ask the vendor about a call. With an option, Call records the beginning of
// the call before it runs fn. If fn then returns an error or the process ends, the outcome is
// unknown. While the vendor recognises the key, Call makes the call again with the same key. After
// that Call asks Lookup. Without a Lookup, Call returns an error that matches [ErrOutcomeUnknown],
// now and in every later attempt: Call never repeats a call blindly. If the error of fn says that
// the vendor certainly did nothing (see [postroom.NotApplied]), the call counts as not made. If the
// database does not accept the record of a beginning or of a known outcome, Call tries again until
// ctx ends.
//
// If Call returns [ErrLeaseLost], another attempt has the operation: return from the handler. Call
// panics outside a handler of lease mode, if fn is nil, and if the result of a Lookup has another
// type than the result of fn.
func Call[T any](ctx context.Context, name string, fn func(ctx context.Context, key string) (T, error), options ...postroom.CallOption) (T, error) {
	l := leaseFrom(ctx, "Call")
	//guard:a-call-without-a-function-does-not-begin false
	if fn == nil {
		panic("idempotency: call " + name + " has no function")
	}
	var o vendorcall.Options
	vendorcall.Set(&o, options)
	// A call that begins at the end of the window may take the handler's whole time limit.
	c := &call[T]{l: l, name: name, fn: fn, window: max(o.Window-l.op.timeout, 0), lookup: vendorcall.LookupOf[T](o, "call "+name)}
	var out T
	if err := l.enter("call", name); err != nil {
		return out, err
	}
	defer l.Leave(name)
	if done, err := l.checkpoint(name, &out); done || err != nil {
		return out, err
	}
	if !o.HasWindow && o.Lookup == nil {
		out, err := fn(ctx, l.derived(name))
		if err != nil {
			return out, because(ctx, err)
		}
		return out, because(ctx, l.done(ctx, name, out))
	}
	out, err := c.run(ctx)
	if err != nil {
		err = fmt.Errorf("call %s: %w", name, because(ctx, err))
	}
	return out, err
}

// call has the arguments and options of one run of Call.
type call[T any] struct {
	l      *lease
	name   string
	fn     func(ctx context.Context, key string) (T, error)
	window time.Duration
	lookup func(ctx context.Context, key string) (T, bool, error)
}

// run records that a call begins, makes the call, and returns the result.
func (c *call[T]) run(ctx context.Context) (T, error) {
	var none T
	noted, free, err := c.l.Begin(ctx, c.name, c.l.derived(c.name), c.window)
	if err != nil {
		return none, err
	}
	switch {
	case free && noted.Calls > 1:
		c.l.tell(ctx, slog.LevelInfo, "a call is made again with the same key", c.name, noted)
	case !free:
		result, found, err := c.ask(ctx, noted)
		if found || err != nil {
			return result, err
		}
		if noted, free, err = c.l.Begin(ctx, c.name, c.l.derived(c.name), c.window); err != nil {
			return none, err
		}
		if !free {
			return none, c.unknown(ctx, noted) // another attempt began the call meanwhile
		}
	}
	//guard:an-ended-attempt-does-not-call false
	if ctx.Err() != nil { // ctx ended while the beginning was being recorded
		return none, errors.Join(causeOf(ctx), c.l.Undo(ctx, c.name, noted.Call))
	}
	result, err := c.fn(ctx, noted.Key)
	answered := err == nil
	var text []byte
	if answered {
		text, err = encode(c.name, result)
	}
	switch {
	case err == nil:
		return result, c.l.Finish(ctx, c.name, text)
	//guard:a-call-whose-result-does-not-encode-is-in-doubt 1 true
	case !answered && vendorcall.IsNotApplied(ctx, err):
		return result, errors.Join(err, c.l.Undo(ctx, c.name, noted.Call))
	//guard:a-call-without-a-window-is-in-doubt false
	case c.window == 0 && c.lookup == nil: // there is no way to find out
		return result, fmt.Errorf("%w: %w", c.unknown(ctx, noted), err)
	}
	return result, err
}

// ask asks the Lookup whether one of the calls with an unknown outcome happened. If no call
// happened, ask records that.
func (c *call[T]) ask(ctx context.Context, noted claim.Receipt) (result T, found bool, err error) {
	if c.lookup == nil {
		return result, false, c.unknown(ctx, noted)
	}
	result, found, err = c.lookup(ctx, noted.Key)
	if err != nil {
		return result, false, fmt.Errorf("look up its outcome: %w", err)
	}
	c.l.tell(ctx, slog.LevelInfo, "a call was looked up", c.name, noted, slog.Bool("found", found))
	if !found {
		return result, false, c.l.Undo(ctx, c.name, "")
	}
	return result, true, c.l.done(ctx, c.name, result)
}

// unknown returns the error of a call with an unknown outcome.
func (c *call[T]) unknown(ctx context.Context, noted claim.Receipt) error {
	c.l.tell(ctx, slog.LevelWarn, "the outcome of a call is not known", c.name, noted)
	return fmt.Errorf("%w: it began at %s with key %s, which the vendor may no longer recognise; ask the vendor, or give Call a Lookup",
		ErrOutcomeUnknown, noted.Since.UTC().Format(time.RFC3339), noted.Key)
}

// tell logs what is known about a call.
func (l *lease) tell(ctx context.Context, level slog.Level, what, name string, noted claim.Receipt, more ...slog.Attr) {
	l.store.cfg.Logger.LogAttrs(ctx, level, what, append([]slog.Attr{
		slog.String("scope", l.op.key.Scope), slog.String("key", l.store.cfg.shown(l.op.key)), slog.String("call", name),
		slog.String("called_with", noted.Key), slog.Time("since", noted.Since), slog.Int("unanswered", noted.Calls),
	}, more...)...)
}

// done records that a call is done, with its result.
func (l *lease) done(ctx context.Context, name string, result any) error {
	text, err := encode(name, result)
	if err != nil {
		return err
	}
	return l.Finish(ctx, name, text)
}

// encode returns the result of a call as JSON.
func encode(name string, result any) ([]byte, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encode the result of call %s: %w", name, err)
	}
	return text, nil
}
