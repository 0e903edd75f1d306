package doctor_test

import (
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
)

// While a relay catches up with late events, the doctor says that it is behind.
func TestTheDoctorSeesWhatARelayCatchesUpWith(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.outbox (digest, event_id, source, type, subject, data) VALUES (decode(repeat('00', 16), 'hex'), 'a', '/shop', 'a', 'a', '')")
	exec(t, pool, "UPDATE postroom.relay SET high = 1, snap = '1:1:', catch_up_snap = pg_current_snapshot(), epoch = 1, expires_at = clock_timestamp()")
	wantOne(t, examine(t, pool, devtest.NATS(t), doctor.Config{}), "relay", doctor.Fault, "and events wait")
}
