package house

import (
	"go/ast"
	"testing"
)

// A test that fails at random can be repeated: its random numbers come from devtest.Random, which
// shows their seed, or from a seed that the test names as a number.
func TestRandomTestsCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, func(f *file) bool { return f.test }) {
		for _, spec := range f.syntax.Imports {
			if path := importPath(spec); path != "math/rand" && path != "math/rand/v2" {
				continue
			}
			if spec.Name != nil {
				t.Errorf("%s: import math/rand as rand, so that this test sees its calls", positions.Position(spec.Pos()))
			}
			for _, call := range unrepeatable(f) {
				t.Errorf("%s: take random numbers from devtest.Random, which shows their seed", positions.Position(call.Pos()))
			}
		}
	}
}

// unrepeatable returns the calls of rand that use the process's own random numbers, or a seed that
// is not a number.
func unrepeatable(f *file) (all []*ast.CallExpr) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := function.X.(*ast.Ident); !ok || x.Name != "rand" {
			return true
		}
		switch function.Sel.Name {
		case "New":
			return true
		case "NewPCG", "NewChaCha8":
			switch call.Args[0].(type) {
			case *ast.BasicLit, *ast.CompositeLit:
				return true
			}
		}
		all = append(all, call)
		return true
	})
	return all
}
