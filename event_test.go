package postroom_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postroom/postroom"
)

type order struct {
	ID     string `json:"id"`
	Amount int8   `json:"amount"`
}

func TestNewEvent(t *testing.T) {
	ev := postroom.NewEvent("order.placed", order{ID: "o-1", Amount: 7})

	if ev.Type != "order.placed" {
		t.Errorf("Type = %q, want order.placed", ev.Type)
	}
	if ev.ContentType != "application/json" {
		t.Errorf("ContentType = %q, want application/json", ev.ContentType)
	}
	if got, want := string(ev.Data), `{"id":"o-1","amount":7}`; got != want {
		t.Errorf("Data = %s, want %s", got, want)
	}
	id, err := uuid.Parse(ev.ID)
	if err != nil || id.Version() != 7 {
		t.Errorf("ID = %q, want a UUIDv7", ev.ID)
	}
	if err := ev.Validate(); err != nil {
		t.Errorf("Validate = %v, want nil", err)
	}

	rest := ev
	rest.ID, rest.Type, rest.ContentType, rest.Data = "", "", "", nil
	if !reflect.DeepEqual(rest, postroom.Event{}) {
		t.Errorf("NewEvent filled more than ID, Type, ContentType and Data: %+v", rest)
	}
}

func TestNewEventGivesEachEventAnIDOfItsOwnInOrder(t *testing.T) {
	last := ""
	for range 1000 {
		id := postroom.NewEvent("order.placed", nil).ID
		if id <= last {
			t.Fatalf("ID %q after %q, want it later", id, last)
		}
		last = id
	}
}

func TestNewEventWithDataThatIsNoJSON(t *testing.T) {
	tests := []struct {
		name string
		make func() postroom.Event
	}{
		{"in a new event", func() postroom.Event { return postroom.NewEvent("order.placed", make(chan int)) }},
		{"in one that follows", func() postroom.Event { return postroom.Event{}.Follow("order.placed", make(chan int)) }},
		{"a number that JSON has no word for", func() postroom.Event { return postroom.NewEvent("order.placed", math.NaN()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := tt.make()
			wantFaults(t, ev.Validate(), "Data")

			ev.Data = []byte("{}") // this does not remove the fault, because the caller asked for another body
			wantFaults(t, ev.Validate(), "Data")
		})
	}

	t.Run("the cause can be had", func(t *testing.T) {
		var cause *json.UnsupportedTypeError
		if err := postroom.NewEvent("order.placed", make(chan int)).Validate(); !errors.As(err, &cause) {
			t.Errorf("Validate = %v, want a *json.UnsupportedTypeError in it", err)
		}
	})
	t.Run("it joins the other faults", func(t *testing.T) {
		wantFaults(t, postroom.NewEvent("order placed", make(chan int)).Validate(), "Data", "Type")
	})
}

func TestFollow(t *testing.T) {
	tests := []struct {
		name            string
		cause           postroom.Event
		wantKey         string
		wantCorrelation string
	}{
		{"starts the correlation at its cause", postroom.Event{ID: "e-1"}, "", "e-1"},
		{"keeps the correlation of its cause", postroom.Event{ID: "e-2", CorrelationID: "e-1"}, "", "e-1"},
		{"keeps the key", postroom.Event{ID: "e-1", Key: "o-1"}, "o-1", "e-1"},
		{"takes nothing else over", postroom.Event{
			ID: "e-3", CausationID: "e-2", CorrelationID: "e-1", Key: "o-1",
			Source: "/shop", Type: "order.placed", Subject: "orders", Time: time.Unix(1, 0), LoggedAt: time.Unix(2, 0),
			ContentType: "text/plain", Data: []byte("secret"), Headers: map[string]string{"x-tenant": "a"},
			TraceParent: "00-a-b-01", TraceState: "v=1",
		}, "o-1", "e-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next := tt.cause.Follow("order.charged", order{ID: "o-1"})

			if next.ID == "" || next.ID == tt.cause.ID {
				t.Errorf("ID = %q, want one of its own", next.ID)
			}
			want := postroom.Event{
				ID: next.ID, Type: "order.charged", ContentType: "application/json", Data: []byte(`{"id":"o-1","amount":0}`),
				Key: tt.wantKey, CorrelationID: tt.wantCorrelation, CausationID: tt.cause.ID,
			}
			if !reflect.DeepEqual(next, want) {
				t.Errorf("Follow = %+v\nwant %+v", next, want)
			}
		})
	}
}

func TestEventJSON(t *testing.T) {
	var got order
	ev := postroom.Event{Type: "order.placed", Data: []byte(`{"id":"o-1","amount":7,"new":true}`)}
	if err := ev.JSON(&got); err != nil {
		t.Fatalf("JSON = %v, want nil", err)
	}
	if want := (order{ID: "o-1", Amount: 7}); got != want {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

func TestEventJSONThatDoesNotDecodeIsPermanent(t *testing.T) {
	for _, tt := range undecodable {
		t.Run(tt.name, func(t *testing.T) {
			var got order
			err := postroom.Event{Type: "order.placed", Data: []byte(tt.data)}.JSON(&got)
			if !errors.Is(err, postroom.ErrPermanent) {
				t.Errorf("JSON = %v, want ErrPermanent", err)
			}
			if err != nil && !strings.Contains(err.Error(), "order.placed") {
				t.Errorf("JSON = %v, want the event's type in it", err)
			}
		})
	}
}

// undecodable is data that does not decode as an order.
var undecodable = []struct{ name, data string }{
	{"no data", ""},
	{"no JSON", "secret"},
	{"JSON that ends early", `{"id":"secret"`},
	{"JSON of another shape", `["secret"]`},
	{"a number too large", `{"amount":300}`},
	{"something after the end", `{"id":"secret"} {}`},
}

func TestErrorsOfCodecsDoNotQuoteData(t *testing.T) {
	const secret = "4111111111111111"
	var small struct{ N int8 }
	decode := func(data string) error { return postroom.Event{Type: "a.b", Data: []byte(data)}.JSON(&small) }
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"a number that json refuses", postroom.NewEvent("a.b", json.Number("x"+secret)).Validate(), "does not encode"},
		{"a method that fails", postroom.NewEvent("a.b", quotingType(secret)).Validate(), "quotingType"},
		{"a type without a form", postroom.NewEvent("a.b", func() {}).Validate(), "func()"},
		{"a number that does not fit", decode(`{"N": ` + secret + `}`), `"N"`},
		{"no JSON", decode(`{"N": ` + secret), "byte"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == nil || strings.Contains(tt.err.Error(), secret) || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("error %q, want %q in it and not the data", tt.err, tt.want)
			}
		})
	}
}

// quotingType is a type whose error quotes its value.
type quotingType string

func (s quotingType) MarshalJSON() ([]byte, error) {
	return nil, errors.New("cannot marshal " + string(s))
}
