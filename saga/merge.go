package saga

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// otherState is a state that another program stored. The field its is the stored document. The
// field known is the same document after this program decoded and encoded it: known lacks the
// fields that only the other program knows.
type otherState struct{ its, known json.RawMessage }

// merge takes the state that this program changed (now), and adds the fields that only the other
// program knows. So an older program keeps the fields of a newer one, also in nested structs. An
// element of an array keeps its unknown fields if merge can identify the element.
func (s otherState) merge(now json.RawMessage) (json.RawMessage, error) {
	if bytes.Equal(s.known, now) {
		return s.its, nil
	}
	var objects [3]map[string]json.RawMessage
	if isEach('{', s.its, s.known, now) {
		for i, document := range [][]byte{s.its, s.known, now} {
			if err := json.Unmarshal(document, &objects[i]); err != nil {
				return nil, err
			}
		}
		return mergeObjects(objects[0], objects[1], objects[2])
	}
	var arrays [3][]json.RawMessage
	if isEach('[', s.its, s.known, now) {
		for i, document := range [][]byte{s.its, s.known, now} {
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
		merged, err := otherState{theirs, before}.merge(value)
		if err != nil {
			return nil, err
		}
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
		if strings.EqualFold(its, name) {
			return value, true
		}
	}
	return nil, false
}

// mergeArrays merges two kinds of elements: those that did not change, even if they moved, and
// those that changed and kept their place. If the program removed elements, mergeArrays does not
// merge changed elements, because it cannot distinguish them from new ones.
func mergeArrays(its, known, now []json.RawMessage) (json.RawMessage, error) {
	if len(its) != len(known) {
		return json.Marshal(now)
	}
	places := make(map[string][]int) // the places of each element in the slice known
	for i, element := range known {
		places[string(element)] = append(places[string(element)], i)
	}
	all := slices.Clone(now)
	found, moved := make([]bool, len(now)), make([]bool, len(known))
	for i, element := range now {
		before := places[string(element)]
		if len(before) == 0 {
			continue
		}
		at := max(slices.Index(before, i), 0)
		all[i], found[i], moved[before[at]] = its[before[at]], true, true
		places[string(element)] = slices.Delete(before, at, at+1)
	}
	for i := range known {
		if len(now) < len(known) || found[i] || moved[i] {
			continue
		}
		merged, err := otherState{its[i], known[i]}.merge(now[i])
		if err != nil {
			return nil, err
		}
		all[i] = merged
	}
	return json.Marshal(all)
}
