package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The texts with which edits change conditions.
const (
	sqlTrue  = "(true OR (%s))"
	sqlFalse = "(false AND (%s))"
)

var inSQL = language{
	isTrue: sqlTrue, isFalse: sqlFalse, comment: "--", target: sqlTarget,
	isLoose: func(code string) bool {
		f := readSQL(code)
		return f.isLoose(0, len(f.tokens))
	},
	check: func(was, is string) error {
		has := parametersOf(is)
		for parameter := range parametersOf(was) {
			if !has[parameter] {
				return fmt.Errorf("it leaves out %s, so the server refuses the statement, and any test notices that; keep the parameter, as in %s IS NOT NULL", parameter, parameter)
			}
		}
		return nil
	},
}

// parametersOf returns the parameters of a statement.
func parametersOf(text string) map[string]bool {
	all := make(map[string]bool)
	for _, t := range readSQL(text).tokens {
		if len(t.word) > 1 && t.word[0] == '$' && t.word[1] >= '0' && t.word[1] <= '9' {
			all[t.word] = true
		}
	}
	return all
}

// sqlFile is a SQL file in which an edit is to be made.
type sqlFile struct {
	text   string
	tokens []sqlToken
}

// sqlToken is a word, an operator, a text or a bracket.
type sqlToken struct {
	from, to int
	word     string // in capitals
}

var sqlTokens = regexp.MustCompile(`--[^\n]*|(?s:/\*.*?\*/)|[Ee]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"[^"]*"|\$\d+|\$\w*\$|[A-Za-z_]\w*|\d[\w.]*|::|<>|<=|>=|:=|=>|->>|->|#-|@>|<@|\|\||\S`)

func readSQL(text string) *sqlFile {
	f := &sqlFile{text: text}
	for _, m := range sqlTokens.FindAllStringIndex(text, -1) {
		if word := text[m[0]:m[1]]; !strings.HasPrefix(word, "--") && !strings.HasPrefix(word, "/*") {
			f.tokens = append(f.tokens, sqlToken{m[0], m[1], strings.ToUpper(word)})
		}
	}
	return f
}

// isLoose reports whether the tokens from i to j-1 are an expression with operators outside of
// brackets.
func (f *sqlFile) isLoose(i, j int) bool {
	if i >= j || f.find(i, j, slices.Concat([]string{","}, heads, tails)...) >= 0 {
		return false
	}
	return f.find(i, j, slices.Concat([]string{"AND", "OR"}, slices.Concat(operators...))...) >= 0
}

// sqlTarget returns the clause that begins on a line of a SQL file. The clause ends with the line,
// or where the brackets close that it opens, and before the bracket that it does not open.
func sqlTarget(text string, line int) (*node, error) {
	f := readSQL(text)
	begins := 0 // of the line
	for range line - 1 {
		begins += strings.Index(text[begins:], "\n") + 1
	}
	ends := len(text)
	if i := strings.Index(text[begins:], "\n"); i >= 0 {
		ends = begins + i
	}
	i := slices.IndexFunc(f.tokens, func(t sqlToken) bool { return t.from >= begins })
	if i < 0 || f.tokens[i].from >= ends {
		return nil, errors.New("no code is on the line below the marker")
	}
	j := i
	for j < len(f.tokens) && f.tokens[j].from < ends && f.tokens[j].word != ";" && !closes(f.tokens[j].word) {
		j = min(f.end(j), len(f.tokens))
	}
	for j > i+1 && slices.Contains([]string{",", "THEN", "AND", "OR"}, f.tokens[j-1].word) {
		j--
	}
	if i == j {
		return nil, errors.New("the line below the marker has no code that can be changed")
	}
	n := f.node(i, j)
	n.removed = change{from: n.from, to: n.to}
	before, behind := "", ""
	if i > 0 {
		before = f.tokens[i-1].word
	}
	if j < len(f.tokens) {
		behind = f.tokens[j].word
	}
	switch {
	case behind == ",", behind == ";" && (before == "" || before == ";"):
		n.removed.to = f.tokens[j].to
	case before == ",":
		n.removed.from = f.tokens[i-1].from
	}
	return n, nil
}

func opens(word string) bool  { return word == "(" || word == "[" || word == "CASE" }
func closes(word string) bool { return word == ")" || word == "]" }

// end returns the index behind a token, or behind what the token opens.
func (f *sqlFile) end(i int) int {
	depth := 0
	for ; i < len(f.tokens); i++ {
		switch word := f.tokens[i].word; {
		case opens(word):
			depth++
		case closes(word), word == "END" && depth > 0:
			depth--
		}
		if depth <= 0 {
			return i + 1
		}
	}
	return i
}

// find returns the index of the first token that is outside of brackets and one of the words.
func (f *sqlFile) find(i, j int, words ...string) int {
	for ; i < j; i = f.end(i) {
		if slices.Contains(words, f.tokens[i].word) {
			return i
		}
	}
	return -1
}

// Words that begin a clause. The clauses that come first in heads are those that an edit means.
var (
	heads = []string{"WHERE", "ON", "HAVING", "IF", "ELSIF", "WHEN", "SET", "SELECT", "RETURNING"}
	tails = []string{"FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FOR", "RETURNING", "UNION", "JOIN", "LEFT", "CROSS", "THEN", "LOOP", "ON"}
)

// node describes the tokens from i to j-1.
func (f *sqlFile) node(i, j int) *node {
	n := &node{from: f.tokens[i].from, to: f.tokens[j-1].to, loose: f.isLoose(i, j)}
	if from, to := f.value(i, j); from < to {
		n.value = f.node(from, to)
	} else {
		n.parts = f.parts(i, j)
	}
	return n
}

// value returns the tokens of the expression that stands for the tokens from i to j-1. There may be
// no such expression.
func (f *sqlFile) value(i, j int) (from, to int) {
	switch word := f.tokens[i].word; {
	case word == "(" && f.end(i) == j:
		return i + 1, j - 1
	case slices.Contains([]string{"AND", "OR", "THEN", "ELSE"}, word):
		return i + 1, j
	}
	for _, head := range heads {
		k := f.find(i, j, head)
		if k < 0 || k+1 >= j || head == "ON" && slices.Contains([]string{"CONFLICT", "DELETE", "UPDATE"}, f.tokens[k+1].word) {
			continue
		}
		if end := f.find(k+1, j, tails...); end > k+1 {
			return k + 1, end
		}
		return k + 1, j
	}
	if j-i > 2 && f.tokens[j-2].word == "AS" && f.find(i, j, ",") < 0 {
		return i, j - 2
	}
	return 0, 0
}

// Operators that compare or compute. The ones that bind least come first.
var operators = [][]string{{"=", "<>", "<", ">", "<=", ">=", ":=", "IS", "IN", "LIKE", "~", "@>", "?"}, {"+", "-", "||", "#-"}, {"*", "/"}, {"::"}}

// parts returns the parts of an expression.
func (f *sqlFile) parts(i, j int) []*node {
	for _, logic := range []struct{ word, without string }{{"OR", sqlFalse}, {"AND", sqlTrue}} {
		all := f.split(i, j, logic.word)
		if f.find(i, j, ",") >= 0 || all == nil {
			continue
		}
		for _, p := range all {
			p.tight = true
			p.removed = change{p.from, p.to, fmt.Sprintf(logic.without, f.text[p.from:p.to])}
		}
		return all
	}
	switch word := f.tokens[i].word; {
	case word == "NOT" && f.find(i, j, ",") < 0:
		n := f.node(i+1, j)
		n.tight = true
		return []*node{n}
	case word == "CASE" && f.end(i) == j:
		return f.split(i+1, j-1, "WHEN", "THEN", "ELSE")
	}
	for _, words := range append([][]string{{","}}, operators...) {
		all := f.split(i, j, words...)
		for k, p := range all {
			p.tight = words[0] != ","
			p.removed = change{from: p.from, to: p.to}
			if k > 0 {
				p.removed.from = all[k-1].to
			} else if len(all) > 1 {
				p.removed.to = all[1].from
			}
		}
		if all != nil {
			return all
		}
	}
	k := f.find(i, j, "(")
	if k <= i || f.end(k) != j || k+2 > j-1 {
		return nil
	}
	// A call, or a word with a subquery. A call has its arguments as parts.
	inside := f.node(k+1, j-1)
	if f.find(k+1, j-1, ",") >= 0 && inside.value == nil {
		return inside.parts
	}
	return []*node{inside}
}

// split returns what is between the words, if there is at least one.
func (f *sqlFile) split(i, j int, words ...string) (all []*node) {
	var cuts []int
	between := false
	for k := i; k < j; k = f.end(k) {
		switch at := f.tokens[k].word; {
		case at == "BETWEEN":
			between = true
		case at == "AND" && between:
			between = false
		case slices.Contains(words, at):
			cuts = append(cuts, k)
		}
	}
	if len(cuts) == 0 {
		return nil
	}
	for _, cut := range append(cuts, j) {
		if i < cut {
			all = append(all, f.node(i, cut))
		}
		i = cut + 1
	}
	return all
}
