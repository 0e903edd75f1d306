package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

var inGo = language{isTrue: "(true || (%s))", isFalse: "(false && (%s))"}

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
		if f.set.Position(n.Pos()).Line == line && isTarget(n) && (target == nil || n.Pos() < target.Pos()) {
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
	d := &node{from: f.at(n.Pos()), to: f.at(n.End())}
	d.removed = f.removed(n)
	value := func(v ast.Node) { d.value = f.node(v) }
	switch n := n.(type) {
	case *ast.IfStmt:
		value(n.Cond)
		d.zero = f.optional(n.Init)
	case *ast.ForStmt:
		if n.Cond != nil {
			value(n.Cond)
		}
		d.zero = f.optional(n.Init)
	case *ast.SwitchStmt:
		if n.Tag != nil {
			value(n.Tag)
		}
		d.zero = f.optional(n.Init)
	case *ast.RangeStmt:
		value(n.X)
	case *ast.ExprStmt:
		value(n.X)
	case *ast.ParenExpr:
		value(n.X)
	case *ast.DeferStmt:
		value(n.Call)
	case *ast.GoStmt:
		value(n.Call)
	case *ast.SendStmt:
		value(n.Value)
	case *ast.CommClause:
		if n.Comm != nil {
			value(n.Comm)
		}
	case *ast.KeyValueExpr:
		value(n.Value)
	case *ast.DeclStmt:
		value(n.Decl)
	case *ast.BinaryExpr:
		d.parts = f.chain(n, n.Op.Precedence())
	case *ast.CallExpr:
		d.zero = f.node(n.Fun)
		d.parts = nodes(f, n.Args)
	case *ast.CompositeLit:
		d.parts = nodes(f, n.Elts)
	case *ast.UnaryExpr:
		d.parts = []*node{f.node(n.X)}
	case *ast.StarExpr:
		d.parts = []*node{f.node(n.X)}
	case *ast.SelectorExpr:
		d.parts = []*node{f.node(n.X)}
	case *ast.IndexExpr:
		d.parts = []*node{f.node(n.X), f.node(n.Index)}
	case *ast.SliceExpr:
		d.parts = []*node{f.node(n.X)}
		for _, bound := range []ast.Expr{n.Low, n.High} {
			if bound != nil {
				d.parts = append(d.parts, f.node(bound))
			}
		}
	case *ast.FuncLit:
		d.parts = nodes(f, n.Body.List)
	default:
		// What has one value stands for it.
		if d.parts = f.list(n); len(d.parts) == 1 {
			d.value, d.parts = d.parts[0], nil
		}
	}
	return d
}

// list returns the values of a node that may have several.
func (f *goFile) list(n ast.Node) []*node {
	switch n := n.(type) {
	case *ast.ReturnStmt:
		return nodes(f, n.Results)
	case *ast.AssignStmt:
		return nodes(f, n.Rhs)
	case *ast.CaseClause:
		return nodes(f, n.List)
	case *ast.ValueSpec:
		return nodes(f, n.Values)
	case *ast.GenDecl:
		return nodes(f, n.Specs)
	case *ast.FuncDecl:
		if n.Body != nil {
			return nodes(f, n.Body.List)
		}
	}
	return nil
}

func (f *goFile) optional(s ast.Stmt) *node {
	if s == nil {
		return nil
	}
	return f.node(s)
}

func nodes[N ast.Node](f *goFile, list []N) (all []*node) {
	for _, n := range list {
		all = append(all, f.node(n))
	}
	return all
}

// chain returns the operands of operators that have the same precedence: three of a && b && c.
func (f *goFile) chain(x ast.Expr, precedence int) []*node {
	if b, ok := x.(*ast.BinaryExpr); ok && b.Op.Precedence() == precedence {
		return append(f.chain(b.X, precedence), f.node(b.Y))
	}
	return []*node{f.node(x)}
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
			c.text = fmt.Sprintf(inGo.isTrue, was)
		case p.Op == token.LOR:
			c.text = fmt.Sprintf(inGo.isFalse, was)
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
