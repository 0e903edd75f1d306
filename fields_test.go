package postroom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/postroom/postroom"
)

type (
	plain  struct{ ID, Amount int }
	tagged struct {
		ID   int `json:"order_id"`
		Note int `json:"-"`
		Dash int `json:"-,"`   //nolint:staticcheck // the name is "-"
		Odd  int `json:"a\"b"` //nolint:staticcheck // package json ignores the name
		low  int //nolint:unused // package json must not set it
	}
	optional struct {
		ID   int       `json:",omitempty"`
		Time time.Time `json:"time,omitzero"`
	}
	half struct {
		ID   int `json:",omitempty"`
		Note *string
	}
	Base    struct{ ID int }
	Other   struct{ ID, Sum int }
	embeds  struct{ Base }
	points  struct{ *Base }
	lowers  struct{ lowered }
	lowered struct{ ID int }
	named   struct {
		Base `json:"base"`
	}
	clash struct {
		Base
		Other
	}
	settled struct {
		Base
		Other
		ID int `json:"id"`
	}
	chosen struct {
		Base
		Tagged
	}
	Tagged struct {
		Number int `json:"ID"`
	}
	Left  struct{ Base }
	Right struct{ Base }
	rhomb struct {
		Left
		Right
		Sum int
	}
	hidden struct {
		low  int //nolint:unused // package json must not set it
		Note int `json:"-"`
	}
	own    struct{ ID int }
	ofText struct{ ID int }
	holds  struct{ ID any }
	Upper  struct{ Left }
	Lower  struct{ Left }
	again  struct { // package json finds ID, because it reads Left once
		Upper
		Lower
		Note string `json:",omitempty"`
	}
	share int              // writes null for 0
	rule  struct{ ID int } // writes {} for its zero
)

func (s share) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(s), 10), nil
}

func (r rule) MarshalJSON() ([]byte, error) {
	if r.ID == 0 {
		return []byte("{}"), nil
	}
	return fmt.Appendf(nil, `{"id":%d}`, r.ID), nil
}

func (*own) UnmarshalJSON([]byte) error    { return nil }
func (*ofText) UnmarshalText([]byte) error { return nil }

// shape is a Go type for data.
type shape struct {
	goType reflect.Type
	decode func(data string) error
	handle func(data string) (ran bool, err error)
}

func shapeOf[T any]() shape {
	return shape{reflect.TypeFor[T](), func(data string) error {
		return postroom.Event{Type: "a.b", Data: []byte(data)}.JSON(new(T))
	}, func(data string) (ran bool, err error) {
		typed := postroom.NewType[T]("a.b", nil).Handler(func(context.Context, pgx.Tx, postroom.Event, T) error {
			ran = true
			return nil
		})
		return ran, typed.Handle(context.Background(), nil, postroom.Event{Type: "a.b", Data: []byte(data)})
	}}
}

// Data of another shape does not become a zero value.
func TestDataOfAnotherShapeDoesNotDecode(t *testing.T) {
	const none, null = "it has none of the fields of the type", "it is null"
	foreign := `{"secret":{"id":1}}`
	for _, tt := range []struct {
		shape
		data, want string
	}{
		{shapeOf[plain](), foreign, none + " postroom_test.plain"},
		{shapeOf[plain](), `{}`, none},
		{shapeOf[plain](), ` null `, null},
		{shapeOf[plain](), `{"Amount":0}`, ""},
		{shapeOf[plain](), `{"secret":1,"AMOUNT":null}`, ""},
		{shapeOf[plain](), `{"\u0061mount":0}`, ""},
		{shapeOf[plain](), `{"amounts":0,"":0}`, none},
		{shapeOf[*plain](), foreign, none},
		{shapeOf[**plain](), foreign, none},
		{shapeOf[*plain](), `null`, ""},
		{shapeOf[tagged](), `{"order_id":0}`, ""},
		{shapeOf[tagged](), `{"ORDER_ID":0}`, ""},
		{shapeOf[tagged](), `{"ID":0,"Note":7,"low":7,"a\"b":7}`, none},
		{shapeOf[tagged](), `{"-":0}`, ""},
		{shapeOf[tagged](), `{"odd":0}`, ""},
		{shapeOf[optional](), `{}`, ""},
		{shapeOf[optional](), foreign, none},
		{shapeOf[optional](), `null`, null},
		{shapeOf[half](), `{}`, none},
		{shapeOf[half](), `{"note":null}`, ""},
		{shapeOf[embeds](), `{"id":0}`, ""},
		{shapeOf[embeds](), `{"Base":{"ID":7}}`, none},
		{shapeOf[embeds](), `{}`, none},
		{shapeOf[points](), `{}`, ""},
		{shapeOf[points](), `{"secret":0}`, none},
		{shapeOf[lowers](), `{"id":0}`, ""},
		{shapeOf[named](), `{"base":{}}`, ""},
		{shapeOf[named](), `{"id":7}`, none},
		{shapeOf[clash](), `{"id":7}`, none},
		{shapeOf[clash](), `{"id":7,"sum":0}`, ""},
		{shapeOf[settled](), `{"ID":0}`, ""},
		{shapeOf[chosen](), `{"ID":0}`, ""},
		{shapeOf[rhomb](), `{"ID":7}`, none},
		{shapeOf[rhomb](), `{"sum":0}`, ""},
		{shapeOf[hidden](), foreign, ""},
		{shapeOf[hidden](), `null`, ""},
		{shapeOf[struct{}](), foreign, ""},
		{shapeOf[own](), foreign, ""},
		{shapeOf[own](), `null`, ""},
		{shapeOf[ofText](), `"secret"`, ""},
		{shapeOf[ofText](), `null`, null},
		{shapeOf[netip.Addr](), `""`, ""},
		{shapeOf[time.Time](), `null`, ""},
		{shapeOf[holds](), `{"id":null}`, ""},
		{shapeOf[any](), `null`, ""},
		{shapeOf[any](), foreign, ""},
		{shapeOf[map[string]int](), `{}`, ""},
		{shapeOf[map[string]int](), `null`, ""},
		{shapeOf[[]plain](), `[]`, ""},
		{shapeOf[[]plain](), `null`, ""},
		{shapeOf[json.RawMessage](), `null`, ""},
		{shapeOf[int](), `0`, ""},
		{shapeOf[int](), `null`, null},
		{shapeOf[string](), `""`, ""},
		{shapeOf[string](), `null`, null},
		{shapeOf[bool](), `null`, null},
		{shapeOf[[2]int](), `[0]`, ""},
	} {
		ran, err := tt.handle(tt.data)
		if ran != (tt.want == "") || ran != (err == nil) {
			t.Errorf("%s from %s: the handler ran: %t, and %v, want %q", tt.goType, tt.data, ran, err, tt.want)
		}
		for _, err := range []error{err, tt.decode(tt.data)} {
			if tt.want != "" && (!errors.Is(err, postroom.ErrPermanent) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%s from %s: %v, want %q", tt.goType, tt.data, err, tt.want)
			}
		}
	}
	if _, err := shapeOf[plain]().handle(`{"amount":"secret"}`); err == nil || strings.Contains(err.Error(), "none of") {
		t.Errorf("a field of another type: %v", err)
	}
	set := plain{ID: 7}
	if err := (postroom.Event{Type: "a.b", Data: []byte(foreign)}).JSON(&set); err != nil {
		t.Errorf("a value that has a field: %v", err)
	}
}

// Package json decodes each field that the check finds, and none that it does not find.
func TestTheCheckFindsTheFieldsOfPackageJSON(t *testing.T) {
	names := []string{"ID", "id", "Id", "Amount", "order_id", "Note", "note", "-", "low", "a\"b", "Odd", "Time", "Base", "base", "Sum", "Number", "Left", "lowered", "ıd", "ID\u212a"}
	values := []string{"1", `"2026-11-29T18:55:31Z"`, `{"ID":1}`, `"x"`}
	for _, s := range []shape{
		shapeOf[plain](), shapeOf[tagged](), shapeOf[optional](), shapeOf[half](), shapeOf[embeds](), shapeOf[points](), shapeOf[lowers](),
		shapeOf[named](), shapeOf[clash](), shapeOf[settled](), shapeOf[chosen](), shapeOf[rhomb](), shapeOf[holds](), shapeOf[again](),
	} {
		for _, name := range names {
			key, _ := json.Marshal(name) //nolint:errchkjson // a string
			decoded := false
			for _, value := range values {
				v := reflect.New(s.goType)
				err := json.Unmarshal(fmt.Appendf(nil, "{%s:%s}", key, value), v.Interface())
				decoded = decoded || err == nil && !v.Elem().IsZero()
			}
			if err := s.decode(fmt.Sprintf("{%s:null}", key)); (err == nil) != decoded {
				t.Errorf("%s with the field %s: %v; package json decodes it: %t", s.goType, key, err, decoded)
			}
		}
	}
}

// A handler takes each value that a producer writes with the same type.
func TestHandlersTakeWhatTheirTypesWrite(t *testing.T) {
	note := ""
	for name, try := range map[string]func() error{
		"plain": writes(plain{}), "tagged": writes(tagged{}), "optional": writes(optional{}), "half": writes(half{}), "half with a note": writes(half{Note: &note}),
		"embeds": writes(embeds{}), "points": writes(points{}), "points to nothing": writes(points{&Base{}}), "lowers": writes(lowers{}), "named": writes(named{}),
		"clash": writes(clash{}), "settled": writes(settled{}), "chosen": writes(chosen{}), "rhomb": writes(rhomb{}), "hidden": writes(hidden{}), "holds": writes(holds{}),
		"no pointer": writes[*plain](nil), "a pointer": writes(&plain{}), "no map": writes[map[string]int](nil), "a map": writes(map[string]int{}), "no slice": writes[[]int](nil),
		"a slice": writes([]int{}), "a number": writes(0), "a text": writes(""), "anything": writes[any](nil), "a time": writes(time.Time{}), "an address": writes(netip.Addr{}), "an array": writes([2]int{}),
		"a struct embedded twice, two levels down": writes(again{}), "a number that writes null": writes(share(0)), "a struct that writes no field": writes(rule{}), "a rule": writes(rule{7}),
	} {
		if err := try(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func writes[T any](value T) func() error {
	return func() error {
		for _, of := range []postroom.Type[T]{postroom.NewType[T]("a.b", nil), postroom.NewType[T]("a.b", nil).Strict()} {
			ev := of.New(value)
			got, err := of.Decode(ev)
			if err == nil && string(of.New(got).Data) != string(ev.Data) {
				err = fmt.Errorf("wrote %s, read %+v", ev.Data, got)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func TestHandlersTakeWhatTheirTypesWriteAtRandom(t *testing.T) {
	kinds := []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[string](), reflect.TypeFor[*int](), reflect.TypeFor[[]int](), reflect.TypeFor[map[string]int](), reflect.TypeFor[plain](), reflect.TypeFor[optional](), reflect.TypeFor[*plain](),
	}
	embedded := []reflect.Type{reflect.TypeFor[Base](), reflect.TypeFor[Other](), reflect.TypeFor[Tagged](), reflect.TypeFor[*Base](), reflect.TypeFor[Left]()}
	rapid.Check(t, func(t *rapid.T) {
		var fields []reflect.StructField
		for i := range rapid.IntRange(0, 5).Draw(t, "fields") {
			tag := rapid.SampledFrom([]string{"", `json:",omitempty"`, `json:",omitzero"`, `json:"id"`, `json:"-"`, `json:"x,omitempty"`}).Draw(t, "tag")
			fields = append(fields, reflect.StructField{Name: fmt.Sprint("F", i), Type: rapid.SampledFrom(kinds).Draw(t, "type"), Tag: reflect.StructTag(tag)})
		}
		if rapid.Bool().Draw(t, "embeds") {
			e := rapid.SampledFrom(embedded).Draw(t, "embedded")
			name := e.Name()
			if e.Kind() == reflect.Pointer {
				name = e.Elem().Name()
			}
			fields = append(fields, reflect.StructField{Name: name, Type: e, Anonymous: true})
		}
		value := reflect.New(reflect.StructOf(fields))
		ev := postroom.NewEvent("a.b", value.Interface())
		if err := ev.JSON(reflect.New(value.Elem().Type()).Interface()); err != nil {
			t.Fatalf("%s: %v", ev.Data, err)
		}
		foreign := postroom.Event{Type: "a.b", Data: []byte(`{"elsewhere":7}`)}
		has := false
		for _, f := range reflect.VisibleFields(value.Elem().Type()) {
			has = has || !f.Anonymous && f.Tag.Get("json") != "-"
		}
		if err := foreign.JSON(value.Interface()); has && !strings.Contains(fmt.Sprint(err), "none of the fields") && !clashes(fields) {
			t.Fatalf("%v from %s: %v", value.Elem().Type(), foreign.Data, err)
		}
	})
}

// clashes reports whether package json may ignore all fields, because several have one name.
func clashes(fields []reflect.StructField) bool {
	seen := map[string]bool{}
	for _, f := range fields {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}
