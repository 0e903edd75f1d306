package outbox

import (
	"embed"

	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. A field is
// named after its file.
type statements struct {
	write, digest, conflict  string
	lead, restored, sequence string
	pass, gather, pending    string
	record, renew, release   string
}

// load returns the statements for the schema of the given name; a name that
// schema.Name accepted.
func load(name string) statements {
	read := func(file string) string {
		text, err := files.ReadFile("sql/" + file + ".sql")
		if err != nil {
			panic(err) // embedded: the file is missing from the source tree
		}
		return schema.In(name, string(text))
	}
	return statements{
		write: read("write"), digest: read("digest"), conflict: read("conflict"),
		lead: read("lead"), restored: read("restored"), sequence: read("sequence"),
		pass: read("pass"), gather: read("gather"), pending: read("pending"),
		record: read("record"), renew: read("renew"), release: read("release"),
	}
}
