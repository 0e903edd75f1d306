package postroom_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const configurationFile = "docs/reference/configuration.md"

// configured are the structs that users fill in, in the order of the page.
var configured = []struct{ dir, name string }{
	{"outbox", "Config"},
	{"relay", "Config"},
	{"inbox", "Config"},
	{"inbox", "Subscription"},
	{"idempotency", "Config"},
	{"idempotency", "Route"},
	{"idempotency", "KeyFormat"},
	{"idempotency", "Operation"},
	{"outbound", "Config"},
	{"outbound", "Budget"},
	{"outbound", "Breaker"},
	{"webhook", "Config"},
	{"webhook", "HMAC"},
	{"webhook", "SenderConfig"},
	{"webhook", "EndpointsConfig"},
	{"saga", "Definition"},
	{"saga", "Step"},
	{"saga", "StoreConfig"},
	{"deadletter", "Config"},
	{"deadletter", "ReplayOptions"},
	{"inspect", "Config"},
	{"doctor", "Config"},
	{"postmill", "PublisherConfig"},
	{"postmill", "SubscriberConfig"},
	{"postmill", "RelayConfig"},
}

// docs/reference/configuration.md has every setting with its doc comment. make api writes it.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# Configuration\n\nEvery setting, from the documentation of its field. The zero value of each struct works, except for\n" +
		"the fields that say \"required\". `make api` writes this page.\n")
	for _, c := range configured {
		writeSettings(t, &page, c.dir, c.name)
	}
	if os.Getenv(updateVariable) == "1" {
		if err := os.WriteFile(configurationFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(configurationFile); err != nil || string(got) != page.String() {
		t.Errorf("%s differs from the fields (%v): make api writes it", configurationFile, err)
	}
}

func writeSettings(t *testing.T, page *strings.Builder, dir, name string) {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files, found := token.NewFileSet(), false
	for _, path := range paths {
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				found = true
				fmt.Fprintf(page, "\n## %s.%s\n\n| field | type | what it does |\n| --- | --- | --- |\n", dir, name)
				writeFields(t, page, files, fields)
			}
			return false
		})
	}
	if !found {
		t.Errorf("%s has no struct %s", dir, name)
	}
}

func writeFields(t *testing.T, page *strings.Builder, files *token.FileSet, fields *ast.StructType) {
	t.Helper()
	shared := "" // a comment also applies to the following fields that have none
	for _, field := range fields.Fields.List {
		text := strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
		if text == "" {
			text = shared
		}
		shared = text
		var typ strings.Builder
		if err := printer.Fprint(&typ, files, field.Type); err != nil {
			t.Fatal(err)
		}
		for _, name := range field.Names {
			if name.IsExported() {
				fmt.Fprintf(page, "| `%s` | `%s` | %s |\n", name.Name, strings.Join(strings.Fields(typ.String()), " "), cell(text))
			}
		}
	}
}

// cell returns documentation as the cell of a table.
func cell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	text = docLink.ReplaceAllString(text, "`$1`")
	if before, after, found := strings.Cut(text, "Defaults to "); found {
		text = before + "**Default:** " + after
	}
	return text
}
