package schema_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/postroom/postroom/schema"
)

// plainName repeats the rule in another form on purpose, so that the test finds a mistake in the
// package's expression.
var plainName = regexp.MustCompile(`\A[abcdefghijklmnopqrstuvwxyz_][abcdefghijklmnopqrstuvwxyz_0123456789]{0,62}\z`)

var rejectedNames = []struct{ name, given string }{
	{"upper case", "Postroom"},
	{"digit first", "1postroom"},
	{"hyphen", "post-room"},
	{"dot", "post.room"},
	{"space", "post room"},
	{"leading space", " postroom"},
	{"trailing newline", "postroom\n"},
	{"leading newline", "\npostroom"},
	{"NUL", "postroom\x00"},
	{"64 bytes", strings.Repeat("a", 64)},
	{"letter beyond ASCII", "poströom"},
	{"letter that folds to ASCII", "postroo\u212a"}, // Kelvin sign
	{"invalid UTF-8", "post\xffroom"},
	{"PostgreSQL's own prefix", "pg_postroom"},
	{"PostgreSQL's catalogue", "pg_catalog"},
	{"the information schema", "information_schema"},
	{"closing quote", `x"; DROP SCHEMA public CASCADE; --`},
	{"closing apostrophe", `x'; DROP SCHEMA public CASCADE; --`},
	{"statement", "x; DROP SCHEMA public"},
	{"comment", "x--"},
	{"block comment", "x/**/"},
	{"dollar quote", "x$$"},
	{"reference of the replacement", "x$1"},
	{"backslash", `x\`},
	{"parameter", "$1"},
}

func TestName(t *testing.T) {
	for _, tt := range rejectedNames {
		t.Run("ErrInvalidName/"+tt.name, func(t *testing.T) {
			if got, err := schema.Name(tt.given); !errors.Is(err, schema.ErrInvalidName) || got != "" {
				t.Errorf("Name(%q) = %q, %v, want ErrInvalidName", tt.given, got, err)
			}
			if _, err := schema.Migrations(tt.given); !errors.Is(err, schema.ErrInvalidName) {
				t.Errorf("Migrations(%q) = %v, want ErrInvalidName", tt.given, err)
			}
			if _, err := schema.Print(tt.given); !errors.Is(err, schema.ErrInvalidName) {
				t.Errorf("Print(%q) = %v, want ErrInvalidName", tt.given, err)
			}
		})
	}
	accepted := []struct{ name, given, want string }{
		{"empty means the default", "", schema.DefaultName},
		{"the default", "postroom", "postroom"},
		{"digits and underscores", "_shop_2", "_shop_2"},
		{"63 bytes", strings.Repeat("a", 63), strings.Repeat("a", 63)},
		{"a keyword, which is quoted", "select", "select"},
	}
	for _, tt := range accepted {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := schema.Name(tt.given); err != nil || got != tt.want {
				t.Errorf("Name(%q) = %q, %v, want %q", tt.given, got, err, tt.want)
			}
		})
	}
}

// If a name is refused, no statement is sent to the database.
func TestInvalidNameReachesNoDatabase(t *testing.T) {
	const given = `x"; DROP SCHEMA public CASCADE; --`
	calls := map[string]func() error{
		"Migrate": func() error { _, err := schema.Migrate(t.Context(), nil, given); return err },
		"Status":  func() error { _, err := schema.Status(t.Context(), nil, given); return err },
		"Require": func() error { return schema.Require(t.Context(), nil, given) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, schema.ErrInvalidName) {
				t.Errorf("%s = %v, want ErrInvalidName", name, err)
			}
		})
	}
}

func TestIn(t *testing.T) {
	tests := []struct{ name, schema, sql, want string }{
		{"default stays as it is", "postroom", "SELECT FROM postroom.outbox", "SELECT FROM postroom.outbox"},
		{"before a dot", "shop", "SELECT FROM postroom.outbox", `SELECT FROM "shop".outbox`},
		{"end of a statement", "shop", "CREATE SCHEMA postroom;", `CREATE SCHEMA "shop";`},
		{"in a string", "shop", "to_regnamespace('postroom')", `to_regnamespace('"shop"')`},
		{"twice", "shop", "postroom.a, postroom.b", `"shop".a, "shop".b`},
		{"not within another name", "shop", "SELECT FROM my_postroom.outbox", "SELECT FROM my_postroom.outbox"},
		{"not within a word", "shop", "postroom-logged-at, postroomtest.x", "postroom-logged-at, postroomtest.x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := schema.In(tt.schema, tt.sql); got != tt.want {
				t.Errorf("In(%q, %q) = %q, want %q", tt.schema, tt.sql, got, tt.want)
			}
		})
	}
	for _, tt := range append(rejectedNames, struct{ name, given string }{"empty", ""}) {
		t.Run("panics/"+tt.name, func(t *testing.T) {
			if sql, ok := in(tt.given, "SELECT FROM postroom.outbox"); ok {
				t.Errorf("In(%q) = %q, want a panic", tt.given, sql)
			}
		})
	}
}

// in calls In and reports whether it returned.
func in(name, sql string) (got string, ok bool) {
	defer func() { _ = recover() }()
	return schema.In(name, sql), true
}

func FuzzName(f *testing.F) {
	for _, tt := range rejectedNames {
		f.Add(tt.given)
	}
	f.Add("")
	f.Add("shop")
	f.Fuzz(func(t *testing.T, given string) {
		plain := plainName.MatchString(given) && !strings.HasPrefix(given, "pg_") && given != "information_schema"

		got, err := schema.Name(given)
		switch {
		case err == nil && !plainName.MatchString(got):
			t.Errorf("Name(%q) = %q, which is no plain name", given, got)
		case err == nil && given != "" && (!plain || got != given):
			t.Errorf("Name(%q) = %q, want ErrInvalidName", given, got)
		case err != nil && plain:
			t.Errorf("Name(%q) = %v, want the name", given, err)
		case err != nil && !errors.Is(err, schema.ErrInvalidName):
			t.Errorf("Name(%q) = %v, want ErrInvalidName", given, err)
		}

		sql, ok := in(given, "SELECT FROM postroom.outbox;")
		if ok != plain {
			t.Errorf("In(%q) returned = %t, want %t", given, ok, plain)
		}
		if want := `SELECT FROM "` + given + `".outbox;`; ok && given != schema.DefaultName && sql != want {
			t.Errorf("In(%q) = %q, want %q", given, sql, want)
		}
	})
}
