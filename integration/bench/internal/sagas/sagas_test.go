package sagas

import (
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// The saga gets the reply to each of its commands, as the work by hand does: a process ends after its
// last step.
func TestAProcessEndsAfterItsSteps(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	st, err := WithSaga(t.Context(), pool, "postroom", []byte(`"x"`), 1)
	if err != nil {
		t.Fatal(err)
	}
	for range steps + 1 {
		if err := st.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var instances, done, commands int
	err = pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM postroom.saga), (SELECT count(*) FROM postroom.saga WHERE state = 'done'),
		(SELECT count(*) FROM postroom.outbox WHERE type = $1)`, command).Scan(&instances, &done, &commands)
	if err != nil || instances != 1 || done != 1 || commands != steps {
		t.Errorf("%d instances, %d done, %d commands, %v: want one that is done, and %d commands", instances, done, commands, err, steps)
	}
}
