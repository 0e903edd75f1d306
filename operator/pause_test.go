package operator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	store, by := operator.New(pool, operator.Config{}), postroom.Audit{Actor: "ann", Reason: "the vendor asked for it"}
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Resume(t.Context(), "h", by); !errors.Is(err, operator.ErrNotPaused) {
		t.Errorf("Resume of a handler that is not paused = %v", err)
	}
	check(store.Pause(t.Context(), "h", time.Hour, postroom.Audit{Actor: "bob", Reason: "first"}))
	check(store.Pause(t.Context(), "h", 0, by)) // replaces it
	check(store.Pause(t.Context(), "a", 24*time.Hour, by))
	all, err := store.Pauses(t.Context())
	check(err)
	if len(all) != 2 || all[0].Handler != "a" || all[0].Until.Sub(all[0].PausedAt) != 24*time.Hour || all[1].Handler != "h" || !all[1].Until.IsZero() || all[1].Actor != "ann" || all[1].Reason != by.Reason {
		t.Errorf("paused: %+v", all)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.pause SET until = now() - interval '1 second' WHERE handler = 'a'"); err != nil {
		t.Fatal(err)
	}
	if err := store.Resume(t.Context(), "a", by); !errors.Is(err, operator.ErrNotPaused) {
		t.Errorf("Resume after the end of a pause = %v", err)
	}
	check(store.Resume(t.Context(), "h", by))
	if all, err := store.Pauses(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("paused after both have ended: %+v, %v", all, err)
	}
	var actions string
	check(pool.QueryRow(t.Context(), "SELECT string_agg(action || ' ' || handler || ' ' || actor, ', ' ORDER BY id) FROM postroom.audit").Scan(&actions))
	if want := "pause h bob, pause h ann, pause a ann, resume h ann"; actions != want {
		t.Errorf("the audit has %q, want %q", actions, want)
	}
}

func TestPauseAndResumeOfTheRelay(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	store, by := operator.New(pool, operator.Config{}), postroom.Audit{Actor: "ann", Reason: "the stream is moved"}
	log := pglog.New(pool)
	wantPaused := func(want bool) eventlog.Pause {
		t.Helper()
		p, paused, err := log.Paused(t.Context())
		if err != nil || paused != want {
			t.Errorf("Paused = %+v, %v, %v, want %v", p, paused, err, want)
		}
		return p
	}
	wantPaused(false)
	if err := store.PauseRelay(t.Context(), time.Hour, by); err != nil {
		t.Fatal(err)
	}
	if p := wantPaused(true); p.Actor != "ann" || p.Reason != by.Reason || p.Until.Sub(p.Since) != time.Hour {
		t.Errorf("the log says %+v", p)
	}
	if all, err := store.Pauses(t.Context()); err != nil || len(all) != 1 || all[0].Handler != operator.Outgoing {
		t.Errorf("paused: %+v, %v", all, err)
	}
	if err := store.ResumeRelay(t.Context(), by); err != nil {
		t.Fatal(err)
	}
	wantPaused(false)
	if err := store.ResumeRelay(t.Context(), by); !errors.Is(err, operator.ErrNotPaused) {
		t.Errorf("ResumeRelay of a relay that is not paused = %v", err)
	}
	var actions string
	if err := pool.QueryRow(t.Context(), "SELECT string_agg(action || ' ' || handler, ', ' ORDER BY id) FROM postroom.audit").Scan(&actions); err != nil || actions != "pause outbox, resume outbox" {
		t.Errorf("the audit has %q, %v", actions, err)
	}
	if err := store.PauseRelay(t.Context(), time.Hour, by); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.pause SET until = now() - interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	wantPaused(false)
}

func TestPauseRefusesBadRequests(t *testing.T) {
	t.Parallel()
	store, by := operator.New(devtest.Pool(t), operator.Config{}), postroom.Audit{Actor: "ann", Reason: "why"}
	for want, err := range map[string]error{
		"1 to 128 bytes":      store.Pause(t.Context(), "", 0, by),
		"is the relay":        store.Pause(t.Context(), "outbox", 0, by),
		"outbox is the relay": store.Resume(t.Context(), "outbox", by),
		"Reason is empty":     store.Pause(t.Context(), "h", 0, postroom.Audit{Actor: "ann"}),
		"Actor is empty":      store.Resume(t.Context(), "h", postroom.Audit{}),
		"want a second":       store.Pause(t.Context(), "h", time.Millisecond, by),
		"want a second or m":  store.Pause(t.Context(), "h", -time.Hour, by),
		"Schema":              operator.New(nil, operator.Config{Schema: "a b"}).Pause(t.Context(), "h", 0, by),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
