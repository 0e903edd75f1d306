package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// Statements on a user's pool have the search path of the user. PostgreSQL looks for functions and
// operators in pg_catalog first. But it prefers a function whose types of arguments are exactly
// those of the call, in whichever schema of the path it is. So a role that may create in a schema
// of the path could have its function run by another role. This test is that role: for each call of
// a function and each operator, it creates the function that would fit best. No statement may use
// it. If one does, write pg_catalog.f(…) or OPERATOR(pg_catalog.=), or give the arguments exactly
// the types that the function in pg_catalog has.
//
// The role can still make some statements fail: if it creates an operator for two values of jsonb,
// then the server takes the text in details -> 'saga' for JSON, and refuses it.
func TestStatementsUseOnlyTheServersFunctions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	intruder, role := devtest.RolePool(t, pool)
	// The role has a grant, so it may use the schema of Postroom.
	const rights = "CREATE SCHEMA trap AUTHORIZATION %[1]s; CREATE SCHEMA lure AUTHORIZATION %[1]s; SELECT postroom.grant_operator('%[1]s')"
	if _, err := pool.Exec(t.Context(), fmt.Sprintf(rights, role)); err != nil {
		t.Fatal(err)
	}
	s := &server{T: t, conn: plainConn(t, pool), intruder: plainConn(t, intruder), laid: map[string]bool{}}
	all := append(libraryStatements(t), s.functions()...)
	if len(all) < 280 {
		t.Fatalf("only %d statements were found", len(all))
	}
	var calls []call
	for _, st := range all {
		calls = append(calls, s.calls(st)...)
	}
	for _, c := range calls {
		s.lay(c)
	}
	if len(s.laid) < 300 {
		t.Fatalf("there are only %d traps", len(s.laid))
	}
	for _, st := range all {
		if err := s.compile(st, "trap"); err != nil {
			t.Errorf("%s: it can be made to use a function that makes it fail: %v", st.name, err)
		} else if caught := s.caught(); len(caught) > 0 {
			t.Errorf("%s: it can be made to use %s", st.name, strings.Join(caught, ", "))
		}
		if err := s.compile(st, "lure"); err != nil {
			continue
		} else if caught := s.caught(); len(caught) > 0 {
			t.Errorf("%s: it can be made to use %s; give the parameter a type", st.name, strings.Join(caught, ", "))
		}
	}
}

// plainConn returns a connection that prepares nothing by itself.
func plainConn(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	cfg := pool.Config().ConnConfig
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// A statement has the types of its parameters if it does not itself say what they are.
type statement struct{ name, sql, types string }

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)
	sqlEnd     = regexp.MustCompile(`;\s*(\n|$)`)
	sqlQuery   = regexp.MustCompile(`(?i)^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)
	sqlCallers = regexp.MustCompile(`(?s)-- Called\s+by (.*?)\n(?:[^-]|--\S|$)`)
	sqlCaller  = regexp.MustCompile(`\b(?:Log|Term)\.\w+`)
)

// libraryStatements returns the statements of the library's packages and of the command line.
func libraryStatements(t *testing.T) (all []statement) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"examples", "integration", "bin", ".git"}, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".sql" || strings.HasPrefix(path, "../schema/sql/") {
			return nil // migrations set the search path
		}
		text, err := os.ReadFile(path)
		if err != nil || isOfTerm(path, string(text)) {
			return err
		}
		for _, sql := range sqlEnd.Split(sqlComment.ReplaceAllString(string(text), ""), -1) {
			if sqlQuery.MatchString(sql) {
				all = append(all, statement{name: path, sql: sql})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// isOfTerm reports whether a statement runs only on the connections of a relay's term, which have
// their own search path (internal/pglog/sql/connect.sql).
func isOfTerm(path, text string) bool {
	callers := sqlCallers.FindStringSubmatch(text)
	if !strings.HasPrefix(path, "../internal/pglog/") || callers == nil {
		return false
	}
	names := sqlCaller.FindAllString(callers[1], -1)
	onPool := func(name string) bool {
		return name == "Term.Confirm" || strings.HasPrefix(name, "Log.") && (name != "Log.Lead" || strings.HasSuffix(path, "/lease_free.sql"))
	}
	return len(names) > 0 && !slices.ContainsFunc(names, onPool)
}

// server is a PostgreSQL server, with one connection of the role whose statements are examined, and
// one of the role that lays traps in the schemas trap and lure.
type server struct {
	*testing.T

	conn, intruder *pgx.Conn
	laid           map[string]bool
}

// functions returns the functions of the schema that are in SQL and have their caller's search path.
func (s *server) functions() []statement {
	s.Helper()
	rows, _ := s.conn.Query(s.Context(), `SELECT proname::text, prosrc, (SELECT coalesce(string_agg(format_type(a.typ, NULL), ', ' ORDER BY a.n), '') FROM unnest(proargtypes) WITH ORDINALITY AS a (typ, n))
		FROM pg_proc JOIN pg_language l ON l.oid = prolang WHERE pronamespace = 'postroom'::regnamespace AND lanname = 'sql' AND prosqlbody IS NULL AND proconfig IS NULL`)
	var all []statement
	var st statement
	if _, err := pgx.ForEachRow(rows, []any{&st.name, &st.sql, &st.types}, func() error {
		all = append(all, st)
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	return all
}

// compile makes the server parse a statement with a search path, and keep the result as the body of
// the function public.compiled.
func (s *server) compile(st statement, path string) error {
	ctx := s.Context()
	if st.types == "" {
		if _, err := s.conn.Exec(ctx, "SET search_path = "+path+"; PREPARE st AS "+st.sql); err != nil {
			return err
		}
		s.scan(&st.types, "SELECT array_to_string(parameter_types, ', ') FROM pg_prepared_statements WHERE name = 'st'")
		if _, err := s.conn.Exec(ctx, "DEALLOCATE st"); err != nil {
			return err
		}
	}
	_, err := s.conn.Exec(ctx, fmt.Sprintf("SET search_path = pg_catalog; DROP FUNCTION IF EXISTS public.compiled; SET search_path = %s; CREATE FUNCTION public.compiled(%s) RETURNS void BEGIN ATOMIC %s; END",
		path, st.types, st.sql))
	return err
}

// scan runs a query for one row. The query uses only functions of the server.
func (s *server) scan(to any, sql string, args ...any) {
	s.Helper()
	if _, err := s.conn.Exec(s.Context(), "SET search_path = pg_catalog"); err != nil {
		s.Fatal(err)
	}
	if err := s.conn.QueryRow(s.Context(), fmt.Sprintf(sql, args...)).Scan(to); err != nil {
		s.Fatalf(sql+": %v", append(args, err)...)
	}
}

// call is a call of a function, or the use of an operator.
type call struct {
	oid, result   string
	operator, set bool
	arguments     []argument
}

// argument is an argument with its type before a conversion that the statement does not ask for.
type argument struct {
	typ   string
	loose bool // it is a literal or a parameter, which may have no type in the statement
	param bool
}

// calls returns the calls of a statement.
func (s *server) calls(st statement) (all []call) {
	s.Helper()
	if err := s.compile(st, "pg_catalog"); err != nil {
		s.Fatalf("%s: %v", st.name, err)
	}
	var tree string
	s.scan(&tree, "SELECT prosqlbody::text FROM pg_proc WHERE oid = 'public.compiled'::regproc")
	(&nodes{text: tree}).read().visit(func(n *node) {
		switch n.kind {
		case "FUNCEXPR":
			if n.word("funcformat") == "0" { // 1 and 2 are casts, 3 is special syntax, which means pg_catalog
				all = append(all, call{oid: n.word("funcid"), result: n.word("funcresulttype"), set: n.word("funcretset") == "true", arguments: s.arguments(n.list("args"))})
			}
		case "AGGREF":
			all = append(all, call{oid: n.word("aggfnoid"), result: n.word("aggtype"), arguments: s.arguments(append(slices.Clone(n.list("aggdirectargs")), n.list("args")...))})
		case "WINDOWFUNC":
			all = append(all, call{oid: n.word("winfnoid"), result: n.word("wintype"), arguments: s.arguments(n.list("args"))})
		case "OPEXPR", "DISTINCTEXPR", "NULLIFEXPR":
			all = append(all, call{oid: n.word("opno"), result: n.word("opresulttype"), operator: true, arguments: s.arguments(n.list("args"))})
		case "SCALARARRAYOPEXPR":
			c := call{oid: n.word("opno"), result: boolean, operator: true, arguments: s.arguments(n.list("args"))}
			s.scan(&c.arguments[1].typ, "SELECT typelem::text FROM pg_type WHERE oid = %s", c.arguments[1].typ)
			all = append(all, c)
		case "ROWCOMPAREEXPR":
			for i, op := range n.list("opnos")[1:] { // the first element is the letter o
				all = append(all, call{oid: op.kind, result: boolean, operator: true, arguments: s.arguments([]*node{n.list("largs")[i], n.list("rargs")[i]})})
			}
		}
	})
	return all
}

func (s *server) arguments(list []*node) (all []argument) {
	s.Helper()
	for _, n := range list {
		if n.kind == "TARGETENTRY" {
			n = n.only("expr")
		}
		for n.isImplicitCast() {
			if n.kind == "FUNCEXPR" {
				n = n.list("args")[0]
			} else {
				n = n.only("arg")
			}
		}
		a := argument{typ: s.typeOf(n), loose: n.kind == "CONST" || n.kind == "PARAM", param: n.kind == "PARAM"}
		if a.typ == unknown {
			a.typ = text
		}
		all = append(all, a)
	}
	return all
}

// lay creates the functions that fit a call best: with the types that its arguments have, and with
// text for each argument that has no type of its own. In the schema lure it creates the operators
// that have the type of the other argument for a parameter.
func (s *server) lay(c call) {
	s.Helper()
	var exact, texts []string
	for _, a := range c.arguments {
		exact = append(exact, a.typ)
		if a.loose {
			a.typ = text
		}
		texts = append(texts, a.typ)
	}
	s.layOne(c, "trap", exact)
	s.layOne(c, "trap", texts)
	if c.operator && len(exact) == 2 {
		for i, a := range c.arguments {
			if a.param {
				s.layOne(c, "lure", []string{exact[1-i], exact[1-i]})
			}
		}
	}
}

func (s *server) layOne(c call, schema string, types []string) {
	s.Helper()
	key := fmt.Sprint(c.oid, c.operator, schema, types)
	if s.laid[key] {
		return
	}
	s.laid[key] = true
	var name, result string
	catalog, column := "pg_proc", "pro"
	if c.operator {
		catalog, column = "pg_operator", "opr"
	}
	s.scan(&name, "SELECT coalesce((SELECT %[1]sname::text FROM pg_namespace n WHERE n.oid = %[1]snamespace AND nspname = 'pg_catalog'), '') FROM %[2]s WHERE oid = %[3]s", column, catalog, c.oid)
	if name == "" {
		return // it is a function of Postroom's schema
	}
	s.scan(&result, "SELECT CASE WHEN typtype = 'p' THEN 'text' ELSE format_type(oid, NULL) END FROM pg_type WHERE oid = %s", c.result)
	names := make([]string, len(types))
	for i, typ := range types {
		s.scan(&names[i], "SELECT CASE WHEN oid = 'void'::regtype THEN '' ELSE format_type(oid, NULL) END FROM pg_type WHERE oid = %s", typ)
	}
	body := "BEGIN RETURN NULL; END"
	if c.set {
		result, body = "SETOF "+result, "BEGIN RETURN; END"
	}
	function := schema + "." + pgx.Identifier{name}.Sanitize()
	if c.operator {
		function = fmt.Sprintf("%s.operator_%d", schema, len(s.laid))
	}
	sql := fmt.Sprintf("CREATE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql AS '%s'", function, strings.Join(names, ", "), result, body)
	if c.operator {
		left := ""
		if len(names) == 2 {
			left = "LEFTARG = " + names[0] + ", "
		}
		sql += fmt.Sprintf("; CREATE OPERATOR %s.%s (%sRIGHTARG = %s, FUNCTION = %s)", schema, name, left, names[len(names)-1], function)
	}
	_, err := s.intruder.Exec(s.Context(), sql)
	var pg *pgconn.PgError
	switch {
	case err == nil:
	case errors.As(err, &pg) && pg.Code == "42501" && strings.HasPrefix(pg.Message, "permission denied for type"): // a type of Postroom's schema
	case errors.As(err, &pg) && (pg.Code == "42723" || pg.Code == "42601"): // it exists with these types, or no function can have such an argument
	case errors.As(err, &pg) && pg.Code == "0A000": // not in PL/pgSQL
	default:
		s.Errorf("%s: %v", sql, err)
	}
}

// caught returns the traps that the compiled statement uses.
func (s *server) caught() (traps []string) {
	s.Helper()
	s.scan(&traps, `SELECT coalesce(array_agg(DISTINCT pg_describe_object(refclassid, refobjid, refobjsubid)), '{}') FROM pg_depend
		WHERE classid = 'pg_proc'::regclass AND objid = 'public.compiled'::regproc
		  AND (refclassid = 'pg_proc'::regclass AND refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace IN ('trap'::regnamespace, 'lure'::regnamespace))
		    OR refclassid = 'pg_operator'::regclass AND refobjid IN (SELECT oid FROM pg_operator WHERE oprnamespace IN ('trap'::regnamespace, 'lure'::regnamespace)))`)
	return traps
}

// Types of the server, by their numbers.
const (
	boolean = "16"
	text    = "25"
	unknown = "705"
)

// typeOf returns the type of an expression.
func (s *server) typeOf(n *node) string {
	s.Helper()
	for _, field := range []string{
		"vartype", "consttype", "paramtype", "funcresulttype", "aggtype", "wintype", "opresulttype", "resulttype",
		"casetype", "coalescetype", "minmaxtype", "array_typeid", "refrestype", "row_typeid", "typeId", "type",
	} {
		if typ := n.word(field); typ != "" {
			return typ
		}
	}
	switch n.kind {
	case "BOOLEXPR", "NULLTEST", "BOOLEANTEST", "SCALARARRAYOPEXPR", "ROWCOMPAREEXPR":
		return boolean
	case "COLLATEEXPR", "NAMEDARGEXPR":
		return s.typeOf(n.only("arg"))
	case "SUBLINK":
		const scalar, array = "4", "6"
		switch first := n.only("subselect").list("targetList")[0]; n.word("subLinkType") {
		case scalar:
			return s.typeOf(first.only("expr"))
		case array:
			var typ string
			s.scan(&typ, "SELECT typarray::text FROM pg_type WHERE oid = %s", s.typeOf(first.only("expr")))
			return typ
		}
		return boolean
	}
	s.Fatalf("the type of %s is not known", n.kind)
	return ""
}

// node is a node of a parsed statement, as the server writes it; or a list, with the kind (; or a
// word, which is its own kind.
type node struct {
	kind   string
	fields map[string][]*node
	order  []string
}

func (n *node) word(field string) string {
	if v := n.fields[field]; len(v) > 0 {
		return v[0].kind
	}
	return ""
}

func (n *node) only(field string) *node { return n.fields[field][0] }

// list returns the elements of a field that is a list, and none if it is empty.
func (n *node) list(field string) []*node {
	if v := n.fields[field]; len(v) > 0 {
		return v[0].fields[""]
	}
	return nil
}

func (n *node) visit(do func(n *node)) {
	do(n)
	for _, field := range n.order {
		for _, child := range n.fields[field] {
			child.visit(do)
		}
	}
}

// isImplicitCast reports whether the server added the node by itself.
func (n *node) isImplicitCast() bool {
	format := map[string]string{
		"RELABELTYPE": "relabelformat", "COERCEVIAIO": "coerceformat", "ARRAYCOERCEEXPR": "coerceformat",
		"COERCETODOMAIN": "coercionformat", "FUNCEXPR": "funcformat",
	}[n.kind]
	return format != "" && n.word(format) == "2"
}

// nodes reads the text of a tree.
type nodes struct {
	text string
	at   int
}

func (p *nodes) read() *node {
	switch word := p.token(); word {
	case "(":
		n := &node{kind: word, fields: map[string][]*node{"": nil}, order: []string{""}}
		for p.peek() != ')' {
			n.fields[""] = append(n.fields[""], p.read())
		}
		p.at++
		return n
	case "{":
		n := &node{kind: p.token(), fields: map[string][]*node{}}
		for field := ""; ; {
			switch p.peek() {
			case '}':
				p.at++
				return n
			case ':':
				field = strings.TrimPrefix(p.token(), ":")
				n.order = append(n.order, field)
			default:
				n.fields[field] = append(n.fields[field], p.read())
			}
		}
	default:
		return &node{kind: word}
	}
}

func (p *nodes) peek() byte {
	for p.text[p.at] == ' ' || p.text[p.at] == '\n' {
		p.at++
	}
	return p.text[p.at]
}

func (p *nodes) token() string {
	first := p.peek()
	from := p.at
	switch first {
	case '(', '{':
		p.at++
		return p.text[from:p.at]
	case '"':
		for p.at++; p.text[p.at] != '"'; p.at++ {
			if p.text[p.at] == '\\' {
				p.at++
			}
		}
		p.at++
		return strconv.Quote(p.text[from:p.at])
	}
	for ; !strings.ContainsRune(" \n(){}", rune(p.text[p.at])); p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	return p.text[from:p.at]
}
