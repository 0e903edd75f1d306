package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// edit is what a marker says about the code below it: an optional PART, a verb, and perhaps code.
// The verbs are
//
//	true      the condition is true
//	false     the condition is false
//	remove    the part is gone: a statement, a case, an element, an argument, an operand
//	= CODE    CODE replaces the expression
//	do CODE   CODE replaces the whole statement, or in SQL the whole clause
//
// In CODE, @ is the text that CODE replaces, and @2 or @2.1 is a part of this text.
type edit struct {
	parts [][]int // the parts to change; one empty path is the target itself
	verb  string
	code  string
}

var partFormat = regexp.MustCompile(`^\d+(\.\d+)*(,\d+(\.\d+)*)*$`)

// parseEdit reads the text of a marker behind its name.
func parseEdit(text string) (e edit, err error) {
	text = strings.TrimSpace(text)
	word, rest, _ := strings.Cut(text, " ")
	e.parts = [][]int{nil}
	if partFormat.MatchString(word) {
		e.parts = nil
		for _, p := range strings.Split(word, ",") {
			e.parts = append(e.parts, parsePart(p))
		}
		word, rest, _ = strings.Cut(strings.TrimSpace(rest), " ")
	}
	e.verb, e.code = word, strings.TrimSpace(rest)
	hasCode := e.verb == "=" || e.verb == "do"
	if !hasCode && !slices.Contains([]string{"true", "false", "remove"}, e.verb) || hasCode != (e.code != "") {
		return e, fmt.Errorf("the edit is %q, want [PART] and true, false, remove, = CODE or do CODE", text)
	}
	return e, nil
}

// parsePart reads a path of numbers: 2.1 is the first part of the second part.
func parsePart(text string) (path []int) {
	for _, digits := range strings.Split(text, ".") {
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = -1 // more digits than an int has: no node has this part
		}
		path = append(path, n)
	}
	return path
}

// node is a piece of code that an edit can change, as the parser of its language sees it.
type node struct {
	from, to int     // its place in the file
	value    *node   // the expression that is meant where an edit names no part; nil if it is the node itself
	parts    []*node // the parts 1, 2, …
	zero     *node   // part 0
	removed  change  // how to remove it
	loose    bool    // it has operators, so it needs brackets beside other operators
	tight    bool    // it stands beside an operator, so loose code in its place needs brackets
}

// change replaces the text between two places of a file.
type change struct {
	from, to int
	text     string
}

// expression returns the innermost value of the node.
func (n *node) expression() *node {
	for n.value != nil {
		n = n.value
	}
	return n
}

// part returns the part with the given path.
func (n *node) part(path []int) (*node, error) {
	for _, i := range path {
		at := n
		for ; i == 0 && at.zero == nil && at.value != nil || i > 0 && at.value != nil; at = at.value {
		}
		switch {
		case i == 0 && at.zero != nil:
			n = at.zero
		case i > 0 && i <= len(at.parts):
			n = at.parts[i-1]
		default:
			return nil, fmt.Errorf("there is no part %s: part %d of %d", join(path), i, len(at.parts))
		}
	}
	return n, nil
}

func join(path []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(path), " ", "."), "[]")
}

// language has what edits must know of Go or SQL.
type language struct {
	isTrue, isFalse string // formats
	comment         string // how a line with a comment begins
	target          func(text string, line int) (*node, error)
	isLoose         func(code string) bool // whether code has operators outside of brackets
	check           func(was, is string) error
}

const bracketed = "(%s)"

// apply returns the text with the edit made at the target.
func (e edit) apply(text string, target *node, lang language) (string, error) {
	var changes []change
	for _, path := range e.parts {
		n, err := target.part(path)
		if err != nil {
			return "", err
		}
		c, err := e.change(text, n, lang)
		if err != nil {
			return "", err
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b change) int { return b.from - a.from })
	was := text
	for i, c := range changes {
		if i > 0 && c.to > changes[i-1].from {
			return "", errors.New("its parts overlap")
		}
		text = text[:c.from] + c.text + text[c.to:]
	}
	if text == was {
		return "", errors.New("the edit changes nothing")
	}
	return text, nil
}

func (e edit) change(text string, n *node, lang language) (change, error) {
	if e.verb == "remove" {
		return n.removed, nil
	}
	if e.verb != "do" {
		n = n.expression()
	}
	c := change{from: n.from, to: n.to}
	was := text[n.from:n.to]
	switch e.verb {
	case "true":
		c.text = fmt.Sprintf(lang.isTrue, was)
	case "false":
		c.text = fmt.Sprintf(lang.isFalse, was)
	default:
		var err error
		c.text = reference.ReplaceAllStringFunc(e.code, func(ref string) string {
			if ref == "<@" || ref == "@>" || ref == "@@" { // operators of SQL
				return ref
			}
			p := n
			if ref != "@" {
				part, partErr := n.part(parsePart(ref[1:]))
				if partErr != nil {
					err = partErr
					return ref
				}
				p = part
			}
			if p.loose && ref != e.code {
				return fmt.Sprintf(bracketed, text[p.from:p.to])
			}
			return text[p.from:p.to]
		})
		if err != nil {
			return c, err
		}
		if e.verb == "=" && n.tight && lang.isLoose(c.text) {
			c.text = fmt.Sprintf(bracketed, c.text)
		}
	}
	return c, nil
}

var reference = regexp.MustCompile(`<@|@>|@@|@(\d+(\.\d+)*)?`)
