package house

import (
	"go/parser"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// lone are internal interfaces that have one implementation and no fake. The list may only become
// shorter.
var lone = []string{
	"inbox/internal/accept.Store",
	"inbox/internal/batch.Loop",
	"inbox/internal/batch.Tx",
	"inbox/internal/claims.DryRuns",
	"inbox/internal/claims.Ledger",
	"inbox/internal/dryrun.Ledger",
	"inbox/internal/holder.Owner",
	"inbox/internal/preflight.Database",
	"inbox/internal/steps.Receipts",
	"inbox/internal/stream.Receiver",
	"inbox/internal/stream.Records",
	"inbox/internal/upkeep.Ledger",
	"inbox/internal/upkeep.Processes",
}

// An interface of an internal package has two implementations, or a fake in a test. With one
// implementation and no fake, the interface only hides which code runs: use the type.
//
// A package outside of internal is not examined, because users implement its interfaces. All
// modules of go.work are examined. These interfaces are left out:
//   - An interface without methods. A type parameter's constraint is one, unless it has methods.
//   - An interface that describes types of another module or of the standard library, such as a pool
//     and a transaction: such a type has all of its methods. The test looks for the type in the
//     imports of the package that declares the interface, and of the packages that import that one.
//
// A type is an implementation if it has all methods and declares at least one of them itself. A type
// that only embeds the interface, or another implementation, is none. For types and interfaces with
// type parameters, only the names of methods count.
func TestInternalInterfacesHaveTwoImplementations(t *testing.T) {
	t.Parallel()
	found, all := theTypes(t).loneInterfaces()
	if all < 8 {
		t.Errorf("%d interfaces were found: the test looks for them in the wrong way", all)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(lone, name) {
			t.Errorf("%s: %s implements %s, and no test has a fake: use the type instead of an interface", found[name].at, found[name].by, name)
		}
	}
	for _, name := range lone {
		if _, ok := found[name]; !ok {
			t.Errorf("%s does not exist, or has two implementations or a fake: remove it from lone", name)
		}
	}
}

// A finding is the place of an interface, and the only type that implements it.
type finding struct{ at, by string }

// loneInterfaces returns the internal interfaces that have fewer than two implementations and no
// fake, by directory and name. It also returns how many internal interfaces with methods there are.
func (u *universe) loneInterfaces() (found map[string]finding, all int) {
	found = make(map[string]finding)
	concrete := u.concreteTypes()
	for _, p := range u.packages {
		if p.external || !isInternal(p.dir) {
			continue
		}
		for _, name := range p.declared() {
			of, ok := name.Type().(*types.Named)
			if !ok || inTest(name) || !types.IsInterface(of) || of.Underlying().(*types.Interface).NumMethods() == 0 {
				continue
			}
			if all++; u.isForeign(p, of) {
				continue
			}
			by := "no type"
			implementations, fake := 0, false
			for _, typ := range concrete {
				if implements(typ.Type().(*types.Named), of) {
					implementations++
					fake = fake || inTest(typ)
					by = "only " + u.nameOf(typ)
				}
			}
			if implementations < 2 && !fake {
				found[u.nameOf(name)] = finding{positions.Position(name.Pos()).String(), by}
			}
		}
	}
	return found, all
}

// declared returns the types that a package declares outside of functions. Aliases are left out.
func (p *unit) declared() (all []*types.TypeName) {
	scope := p.types.Scope()
	for _, name := range scope.Names() {
		if typ, ok := scope.Lookup(name).(*types.TypeName); ok && !typ.IsAlias() {
			all = append(all, typ)
		}
	}
	return all
}

// concreteTypes returns all types, also of tests, that are not interfaces.
func (u *universe) concreteTypes() (all []*types.TypeName) {
	for _, name := range slices.Sorted(maps.Keys(u.packages)) {
		for _, typ := range u.packages[name].declared() {
			if !types.IsInterface(typ.Type()) {
				all = append(all, typ)
			}
		}
	}
	return all
}

// inTest reports whether a test declares an object.
func inTest(of types.Object) bool {
	return strings.HasSuffix(positions.Position(of.Pos()).Filename, "_test.go")
}

func (u *universe) nameOf(typ *types.TypeName) string {
	return u.packages[typ.Pkg().Path()].dir + "." + typ.Name()
}

// isForeign reports whether an interface of the package p describes a type of another module or of
// the standard library.
func (u *universe) isForeign(p *unit, of *types.Named) bool {
	for _, user := range u.packages {
		if user.external || user != p && !slices.Contains(user.imports, p.types) {
			continue
		}
		for _, other := range user.imports {
			if u.packages[other.Path()] != nil {
				continue
			}
			for _, name := range other.Scope().Names() {
				typ, ok := other.Scope().Lookup(name).(*types.TypeName)
				if !ok || !typ.Exported() || typ.IsAlias() {
					continue
				}
				if named, ok := typ.Type().(*types.Named); ok && named.TypeParams() == nil && types.Implements(pointer(named), of.Underlying().(*types.Interface)) {
					return true
				}
			}
		}
	}
	return false
}

// pointer returns the type *T, which has all methods of T. If T is an interface, it returns T.
func pointer(of *types.Named) types.Type {
	if types.IsInterface(of) {
		return of
	}
	return types.NewPointer(of)
}

// implements reports whether a type has the methods of an interface, and declares at least one of
// them itself.
func implements(typ, of *types.Named) bool {
	methods := of.Underlying().(*types.Interface)
	generic := typ.TypeParams() != nil || of.TypeParams() != nil
	if !generic && !types.Implements(types.NewPointer(typ), methods) {
		return false
	}
	own := false
	for m := range methods.Methods() {
		found, path, _ := types.LookupFieldOrMethod(typ, true, m.Pkg(), m.Name())
		if _, ok := found.(*types.Func); !ok {
			return false
		}
		own = own || len(path) == 1 // a longer path leads through embedded types
	}
	return own
}

// TestLoneInterfaces checks that an interface without a second implementation is found.
func TestLoneInterfaces(t *testing.T) {
	t.Parallel()
	const (
		one  = "package parcel\ntype Sender interface{ Send(to string) error }\n"
		post = "type Post struct{}\nfunc (*Post) Send(to string) error { return nil }\n"
		fake = "type fake struct{}\nfunc (fake) Send(to string) error { return nil }\n"
	)
	tests := []struct {
		name  string
		files map[string]string
		lone  bool
	}{
		{"no implementation", map[string]string{"a/internal/parcel/p.go": one}, true},
		{"one", map[string]string{"a/internal/parcel/p.go": one + post}, true},
		{"one in another package", map[string]string{"a/internal/parcel/p.go": one, "a/a.go": "package a\n" + post}, true},
		{"two", map[string]string{"a/internal/parcel/p.go": one + post, "a/a.go": "package a\n" + fake}, false},
		{"one and a fake", map[string]string{"a/internal/parcel/p.go": one + post, "a/internal/parcel/p_test.go": "package parcel\n" + fake}, false},
		{"only a fake, in another package", map[string]string{"a/internal/parcel/p.go": one, "b/b_test.go": "package b_test\n" + fake}, false},
		{"one, embedded in another type", map[string]string{"a/internal/parcel/p.go": one + post + "type Office struct{ *Post }\n"}, true},
		{"one, embedded and replaced", map[string]string{"a/internal/parcel/p.go": one + post + "type Office struct{ *Post }\nfunc (Office) Send(to string) error { return nil }\n"}, false},
		{"the interface, embedded", map[string]string{"a/internal/parcel/p.go": one + post + "type Office struct{ Sender }\n"}, true},
		{"a type with another method", map[string]string{"a/internal/parcel/p.go": one + post + "type Office struct{}\nfunc (Office) Send() {}\n"}, true},
		{"an interface of a test", map[string]string{"a/internal/parcel/p_test.go": one}, false},
		{"a public package", map[string]string{"a/parcel/p.go": one + post}, false},
		{"no method", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Any interface{}\ntype Number interface{ ~int | ~uint }\n"}, false},
		{"a type of the standard library", map[string]string{"a/internal/parcel/p.go": "package parcel\nimport \"time\"\ntype Sender interface{ Hours() float64 }\nvar _ time.Duration\n"}, false},
		{"that an importing package knows", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender interface{ Hours() float64 }\n", "a/a.go": "package a\nimport (\n\"time\"\n\"" + module + "/a/internal/parcel\"\n)\nvar _ parcel.Sender = time.Second\n"}, false},
		{"type parameters", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender[T any] interface{ Send(to T) error }\n" + post}, true},
		{"type parameters and two implementations", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender[T any] interface{ Send(to T) error }\n" + post + fake}, false},
	}
	shared := theTypes(t).foreign
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all []*file
			for name, text := range tt.files {
				syntax, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, &file{dir: name[:strings.LastIndex(name, "/")], path: name, test: strings.HasSuffix(name, "_test.go"), text: []byte(text), syntax: syntax})
			}
			u := newUniverse(all)
			u.foreign = shared
			if err := u.check(); err != nil {
				t.Fatal(err)
			}
			found, _ := u.loneInterfaces()
			if _, lone := found["a/internal/parcel.Sender"]; lone != tt.lone || len(found) > 1 {
				t.Errorf("found %v, want Sender: %t", found, tt.lone)
			}
		})
	}
}
