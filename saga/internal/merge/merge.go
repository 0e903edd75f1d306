// Package merge keeps the fields of a state that only another program knows.
package merge

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// State is a state that another program stored. The field Its is the stored document. The field
// Known is the same document after this program decoded and encoded it: Known lacks the fields that
// only the other program knows.
type State struct{ Its, Known json.RawMessage }

// Merge takes the state that this program changed (now), and adds the fields that only the other
// program knows. So an older program keeps the fields of a newer one, also in nested structs. An
// element of an array keeps its unknown fields if Merge can identify the element.
func (s State) Merge(now json.RawMessage) (json.RawMessage, error) {
	if bytes.Equal(s.Known, now) {
		return s.Its, nil
	}
	var objects [3]map[string]json.RawMessage
	if isEach('{', s.Its, s.Known, now) {
		for i, document := range [][]byte{s.Its, s.Known, now} {
			if err := json.Unmarshal(document, &objects[i]); err != nil {
				return nil, err
			}
		}
		return mergeObjects(objects[0], objects[1], objects[2])
	}
	var arrays [3][]json.RawMessage
	if isEach('[', s.Its, s.Known, now) {
		for i, document := range [][]byte{s.Its, s.Known, now} {
			if err := json.Unmarshal(document, &arrays[i]); err != nil {
				return nil, err
			}
		}
		return mergeArrays(arrays[0], arrays[1], arrays[2])
	}
	return now, nil
}

// isEach reports whether each of some JSON documents begins with the character first.
func isEach(first byte, documents ...json.RawMessage) bool {
	return !slices.ContainsFunc(documents, func(d json.RawMessage) bool {
		d = bytes.TrimLeft(d, " \t\r\n")
		return len(d) == 0 || d[0] != first
	})
}

func mergeObjects(its, known, now map[string]json.RawMessage) (json.RawMessage, error) {
	all := maps.Clone(now)
	for name, value := range now {
		before, isKnown := member(known, name)
		theirs, isStored := member(its, name)
		if !isKnown || !isStored {
			continue
		}
		merged, err := State{theirs, before}.Merge(value)
		if err != nil {
			return nil, err
		}
		//guard:an-older-program-keeps-nested-fields remove
		all[name] = merged
	}
	for name, value := range its {
		_, isKnown := member(known, name)
		if _, isNow := member(now, name); !isKnown && !isNow {
			all[name] = value
		}
	}
	return json.Marshal(all)
}

// member returns an object's member. Like json.Unmarshal, it ignores case. Otherwise a member whose
// name only changed case could appear again with its old name and value.
func member(object map[string]json.RawMessage, name string) (json.RawMessage, bool) {
	if value, ok := object[name]; ok {
		return value, true
	}
	for its, value := range object {
		//guard:a-member-keeps-no-former-value = @1 == @2 && @
		if strings.EqualFold(its, name) {
			return value, true
		}
	}
	return nil, false
}

// mergeArrays merges two kinds of elements: those that did not change, even if they moved, and
// those that changed and kept their place. If the program removed elements, or added some in front
// of others, mergeArrays does not merge changed elements, because it cannot distinguish them from
// new ones. Elements that are equal for this program may have different unknown fields. If only
// some of them are left, mergeArrays identifies them only by their places in an array of the same
// length.
func mergeArrays(its, known, now []json.RawMessage) (json.RawMessage, error) {
	if len(its) != len(known) {
		return json.Marshal(now)
	}
	places, left := make(map[string][]int), make(map[string]int) // the places of each element in the slice known, and how often it is in the rest of now
	for i, element := range known {
		places[string(element)] = append(places[string(element)], i)
	}
	for _, element := range now {
		left[string(element)]++
	}
	all, shifted := slices.Clone(now), len(now) < len(known)
	found, moved := make([]bool, len(now)), make([]bool, len(known))
	for i, element := range now {
		before := places[string(element)]
		if len(before) == 0 {
			continue
		}
		at := 0
		if left[string(element)] < len(before) {
			differ := slices.ContainsFunc(before, func(other int) bool { return !bytes.Equal(its[other], its[before[0]]) })
			//guard:an-element-gets-no-other-elements-fields = @1 && @2.1.1 > @2.2.2
			if at = slices.Index(before, i); differ && (at < 0 || len(now) != len(known)) {
				found[i], shifted = true, true
				continue
			}
			at = max(at, 0)
		}
		//guard:an-element-keeps-what-was-stored-with-it 1 = all[i]
		all[i], found[i], moved[before[at]] = its[before[at]], true, true
		//guard:a-new-element-gets-no-former-elements-fields remove
		shifted = shifted || len(now) > len(known) && before[at] != i
		left[string(element)]--
		places[string(element)] = slices.Delete(before, at, at+1)
	}
	for i := range known {
		if shifted || found[i] || moved[i] {
			continue
		}
		merged, err := State{its[i], known[i]}.Merge(now[i])
		if err != nil {
			return nil, err
		}
		all[i] = merged
	}
	return json.Marshal(all)
}
