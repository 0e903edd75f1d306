package schema_test

import (
	"context"
	"fmt"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// A deployment step brings the tables up to date. It says what it applied: here nothing, as
// the database is up to date.
func ExampleMigrate() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx := context.Background()

	applied, err := schema.Migrate(ctx, servers.Pool, schema.DefaultName)
	fmt.Println(len(applied), err)
	fmt.Println(schema.Require(ctx, servers.Pool, schema.DefaultName)) // what programs ask when they start
	// Output:
	// 0 <nil>
	// <nil>
}
