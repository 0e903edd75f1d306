package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbound"
)

// requests returns a step's function that sends a POST request with a client of package outbound,
// and returns its error as it is.
func requests(client *outbound.Client, url string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, key string) (string, error) {
		req, err := http.NewRequestWithContext(outbound.WithKey(ctx, key), http.MethodPost, url, http.NoBody)
		if err != nil {
			return "", err
		}
		answer, err := client.Fetch(req)
		return string(answer), err
	}
}

// freeAddress returns an address of this machine at which no server listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// A client of package outbound says whether a vendor may have acted. The handler has not to pass
// this on. The vendor recognises no keys.
func TestAStepKnowsTheErrorsOfOutbound(t *testing.T) {
	t.Parallel()
	refused := "http://" + freeAddress(t)
	client := outbound.NewClient(outbound.Config{Protocol: outbound.NoKeys(), Attempts: 1})
	for _, tt := range []struct {
		name    string
		answers []answer
		step    func(v *vendor) func(context.Context, string) (string, error)
		want    heldEntry
		calls   int
	}{
		{
			"a refused connection", nil,
			func(*vendor) func(context.Context, string) (string, error) { return requests(client, refused) },
			heldEntry{State: "dead", Attempts: 3, Class: "error", Failures: 3},
			0,
		},
		{
			"rejected requests",
			[]answer{refuses, refuses, refuses},
			func(v *vendor) func(context.Context, string) (string, error) { return requests(client, v.url) },
			heldEntry{State: "dead", Attempts: 3, Class: "error", Failures: 3},
			3,
		},
		{
			"a lost answer",
			[]answer{lost},
			func(v *vendor) func(context.Context, string) (string, error) { return requests(client, v.url) },
			heldEntry{State: "dead", Attempts: 1, Class: "outcome_unknown", Failures: 1},
			1,
		},
		{
			"a lost answer and a refused connection",
			[]answer{lost},
			func(v *vendor) func(context.Context, string) (string, error) {
				return func(ctx context.Context, key string) (string, error) {
					_, err := requests(client, v.url)(ctx, key)
					_, err2 := requests(client, refused)(ctx, key)
					return "", errors.Join(err, err2)
				}
			},
			heldEntry{State: "dead", Attempts: 1, Class: "outcome_unknown", Failures: 1},
			1,
		},
		{
			"a lost answer, and the user knows better",
			[]answer{lost, lost, lost},
			func(v *vendor) func(context.Context, string) (string, error) {
				return func(ctx context.Context, key string) (string, error) {
					_, err := requests(client, v.url)(ctx, key)
					return "", postroom.NotApplied(err)
				}
			},
			heldEntry{State: "dead", Attempts: 3, Class: "error", Failures: 3},
			3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			v := newVendor(t, tt.answers...)
			step := tt.step(v)
			sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 3, Schedule: postroom.Backoff{10 * time.Millisecond}}
			b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
				_, err := inbox.Step(ctx, attempt, "charge", step)
				return err
			})
			b.accept("h", "e")
			b.run()
			b.eventually("its death", func() bool { return b.dead("h") == 1 })
			tt.want.Key = "/shop e"
			if got := b.held("h")["/shop e"]; got != tt.want || v.total() != tt.calls {
				t.Errorf("held %+v after %d calls, want %+v after %d: %s", got, v.total(), tt.want, tt.calls, b.failure("/shop e"))
			}
			if rows := b.receipts("h"); (len(rows) > 0) != (tt.want.Class == "outcome_unknown") {
				t.Errorf("receipts %+v", rows)
			}
		})
	}
}

// A vendor cannot be reached for two attempts. The event waits, and is done in the third.
func TestAStepIsCalledWhenTheVendorIsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	address := freeAddress(t)
	step := requests(outbound.NewClient(outbound.Config{Protocol: outbound.NoKeys(), Attempts: 1}), "http://"+address)
	v := newVendor(t)
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 8, Schedule: postroom.Backoff{10 * time.Millisecond}}
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		if attempt.Number == 3 {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return postroom.Permanent(err)
			}
			server := &http.Server{Handler: v, ReadHeaderTimeout: time.Minute}
			t.Cleanup(func() { _ = server.Close() })
			go func() { _ = server.Serve(listener) }()
		}
		_, err := inbox.Step(ctx, attempt, "charge", step)
		if err != nil {
			return err
		}
		attempt.OnSuccess(noting("h", fmt.Sprint("done in attempt ", attempt.Number)))
		return nil
	})
	b.accept("h", "e")
	b.run()
	b.eventually("an end", func() bool { return len(b.held("h")) == 0 || b.dead("h") == 1 })
	b.wantOnce("h", "done in attempt 3")
	if v.total() != 1 {
		t.Errorf("%d calls, want 1", v.total())
	}
}

type charge struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
	secret string
}

// wantResult runs a step in two attempts. Both return the same result, and JSON is recorded.
func wantResult[T any](result, want T, recorded string) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		var calls, attempts atomic.Int32
		b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{time.Millisecond}}, func(ctx context.Context, attempt *inbox.Attempt) error {
			got, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) (T, error) {
				calls.Add(1)
				return result, nil
			})
			if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) || err != nil {
				t.Errorf("Step = %#v, %v in attempt %d, want %#v", got, err, attempt.Number, want)
			}
			if attempts.Add(1) == 1 {
				return errors.New("not now")
			}
			return nil
		})
		b.accept("h", "e")
		b.run()
		b.waitUntilNoneHeld("h")
		if calls.Load() != 1 || attempts.Load() != 2 {
			t.Errorf("%d calls in %d attempts, want 1 in 2", calls.Load(), attempts.Load())
		}
		var got []byte
		if err := b.pool.QueryRow(t.Context(), "SELECT result FROM postroom.receipt").Scan(&got); err != nil || !bytes.Equal(got, []byte(recorded)) {
			t.Errorf("recorded: %s, %v, want %s", got, err, recorded)
		}
	}
}

func TestResultsOfSteps(t *testing.T) {
	t.Parallel()
	t.Run("text", wantResult("ch_1", "ch_1", `"ch_1"`))
	t.Run("struct", wantResult(charge{"ch_1", 7, "x"}, charge{"ch_1", 7, ""}, `{"id":"ch_1","amount":7}`))
	t.Run("bytes", wantResult([]byte("ch_1"), []byte("ch_1"), `"Y2hfMQ=="`))
	t.Run("no bytes", wantResult([]byte(nil), []byte(nil), `null`))
	t.Run("JSON", wantResult(json.RawMessage(`{ "id": 1 }`), json.RawMessage(`{"id":1}`), `{"id":1}`))
	t.Run("nothing", wantResult(struct{}{}, struct{}{}, `{}`))
}

// sly is a result that does not encode. Its error says that a call had no effect.
type sly struct{}

func (sly) MarshalJSON() ([]byte, error) {
	return nil, postroom.NotApplied(errors.New("the card 4111 has no form"))
}

// wantUnencodable makes a call whose result does not encode. The call was made, so it is not made
// again.
func wantUnencodable[T any](result T) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		var calls atomic.Int32
		externally(b, func(s *inbox.Subscription) { s.Schedule = postroom.Backoff{time.Millisecond} }, func(ctx context.Context, attempt *inbox.Attempt) error {
			_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) (T, error) {
				calls.Add(1)
				return result, nil
			})
			return err
		})
		b.eventually("its death", func() bool { return b.dead("h") == 1 })
		if got := b.held("h")["/shop e"]; got.Class != "outcome_unknown" || got.Attempts != 1 || calls.Load() != 1 {
			t.Errorf("held: %+v, %d calls, want it dead after one", got, calls.Load())
		}
		if text := b.failure("/shop e"); !strings.Contains(text, "the call succeeded, but its result does not encode") || strings.Contains(text, "4111") {
			t.Errorf("failure: %s", text)
		}
		if rows := b.receipts("h"); len(rows) != 1 || rows[0].Done || rows[0].Unanswered != 1 {
			t.Errorf("receipts: %+v", rows)
		}
	}
}

func TestResultsThatDoNotEncode(t *testing.T) {
	t.Parallel()
	t.Run("a number", wantUnencodable(math.NaN()))
	t.Run("an error of the result's method", wantUnencodable(sly{}))
	t.Run("no JSON", wantUnencodable(json.RawMessage("")))
}

// A new version of a program has another type for a result. The call is not made again, and the old
// version can go on.
func TestAResultThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	var number, older atomic.Int32
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{time.Millisecond}, Attempts: 8}, func(ctx context.Context, attempt *inbox.Attempt) error {
		if number.Add(1) == 2 {
			_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (int, error) {
				_, err := v.charge(ctx, key)
				return 0, err
			})
			if err == nil || !strings.Contains(err.Error(), "step charge: the step is done, but its recorded result does not decode into the type int") || strings.Contains(err.Error(), "ch_") {
				t.Errorf("Step = %v", err)
			}
			return err
		}
		if number.Load() == 3 { // it has the fields of another type
			_, err := inbox.Step(ctx, attempt, "note", func(context.Context, string) (struct{ Text string }, error) {
				t.Error("the step was done again")
				return struct{ Text string }{}, nil
			})
			if err == nil || !strings.Contains(err.Error(), "it has none of the fields") {
				t.Errorf("Step = %v", err)
			}
			return err
		}
		if _, err := inbox.Step(ctx, attempt, "note", func(context.Context, string) (struct{ ID int }, error) { return struct{ ID int }{7}, nil }); err != nil {
			return err
		}
		if _, err := inbox.Step(ctx, attempt, "charge", v.charge); err != nil {
			return err
		}
		if older.Add(1) == 1 {
			return errors.New("not now")
		}
		return nil
	})
	b.accept("h", "e")
	b.run()
	b.waitUntilNoneHeld("h")
	if v.total() != 1 || number.Load() != 4 {
		t.Errorf("%d calls in %d attempts, want 1 in 4", v.total(), number.Load())
	}
}

// A Lookup has another type than its step. No call is made.
func TestALookupHasTheTypeOfItsStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	lookup := postroom.Lookup(func(context.Context, string) (int, bool, error) { return 0, false, nil })
	got := externally(b, nil, charging(v, lookup))
	if got.Class != "panic" || v.total() != 0 || !strings.Contains(b.failure("/shop e"), "step charge") {
		t.Errorf("held: %+v, %s, after %d calls", got, b.failure("/shop e"), v.total())
	}
}

func TestExternalDecodesThePayload(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{`{"id":"o-1","amount":7}`: "", `{"id":`: "permanent", `{"amount":"much"}`: "permanent"} {
		t.Run(data, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in.HandleExternal(inbox.Subscription{Name: "h"}, inbox.External(func(_ context.Context, attempt *inbox.Attempt, c charge) error {
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
					return noting("h", fmt.Sprint(attempt.Event.ID, " ", c.ID, " ", c.Amount))(ctx, tx)
				})
				return nil
			}))
			ev := postroom.Event{ID: "e", Source: "/shop", Type: "order.placed", Data: []byte(data), ContentType: "text/plain"}
			if _, err := b.in.Accept(t.Context(), "h", ev); err != nil {
				t.Fatal(err)
			}
			b.run()
			b.eventually("an end", func() bool { held := b.held("h"); return len(held) == 0 || b.dead("h") == 1 })
			if got := b.held("h")["/shop e"].Class; got != want {
				t.Errorf("class %q, want %q", got, want)
			}
			if want == "" {
				b.wantOnce("h", "e o-1 7")
			}
		})
	}
}
