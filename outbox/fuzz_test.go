package outbox

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// FuzzParseSpans holds that no text of the state row makes parseSpans panic, and that
// what it accepts are ranges that read back as they were.
func FuzzParseSpans(f *testing.F) {
	for _, seed := range []string{"{}", "{[1,4),[9,12)}", "{[1,2", "{[a,b)}", "{(,5)}", "{[3,3)}", "{[1,9223372036854775807)}", "{[-5,-1)}", "{1,2)}", "{[1,4),(9,12]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSpans(text)
		if err != nil {
			if s != nil {
				t.Errorf("parseSpans(%q) = %s, and %v", text, s, err)
			}
			return
		}
		for _, r := range s {
			if r.lo > r.hi {
				t.Errorf("parseSpans(%q) has %d to %d", text, r.lo, r.hi)
			}
		}
		if again, err := parseSpans(canonical(s)); err != nil || !slices.Equal(again, s) {
			t.Errorf("parseSpans(%q) = %s, which reads back as %s, %v", text, s, again, err)
		}
	})
}

// FuzzPlaces holds that no document in the state row makes placesOf panic, and that
// what it reads is written again as it was.
func FuzzPlaces(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"SHOP":{"created":"2026-02-03T04:05:06.7Z","seq":9,"message_id":"/shop#e1"}}`))
	f.Add([]byte(`{"SHOP":null,"a":{"seq":-1}}`))
	f.Add([]byte(`[{"SHOP":1}]`))
	f.Add([]byte(`{"S":{"created":"9999-12-31T23:59:59-23:59"}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		places, err := placesOf(document)
		if err != nil {
			return
		}
		for _, at := range places {
			if year := at.Created.UTC().Year(); year < 0 || year > 9999 {
				return // no stream was created then, and JSON has no such time
			}
		}
		again, err := placesOf([]byte(streamsOf(places)))
		for name, at := range places {
			was := again[name]
			if !was.Created.Equal(at.Created) {
				t.Errorf("%q: created %s reads back as %s", document, at.Created, was.Created)
			}
			at.Created = was.Created
			if !reflect.DeepEqual(was, at) {
				t.Errorf("%q: %+v reads back as %+v", document, at, was)
			}
		}
		if err != nil || len(again) != len(places) {
			t.Errorf("%q: %v reads back as %v, %v", document, slices.Sorted(maps.Keys(places)), slices.Sorted(maps.Keys(again)), err)
		}
	})
}
