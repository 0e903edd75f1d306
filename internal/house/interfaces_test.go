package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// lone are internal interfaces that have one implementation and no fake. The list may only become
// shorter.
var lone = []string{
	"inbox/internal/batch.Loop",
	"inbox/internal/batch.Tx",
	"inbox/internal/holder.Owner",
	"inbox/internal/stream.Receiver",
	"inbox/internal/stream.Records",
}

// An interface of an internal package has two implementations, or a fake in a test. With one
// implementation and no fake, the interface only hides which code runs: use the type. The same is
// true for an interface that a package outside of internal does not export. Its other interfaces
// are not examined, because users implement them.
//
// All modules of go.work are examined. An interface without a name counts, too, if a parameter, a
// result or a field has it. These interfaces are left out:
//   - An interface without methods. A type parameter's constraint is one, unless it has methods.
//   - An interface in the body of a function, with which the function asks what a value can do.
//   - An interface that describes types of another module or of the standard library, such as a pool
//     and a transaction: such a type has all of its methods. The test looks for the type among those
//     that are named in the package that declares the interface, and in the packages that import
//     that one, and among the types of the variables and the results of the functions named there.
//   - An interface that only a type implements that has a field of this interface: what is in the
//     field is of another module.
//
// A type is an implementation if it has all methods and declares at least one of them itself, or
// gets them from several embedded types. A type that only embeds the interface, or another
// implementation, is none. A type of a test is a fake only if the test knows the interface's
// package: it imports that package, or one that does. For types and interfaces with type parameters,
// only the names of methods and the numbers of their parameters and results count.
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

// A role is an interface that should have two implementations.
type role struct {
	name    string
	at      token.Pos
	methods *types.Interface
	generic bool
}

// loneInterfaces returns the internal interfaces that have fewer than two implementations and no
// fake, by directory and name. It also returns how many internal interfaces with methods there are.
func (u *universe) loneInterfaces() (found map[string]finding, all int) {
	found = make(map[string]finding)
	concrete := u.concreteTypes()
	for _, p := range u.packages {
		if p.external {
			continue
		}
		for _, r := range p.roles() {
			if all++; u.isForeign(p, r) {
				continue
			}
			by := "no type"
			implementations, fake, wrapper := 0, false, false
			for _, typ := range concrete {
				if implements(typ.Type().(*types.Named), r) && (!inTest(typ) || u.knows(typ.Pkg().Path(), p)) {
					implementations++
					fake = fake || inTest(typ)
					wrapper = wraps(typ.Type().(*types.Named), r)
					by = "only " + u.nameOf(typ)
				}
			}
			if implementations < 2 && !fake && !wrapper {
				found[r.name] = finding{positions.Position(r.at).String(), by}
			}
		}
	}
	return found, all
}

// roles returns the interfaces with methods that the package declares outside of functions, except
// those that a package outside of internal exports.
func (p *unit) roles() (all []role) {
	add := func(name string, of *ast.InterfaceType, generic bool) {
		methods, ok := p.info.TypeOf(of).(*types.Interface)
		if ok && methods.NumMethods() > 0 {
			all = append(all, role{name: p.dir + "." + name, at: of.Pos(), methods: methods, generic: generic})
		}
	}
	within := func(name string, n ast.Node, generic bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			if of, ok := n.(*ast.InterfaceType); ok {
				add(name+" (interface)", of, generic)
			}
			_, isBody := n.(*ast.BlockStmt)
			return !isBody
		})
	}
	internal := isInternal(p.dir)
	for _, file := range p.code {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if internal {
					within(d.Name.Name, d, d.Type.TypeParams != nil || d.Recv != nil)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok || !internal && spec.Name.IsExported() {
						continue
					}
					if of, ok := spec.Type.(*ast.InterfaceType); ok {
						add(spec.Name.Name, of, spec.TypeParams != nil)
					} else if internal {
						within(spec.Name.Name, spec, spec.TypeParams != nil)
					}
				}
			}
		}
	}
	return all
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

// knows reports whether the tests of a package import the package p, or a package that does.
func (u *universe) knows(name string, p *unit) bool {
	seen := make(map[string]bool)
	var reach func(name string, files []*ast.File) bool
	reach = func(name string, files []*ast.File) bool {
		if seen[name] {
			return false
		}
		seen[name] = true
		if name == p.types.Path() {
			return true
		}
		for _, file := range files {
			for _, spec := range file.Imports {
				if next := u.packages[importPath(spec)]; next != nil && reach(importPath(spec), next.code) {
					return true
				}
			}
		}
		return false
	}
	of := u.packages[name]
	return reach(name, slices.Concat(of.code, of.tests))
}

// isForeign reports whether an interface of the package p describes a type of another module or of
// the standard library.
func (u *universe) isForeign(p *unit, r role) bool {
	for _, user := range u.packages {
		if user.external || user != p && !slices.Contains(user.imports, p.types) {
			continue
		}
		for _, typ := range u.named(user) {
			if types.Implements(pointer(typ), r.methods) {
				return true
			}
		}
	}
	return false
}

// named returns the types of other modules that the code of a package names, and the types of the
// variables and the results of the functions that it names.
func (u *universe) named(p *unit) []*types.Named {
	if p.named != nil {
		return p.named
	}
	p.named = []*types.Named{}
	add := func(typ types.Type) {
		if of, ok := typ.Underlying().(*types.Pointer); ok {
			typ = of.Elem()
		}
		if of, ok := types.Unalias(typ).(*types.Named); ok && of.TypeParams() == nil && of.Obj().Pkg() != nil && u.packages[of.Obj().Pkg().Path()] == nil && !slices.Contains(p.named, of) {
			p.named = append(p.named, of)
		}
	}
	for _, file := range p.code {
		scopes := make(map[string]*types.Scope) // by the name in this file
		for _, other := range p.imports {
			for _, spec := range file.Imports {
				if importPath(spec) == other.Path() && u.packages[other.Path()] == nil {
					name := other.Name()
					if spec.Name != nil {
						name = spec.Name.Name
					}
					scopes[name] = other.Scope()
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || scopes[x.Name] == nil {
				return true
			}
			switch of := scopes[x.Name].Lookup(sel.Sel.Name).(type) {
			case *types.Func:
				for result := range of.Signature().Results().Variables() {
					add(result.Type())
				}
			case nil:
			default:
				add(of.Type())
			}
			return true
		})
	}
	return p.named
}

// pointer returns the type *T, which has all methods of T. If T is an interface, it returns T.
func pointer(of *types.Named) types.Type {
	if types.IsInterface(of) {
		return of
	}
	return types.NewPointer(of)
}

// implements reports whether a type has the methods of an interface, and declares at least one of
// them itself, or gets them from several embedded types.
func implements(typ *types.Named, r role) bool {
	generic := typ.TypeParams() != nil || r.generic
	if !generic && !types.Implements(typ, r.methods) && !types.Implements(types.NewPointer(typ), r.methods) {
		return false
	}
	from := make(map[int]bool) // the embedded fields that have the methods
	own := false
	for m := range r.methods.Methods() {
		found, path, _ := types.LookupFieldOrMethod(typ, true, m.Pkg(), m.Name())
		method, ok := found.(*types.Func)
		if !ok || !alike(method.Signature(), m.Signature()) {
			return false
		}
		from[path[0]] = true
		own = own || len(path) == 1 // a longer path leads through embedded types
	}
	return own || len(from) > 1
}

// wraps reports whether a type has a field of an interface. If the type is the only implementation,
// what is in the field is of another module.
func wraps(typ *types.Named, r role) bool {
	of, ok := typ.Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for field := range of.Fields() {
		if types.Identical(field.Type().Underlying(), r.methods) {
			return true
		}
	}
	return false
}

// alike reports whether two methods have as many parameters and results.
func alike(a, b *types.Signature) bool {
	return a.Params().Len() == b.Params().Len() && a.Results().Len() == b.Results().Len() && a.Variadic() == b.Variadic()
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
		{"only a fake, in another package", map[string]string{"a/internal/parcel/p.go": one, "a/a_test.go": "package a_test\nimport _ \"" + module + "/a/internal/parcel\"\n" + fake}, false},
		{"a fake that knows a package that knows it", map[string]string{"a/internal/parcel/p.go": one, "a/a.go": "package a\nimport _ \"" + module + "/a/internal/parcel\"\n", "b/b_test.go": "package b_test\nimport _ \"" + module + "/a\"\n" + fake}, false},
		{"what looks like a fake, and knows it not", map[string]string{"a/internal/parcel/p.go": one + post, "b/b_test.go": "package b_test\n" + fake}, true},
		{"not exported, in a public package", map[string]string{"a/internal/parcel/p.go": "package parcel\n", "a/a.go": "package a\ntype sender interface{ Send(to string) error }\n" + post}, true},
		{"a field", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender struct{ to interface{ Send(to string) error } }\n" + post}, true},
		{"what only wraps it", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender interface{ Send(to string) error }\ntype Post struct{ to Sender }\nfunc (*Post) Send(to string) error { return nil }\n"}, false},
		{"a parameter", map[string]string{"a/internal/parcel/p.go": "package parcel\nfunc Sender(to interface{ Send(to string) error }) {}\n" + post}, true},
		{"in the body of a function", map[string]string{"a/internal/parcel/p.go": "package parcel\nfunc Sender(to any) { _, _ = to.(interface{ Send(to string) error }) }\n" + post}, false},
		{"an alias", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender = interface{ Send(to string) error }\n" + post}, true},
		{"two halves, embedded in another type", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender interface{ Send(); Stop() }\ntype A struct{}\nfunc (A) Send() {}\ntype B struct{}\nfunc (B) Stop() {}\ntype AB struct{ A; B }\ntype Whole struct{}\nfunc (Whole) Send() {}\nfunc (Whole) Stop() {}\n"}, false},
		{"a constraint with a type that is no pointer", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender interface{ ~int; Send() }\ntype A int\nfunc (A) Send() {}\ntype B int\nfunc (B) Send() {}\n"}, false},
		{"type parameters, and a method with more parameters", map[string]string{"a/internal/parcel/p.go": "package parcel\ntype Sender[T any] interface{ Send(to T) error }\n" + post + "type Other struct{}\nfunc (Other) Send(from, to string) error { return nil }\n"}, true},
		{"only a type of the program", map[string]string{"a/internal/parcel/p.go": "package parcel\nimport \"time\"\ntype Sender interface{ Stop() bool }\ntype Post struct{}\nfunc (*Post) Stop() bool { return true }\nvar _ time.Duration // time.Timer has Stop, too\n"}, true},
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
			if len(found) > 1 || (len(found) == 1) != tt.lone {
				t.Errorf("found %v, want Sender: %t", found, tt.lone)
			}
		})
	}
}
