package inbox

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/decide.sql
	decideSQL string
	//go:embed sql/decided.sql
	decidedSQL string
	//go:embed sql/instance.sql
	instanceSQL string
)

// statements are the statements of this package, for one schema.
type statements struct{ begin, decide, decided, instance string }

func load(name string) statements {
	return statements{
		begin: schema.In(name, beginSQL), decide: schema.In(name, decideSQL),
		decided: schema.In(name, decidedSQL), instance: schema.In(name, instanceSQL),
	}
}
