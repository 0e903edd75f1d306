// Package jsonfit tells when JSON that package json decoded does not belong to its Go type.
package jsonfit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unicode"

	"github.com/postroom/postroom/internal/guard"
)

// Problem says why data does not belong to the type of v, although it decoded into v. It looks
// closer only if v is zero: package json ignores null, and an object without any field of a struct.
func Problem(data []byte, v reflect.Value) string {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return "" // these types have a nil
	}
	//guard:a-type-with-a-form-of-its-own-is-not-examined 3 false
	if p := reflect.PointerTo(v.Type()); !v.IsZero() || p.Implements(unmarshaler) || p.Implements(marshaler) {
		return ""
	}
	isStruct, known := v.Kind() == reflect.Struct, form{}
	if isStruct {
		if known = formOf(v.Type()); len(known.names) == 0 {
			return ""
		}
	}
	//guard:null-is-no-struct false
	if string(bytes.TrimSpace(data)) == "null" {
		return ": it is null, which is no value of the type " + typeName(v)
	}
	var members map[string]skipped
	if !isStruct || json.Unmarshal(data, &members) != nil { // a method UnmarshalText may have read a string
		return ""
	}
	//guard:a-struct-may-be-written-without-fields false
	if len(members) == 0 && known.bare {
		return ""
	}
	for name := range members {
		if known.names[fold(name)] {
			return ""
		}
	}
	return ": it has none of the fields of the type " + typeName(v)
}

// typeName returns the name of v's type, without what would make a message long.
func typeName(v reflect.Value) string { return guard.Clean(v.Type().String(), 100) }

// A type with one of these methods has a form of its own: its zero may be null, or any object.
var marshaler, unmarshaler = reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler]()

// skipped is a JSON value that is not kept.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// form says which objects package json decodes into a struct.
type form struct {
	names map[string]bool // the folded names of the fields
	bare  bool            // package json may write the struct as {}
}

// forms has the form of each struct type that formOf examined.
var forms sync.Map

func formOf(t reflect.Type) form {
	if f, ok := forms.Load(t); ok {
		return f.(form) //nolint:forcetypeassert // only forms are in it
	}
	f := examine(t)
	forms.Store(t, f)
	return f
}

// embedded says how a struct is embedded at one depth.
type embedded struct {
	times    int
	optional bool // by a pointer
}

// namesakes are the fields of one name at one depth.
type namesakes struct {
	tagged, plain int
	optional      bool
}

// examine finds the fields of a struct by the rules of package json: a field hides the deeper fields
// of its name, and fields of one name and depth hide each other, except for a single tagged one.
func examine(t reflect.Type) form {
	f, hidden, visited := form{names: map[string]bool{}, bare: true}, map[string]bool{}, map[reflect.Type]bool{}
	for level := map[reflect.Type]embedded{t: {times: 1}}; len(level) > 0; {
		deeper, found := map[reflect.Type]embedded{}, map[string]namesakes{}
		for t, e := range level {
			if !visited[t] {
				visited[t] = true
				e.collect(t, found, deeper)
			}
		}
		for name, n := range found {
			if !hidden[name] && (n.tagged == 1 || n.tagged == 0 && n.plain == 1) {
				f.names[fold(name)] = true
				f.bare = f.bare && n.optional
			}
			hidden[name] = true
		}
		level = deeper
	}
	return f
}

// collect adds the fields of a struct to found, and the structs that it embeds to deeper.
func (e embedded) collect(t reflect.Type, found map[string]namesakes, deeper map[reflect.Type]embedded) {
	for field := range t.Fields() {
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if !isJSONName(name) {
			name = ""
		}
		target := field.Type
		if target.Name() == "" && target.Kind() == reflect.Pointer {
			target = target.Elem()
		}
		isStruct := field.Anonymous && target.Kind() == reflect.Struct
		if tag == "-" || !field.IsExported() && !isStruct {
			continue
		}
		if isStruct && name == "" {
			d := deeper[target]
			deeper[target] = embedded{d.times + 1, d.optional || e.optional || field.Type != target}
			continue
		}
		n, known := found[cmp.Or(name, field.Name)]
		if name != "" {
			n.tagged += e.times
		} else {
			n.plain += e.times
		}
		optional := e.optional || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		n.optional = optional && (n.optional || !known)
		found[cmp.Or(name, field.Name)] = n
	}
}

// isJSONName reports whether package json takes a name from a tag.
func isJSONName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// fold maps all names to one that package json takes for the same, in upper and lower case.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
