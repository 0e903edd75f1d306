-- Record which events are published, as the leader of epoch $1, and make the lease last for $6 from
-- now. $7 has the positions of the streams. The statement changes no row if another epoch began.
--
-- If $5 is NULL, the column pending stays as it is: the relay catches up with it, and only $9 and $10
-- change. The server does not write an unchanged value again, however large it is.
--
-- If the recording has other changes, their statements follow in the same transaction. Each of them
-- checks the epoch itself. The row of relay stays locked until the transaction ends.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Term.Record.
UPDATE postroom.relay
SET high = $2, floor = $3, snap = $4::pg_snapshot, pending = coalesce($5::int8multirange, pending),
    expires_at = clock_timestamp() + $6::interval, lease = $6::interval, streams = $7::jsonb,
    catch_up_snap = $8::pg_snapshot, catch_up_passed = $9, catch_up_open = $10::int8multirange
--guard:epoch-check true
--planted:recording-without-the-epoch true
WHERE epoch = $1;
