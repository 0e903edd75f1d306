package house

import (
	"fmt"
	"go/ast"
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
	{"webhook", "ReceiverConfig"},
	{"webhook", "HMAC"},
	{"webhook", "SenderConfig"},
	{"webhook", "EndpointsConfig"},
	{"saga", "Definition"},
	{"saga", "Step"},
	{"saga", "StoreConfig"},
	{"deadletter", "Config"},
	{"deadletter", "ReplayOptions"},
	{"postmill", "PublisherConfig"},
	{"postmill", "SubscriberConfig"},
	{"postmill", "BrokerConfig"},
}

// docs/reference/configuration.md has every setting with its doc comment. make api writes it.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# Configuration\n\nEvery setting, from the documentation of its field. The zero value of each struct works, except for\n" +
		"the fields that say \"required\". `make api` writes this page.\n")
	for _, c := range configured {
		fmt.Fprintf(&page, "\n## %s.%s\n\n| field | type | what it does |\n| --- | --- | --- |\n", c.dir, c.name)
		for _, s := range settings(t, c.dir, c.name) {
			fmt.Fprintf(&page, "| `%s` | `%s` | %s |\n", s.name, s.typ, cell(s.text))
		}
	}
	generated(t, configurationFile, page.String())
}

// A setting is an exported field of a struct that users fill in.
type setting struct{ name, typ, text string }

// settings returns the settings of a struct.
func settings(t *testing.T, dir, name string) []setting {
	t.Helper()
	var all []setting
	found := false
	for _, f := range files(t, func(f *file) bool { return isCode(f) && f.dir == dir }) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				found = true
				all = append(all, settingsOf(fields)...)
			}
			return false
		})
	}
	if !found {
		t.Errorf("%s has no struct %s", dir, name)
	}
	return all
}

func settingsOf(fields *ast.StructType) (all []setting) {
	shared := "" // a comment also applies to the following fields that have none
	for _, field := range fields.Fields.List {
		text := strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
		if text == "" {
			text = shared
		}
		shared = text
		for _, name := range field.Names {
			if name.IsExported() {
				all = append(all, setting{name.Name, source(field.Type), text})
			}
		}
	}
	return all
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
