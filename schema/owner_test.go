package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// If a role may not migrate, the error names the role that may, and not the rights that an operator
// needs.
func TestMigrateByARoleWithoutRights(t *testing.T) {
	t.Parallel()
	as, role := devtest.RolePool(t, devtest.EmptyPool(t))
	_, err := schema.Migrate(t.Context(), as, "")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" || !strings.Contains(err.Error(), "TO "+role) || strings.Contains(err.Error(), "grant_") {
		t.Errorf("Migrate = %v, want 42501 with 'GRANT CREATE ON DATABASE … TO %s'", err, role)
	}
}
