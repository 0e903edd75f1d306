package pglog

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// FuzzPlaces checks that no document in the state row makes placesOf panic, and that the
// positions that it reads are written again unchanged.
func FuzzPlaces(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"SHOP":{"created":"2026-02-03T04:05:06.7Z","seq":9,"message_id":"/shop#e1"}}`))
	f.Add([]byte(`{"SHOP":null,"a":{"seq":-1}}`))
	f.Add([]byte(`[{"SHOP":1}]`))
	f.Add([]byte(`{"S":{"created":"9999-12-31T23:59:59-23:59"}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		positions, err := parseStreams(document)
		if err != nil {
			return
		}
		for _, at := range positions {
			if year := at.Created.UTC().Year(); year < 0 || year > 9999 {
				return // no stream was created then, and JSON has no such time
			}
		}
		again, err := parseStreams([]byte(streamsOf(positions)))
		for name, at := range positions {
			was := again[name]
			if !was.Created.Equal(at.Created) {
				t.Errorf("%q: created %s reads back as %s", document, at.Created, was.Created)
			}
			at.Created = was.Created
			if !reflect.DeepEqual(was, at) {
				t.Errorf("%q: %+v reads back as %+v", document, at, was)
			}
		}
		if err != nil || len(again) != len(positions) {
			t.Errorf("%q: %v reads back as %v, %v", document, slices.Sorted(maps.Keys(positions)), slices.Sorted(maps.Keys(again)), err)
		}
	})
}
