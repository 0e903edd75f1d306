package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// The texts with which edits change conditions.
const (
	goTrue  = "(true || (%s))"
	goFalse = "(false && (%s))"
)

var inGo = language{
	isTrue: goTrue, isFalse: goFalse, comment: "//", target: goTarget,
	isLoose: func(code string) bool {
		x, err := parser.ParseExpr(code)
		_, is := x.(*ast.BinaryExpr)
		return err == nil && is
	},
	check: func(_, is string) error {
		_, err := parser.ParseFile(token.NewFileSet(), "", is, parser.SkipObjectResolution)
		return err
	},
}

// goFile is a Go file in which an edit is to be made.
type goFile struct {
	text    string
	base    int
	set     *token.FileSet
	parents map[ast.Node]ast.Node
}

// goTarget returns the outermost node that begins on a line of a Go file.
func goTarget(text string, line int) (*node, error) {
	f := goFile{text: text, set: token.NewFileSet(), parents: make(map[ast.Node]ast.Node)}
	file, err := parser.ParseFile(f.set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	f.base = int(file.FileStart)
	var target ast.Node
	var above []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if len(above) > 0 {
			f.parents[n] = above[len(above)-1]
		}
		above = append(above, n)
		if f.set.PositionFor(n.Pos(), false).Line == line && isTarget(n) && (target == nil || n.Pos() < target.Pos()) {
			target = n // a parent comes before its children
		}
		return true
	})
	if target == nil {
		return nil, errors.New("no statement, case, element or operand begins on the line below the marker")
	}
	return f.node(target), nil
}

func isTarget(n ast.Node) bool {
	switch n.(type) {
	case *ast.File, *ast.FieldList, *ast.CommentGroup, *ast.Comment:
		return false
	}
	return true
}

// node describes a node of the syntax tree and what is below it.
func (f *goFile) node(n ast.Node) *node {
	d := &node{from: f.at(n.Pos()), to: f.at(n.End()), removed: f.removed(n), tight: f.isTight(n)}
	_, d.loose = n.(*ast.BinaryExpr)
	switch n := n.(type) {
	case *ast.IfStmt:
		d.zero = f.optional(n.Init)
	case *ast.ForStmt:
		d.zero = f.optional(n.Init)
	case *ast.SwitchStmt:
		d.zero = f.optional(n.Init)
	case *ast.CallExpr:
		d.zero = f.node(n.Fun)
	}
	below := values(n)
	if len(below) == 1 {
		d.value = f.node(below[0])
		return d
	}
	if b, ok := n.(*ast.BinaryExpr); ok {
		below = chain(b, b.Op.Precedence())
	}
	if below == nil {
		below = parts(n)
	}
	for _, part := range below {
		d.parts = append(d.parts, f.node(part))
	}
	return d
}

// isTight reports whether an operator or a selector binds to the node.
func (f *goFile) isTight(n ast.Node) bool {
	switch p := f.parents[n].(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.StarExpr, *ast.SelectorExpr, *ast.TypeAssertExpr:
		return true
	case *ast.CallExpr:
		return n == p.Fun
	case *ast.IndexExpr:
		return n == p.X
	case *ast.SliceExpr:
		return n == p.X
	}
	return false
}

func (f *goFile) optional(s ast.Stmt) *node {
	if s == nil {
		return nil
	}
	return f.node(s)
}

// values returns the expressions of a statement, a case or a declaration. If there is only one, an
// edit of the node means this expression.
func values(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.IfStmt:
		return nodes(n.Cond)
	case *ast.ForStmt:
		return nodes(n.Cond)
	case *ast.SwitchStmt:
		return nodes(n.Tag)
	case *ast.RangeStmt:
		return nodes(n.X)
	case *ast.ExprStmt:
		return nodes(n.X)
	case *ast.DeferStmt:
		return nodes(n.Call)
	case *ast.GoStmt:
		return nodes(n.Call)
	case *ast.SendStmt:
		return nodes(n.Value)
	case *ast.ReturnStmt:
		return nodes(n.Results...)
	case *ast.AssignStmt:
		return nodes(n.Rhs...)
	case *ast.CaseClause:
		return nodes(n.List...)
	case *ast.CommClause:
		return nodes(n.Comm)
	case *ast.DeclStmt:
		return nodes(n.Decl)
	case *ast.GenDecl:
		return nodes(n.Specs...)
	case *ast.ValueSpec:
		return nodes(n.Values...)
	case *ast.FuncDecl:
		if n.Body != nil {
			return nodes(n.Body.List...)
		}
	case *ast.ParenExpr:
		return nodes(n.X)
	case *ast.KeyValueExpr:
		return nodes(n.Value)
	}
	return nil
}

// parts returns the parts of an expression.
func parts(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.CallExpr:
		return nodes(n.Args...)
	case *ast.CompositeLit:
		return nodes(n.Elts...)
	case *ast.FuncLit:
		return nodes(n.Body.List...)
	case *ast.UnaryExpr:
		return nodes(n.X)
	case *ast.StarExpr:
		return nodes(n.X)
	case *ast.SelectorExpr:
		return nodes(n.X)
	case *ast.IndexExpr:
		return nodes(n.X, n.Index)
	case *ast.SliceExpr:
		return nodes(n.X, n.Low, n.High)
	}
	return nil
}

// nodes returns the nodes that are there.
func nodes[N ast.Node](list ...N) (all []ast.Node) {
	for _, n := range list {
		if ast.Node(n) != nil {
			all = append(all, n)
		}
	}
	return all
}

// chain returns the operands of operators that have the same precedence: three of a && b && c.
func chain(x ast.Expr, precedence int) []ast.Node {
	if b, ok := x.(*ast.BinaryExpr); ok && b.Op.Precedence() == precedence {
		return append(chain(b.X, precedence), b.Y)
	}
	return []ast.Node{x}
}

// removed says how to remove a node. The names in a condition or a statement stay, so that none
// becomes unused.
func (f *goFile) removed(n ast.Node) change {
	c := change{from: f.at(n.Pos()), to: f.at(n.End())}
	was := f.text[c.from:c.to]
	switch p := f.parents[n].(type) {
	case *ast.BinaryExpr:
		switch {
		case p.Op == token.LAND:
			c.text = fmt.Sprintf(goTrue, was)
		case p.Op == token.LOR:
			c.text = fmt.Sprintf(goFalse, was)
		case n == p.X:
			c.to = f.at(p.Y.Pos())
		default:
			c.from = f.at(p.X.End())
		}
		return c
	case *ast.IfStmt:
		if n == p.Init {
			c.to = f.at(p.Cond.Pos())
			return c
		}
	case *ast.CallExpr:
		return f.cut(n, p.Args)
	case *ast.CompositeLit:
		return f.cut(n, p.Elts)
	case *ast.CaseClause:
		if x, ok := n.(ast.Expr); ok {
			return f.cut(x, p.List)
		}
	}
	switch n.(type) {
	case *ast.CaseClause, *ast.CommClause:
	case ast.Stmt:
		c.text = "if false {\n" + was + "\n}"
	}
	return c
}

// cut removes an element of a list, with one comma.
func (f *goFile) cut(n ast.Node, list []ast.Expr) change {
	c := change{from: f.at(n.Pos()), to: f.at(n.End())}
	i := slices.IndexFunc(list, func(x ast.Expr) bool { return x == n })
	switch {
	case i > 0:
		c.from = f.at(list[i-1].End())
	case len(list) > 1:
		c.to = f.at(list[1].Pos())
	case i == 0 && c.to < len(f.text) && f.text[c.to] == ',':
		c.to++
	}
	return c
}

func (f *goFile) at(p token.Pos) int { return int(p) - f.base }
