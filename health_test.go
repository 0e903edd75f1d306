package postroom_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/relay"
)

// state is the Health of a test.
type state struct {
	Name        string
	live, ready error
}

func (s state) Live() error  { return s.live }
func (s state) Ready() error { return s.ready }

func TestHealthHandler(t *testing.T) {
	away, ended := errors.New("the database is away"), errors.New("it ended")
	good := postroom.NewProbe("good", func() state { return state{Name: "a"} })
	busy := postroom.NewProbe("busy", func() state { return state{Name: "b", ready: away} })
	over := postroom.NewProbe("over", func() state { return state{Name: "c", live: ended, ready: ended} })
	broken := postroom.NewProbe("broken", func() state { panic("no health") })
	tests := []struct {
		name   string
		parts  []postroom.Probe
		path   string
		status int
		body   string
	}{
		{"nothing", nil, "/readyz", 200, `{"ok":true,"parts":{}}`},
		{"all well", []postroom.Probe{good}, "/readyz", 200, `{"ok":true,"parts":{"good":{"ok":true,"health":{"Name":"a"}}}}`},
		{"an outage is no reason to restart", []postroom.Probe{good, busy}, "/livez", 200, `{"ok":true,"parts":{"busy":{"ok":true,"health":{"Name":"b"}},"good":{"ok":true,"health":{"Name":"a"}}}}`},
		{"one is not ready", []postroom.Probe{good, busy}, "/readyz", 503, `{"ok":false,"why":"busy: the database is away","parts":{"busy":{"ok":false,"why":"the database is away","health":{"Name":"b"}},"good":{"ok":true,"health":{"Name":"a"}}}}`},
		{"the first reason is told", []postroom.Probe{over, busy}, "/readyz", 503, `{"ok":false,"why":"over: it ended",`},
		{"one is not live", []postroom.Probe{busy, over}, "/livez", 503, `{"ok":false,"why":"over: it ended",`},
		{"one panics", []postroom.Probe{broken, good}, "/livez", 503, `{"ok":false,"why":"broken: panic: no health",`},
		{"another path", []postroom.Probe{good}, "/", 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			postroom.HealthHandler(tt.parts...).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
			if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.body) {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, tt.status, tt.body)
			}
		})
	}
}

// hasNoText is an error whose method panics.
type hasNoText struct{}

func (hasNoText) Error() string { panic("no text") }

// noNumber is a live part whose health has no JSON.
type noNumber struct{ Rate float64 }

func (noNumber) Live() error  { return nil }
func (noNumber) Ready() error { return nil }

// unwritable is a live part whose JSON panics.
type unwritable struct{ state }

func (unwritable) MarshalJSON() ([]byte, error) { panic("no JSON") }

// The handler answers whatever the methods of a health do. A live part whose health has no JSON stays
// live, because a restart would not help.
func TestHealthHandlerAnswersInSpiteOfPanics(t *testing.T) {
	good := postroom.NewProbe("good", func() state { return state{Name: "a"} })
	tests := []struct {
		name   string
		part   postroom.Probe
		path   string
		status int
		body   string
	}{
		{"an error", postroom.NewProbe("x", func() state { return state{ready: hasNoText{}} }), "/readyz", 503, `{"ok":false,"why":"x: panic: no text","parts":{"good":{"ok":true,"health":{"Name":"a"}},"x":{"ok":false,"why":"panic: no text","health":{"Name":""}}}}`},
		{"a fault", postroom.NewProbe("x", func() relay.Health {
			return relay.Health{State: relay.Leading, Connected: true, Faults: []error{hasNoText{}}}
		}), "/readyz", 503, `{"ok":false,"why":"x: panic: no text","parts":{"good":{"ok":true,"health":{"Name":"a"}},"x":{"ok":false,"why":"panic: no text"}}}`},
		{"JSON that panics", postroom.NewProbe("x", func() unwritable { return unwritable{} }), "/livez", 200, `{"ok":true,"parts":{"good":{"ok":true,"health":{"Name":"a"}},"x":{"ok":true,"why":"the health has no JSON"}}}`},
		{"no JSON", postroom.NewProbe("x", func() noNumber { return noNumber{math.NaN()} }), "/livez", 200, `{"ok":true,"parts":{"good":{"ok":true,"health":{"Name":"a"}},"x":{"ok":true,"why":"the health has no JSON"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			postroom.HealthHandler(good, tt.part).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
			if w.Code != tt.status || w.Body.String() != tt.body+"\n" {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, tt.status, tt.body)
			}
		})
	}
}

// Both parts that have a Health can be probed, and say what they do before they run.
func TestHealthOfPartsThatDoNotRun(t *testing.T) {
	r, in := relay.Health{State: relay.Stopped}, inbox.Health{}
	h := postroom.HealthHandler(
		postroom.NewProbe("relay", func() relay.Health { return r }),
		postroom.NewProbe("inbox", func() inbox.Health { return in }),
	)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil))
	want := `{"ok":false,"why":"relay: the relay does not run","parts":{` +
		`"inbox":{"ok":false,"why":"the inbox does not run","health":{"state":"","connected":false}},` +
		`"relay":{"ok":false,"why":"the relay does not run","health":{"state":"stopped","connected":false}}}}` + "\n"
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}

func TestChecks(t *testing.T) {
	wrong, other := postroom.Unrecoverable(errors.New("no secret")), postroom.Unrecoverable(errors.New("no schema"))
	away := errors.New("the database is away")
	always := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	tests := []struct {
		name   string
		checks []func(context.Context) error
		says   []string // nil: Checks returns no error, and stops when it is told to
	}{
		{"nothing", nil, nil},
		{"all well", []func(context.Context) error{always(nil)}, nil},
		{"all faults at once", []func(context.Context) error{always(wrong), always(nil), always(other)}, []string{"no secret", "no schema"}},
		{"a fault beside an outage", []func(context.Context) error{always(away), always(wrong)}, []string{"no secret"}},
		{"a panic", []func(context.Context) error{func(context.Context) error { panic("a bug") }}, []string{"a bug", "health_test.go:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				began := time.Now()
				err := postroom.Run(ctx, postroom.Checks(tt.checks...))
				if tt.says == nil {
					if err != nil || time.Since(began) != time.Hour {
						t.Errorf("%v after %v, want nil at the end", err, time.Since(began))
					}
					return
				}
				if err == nil || slices.ContainsFunc(tt.says, func(s string) bool { return !strings.Contains(err.Error(), s) }) || time.Since(began) != 0 {
					t.Errorf("%v after %v, want %q at once", err, time.Since(began), tt.says)
				}
			})
		})
	}
}

// An outage does not end the part. It checks again until what was away is back.
func TestChecksWaitForTheEndOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		asked := 0
		err := postroom.Run(ctx, postroom.Checks(func(context.Context) error {
			if asked++; asked < 3 {
				return errors.New("away")
			}
			return nil
		}))
		if err != nil || asked != 3 {
			t.Errorf("%v after %d checks, want nil after 3", err, asked)
		}
	})
}
