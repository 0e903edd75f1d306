-- Delete published rows from the start of the log, as the leader of epoch $1, in one limited
-- step. It returns no row if another epoch began.
--
-- $2 the seq to begin at: the column next of the previous step, or 0   $3 how long rows are kept,
-- by this database's clock and by the leader's   $4 the latest time that the leader believes
--
-- The statement deletes rows that are old enough ($3) and published according to the recorded
-- state. The seq of such a row is at most high and below all of pending, and its transaction is
-- visible in the recorded snapshot. A row that is visible now, but not in that snapshot, is late:
-- the relay may not have read it yet. For rows up to floor the snapshot does not count: they have
-- transaction ids of another cluster, and the late rows among them are in pending. Rows that a
-- running republish must still read stay, too. The step ends at the first row that stays, so the
-- deleted rows are one range.
--
-- If created_at is more than a minute ahead of the clock, the clock was wrong when the row was
-- written. Such a row is as old as the rows after it, or older. So it is old enough if a later row
-- of the step is. If the step has only such rows, the statement looks at the rows that are 1, 2, 4
-- and so on up to 2^40 seqs behind them. While no later row is old enough, such a row stays.
--
-- A step deletes at most 1,000 rows and 4 MiB of values, or one row with more: SQL that says that
-- it has checked its row can write such a row, and can write such values to each column that has no
-- index. The limit of 4 MiB is necessary because the server stores a large value in several rows,
-- and deletes them all. A step searches for the first row from $2 on, 10,000 seqs at a time, for at
-- most 10 ms. Deleted rows leave index entries, which cost time until a vacuum removes them. A
-- vacuum cannot remove them while an old transaction is open, and may leave them there while they
-- are few compared with the table. A step that begins at the end of the previous step reads none of
-- these entries. A step that begins at 0 reads as many of them as its time allows.
--
-- The numbers are constants because the planner assumes that LIMIT $n returns a tenth of the table.
-- The row of relay stays locked until the rows are deleted. So the recorded state cannot change
-- between the check of the rows and their deletion.
--
-- The statement also deletes the failures of these rows from the table refused. A row below $2 that
-- became visible late stays, with its failures, until the relay begins its steps at 0 again.
--
-- An operator may forget an event in a transaction that stays open. The step does not wait for it, because
-- it has locked the row of relay: it removes nothing, and the next step begins at 0. There is no seq 0,
-- so event_lock(0) is the lock of the two.
--
-- Locks   the one row of relay, tries event_lock(0), then the deleted rows.
-- Index   outbox_pkey (seq), republish_running (id), refused_pkey (seq).
-- Called  by Term.Prune.
WITH RECURSIVE locked AS (
    SELECT floor, snap, least(high + 1, lower(pending),
                              (SELECT min(least(passed + 1, lower(pending))) FROM postroom.republish WHERE state = 'running')) AS stop
    FROM postroom.relay
    WHERE epoch = $1
    FOR UPDATE
), leader AS MATERIALIZED (
    --guard:pruning-waits-for-no-operator = stop
    SELECT floor, snap, CASE WHEN pg_try_advisory_xact_lock(postroom.event_lock(0::bigint)) THEN stop ELSE 0 END AS stop FROM locked
), search (at, found) AS (
    SELECT $2::bigint, (SELECT seq FROM postroom.outbox WHERE seq >= $2 AND seq < $2 + 10000 ORDER BY seq LIMIT 1)
    UNION ALL
    SELECT at + 10000,
           (SELECT seq FROM postroom.outbox WHERE seq >= at + 10000 AND seq < at + 20000 ORDER BY seq LIMIT 1)
    FROM search, leader
    WHERE found IS NULL AND at + 10000 < stop AND clock_timestamp() < statement_timestamp() + interval '10 ms'
), start AS (
    SELECT max(coalesce(found, at + 10000)) AS at FROM search
), batch AS (
    SELECT o.seq, o.ctid,
           --guard:a-step-of-pruning-removes-a-row 2 true
           sum(o.size) OVER (ORDER BY o.seq) > 4194304 AND row_number() OVER (ORDER BY o.seq) > 1 AS beyond,
           --guard:pruning-believes-two-clocks = o.created_at <= greatest(clock_timestamp(), $4::timestamptz) - $3::interval
           o.created_at <= least(clock_timestamp(), $4::timestamptz) - $3::interval AS old,
           o.created_at > clock_timestamp() + interval '1 min' AS ahead,
           o.seq > leader.floor AND NOT pg_visible_in_snapshot(o.xid, leader.snap) AS late
    FROM leader, LATERAL (
        SELECT seq, ctid, xid, created_at,
               pg_column_size(data) + coalesce(pg_column_size(headers), 0)
                   --guard:a-step-of-pruning-counts-all-columns remove
                   + pg_column_size(digest) + pg_column_size(type) + pg_column_size(subject) + pg_column_size(content_type) + coalesce(pg_column_size(key), 0) + coalesce(pg_column_size(correlation_id), 0) + coalesce(pg_column_size(trace_parent), 0) + coalesce(pg_column_size(trace_state), 0)
                   AS size
        FROM postroom.outbox
        --guard:pruning-stops-at-what-is-unpublished 3 true
        WHERE seq >= (SELECT at FROM start) AND seq < (SELECT at + 10000 FROM start) AND seq < leader.stop
        ORDER BY seq
        LIMIT 1000
    ) o
), known AS (
    SELECT coalesce(max(seq) FILTER (WHERE old),
                    CASE WHEN bool_and(ahead) THEN
                        (SELECT max(o.seq)
                         FROM (SELECT max(seq) AS seq FROM batch) AS last
                         CROSS JOIN generate_series(0, 40) AS step
                         CROSS JOIN LATERAL (SELECT seq, created_at FROM postroom.outbox
                                             WHERE seq >= last.seq + (1::bigint << step) ORDER BY seq LIMIT 1) o
                         WHERE o.created_at <= least(clock_timestamp(), $4::timestamptz) - $3::interval) END,
                    0) AS old
    FROM batch
), judged AS (
    --guard:rows-from-the-future-leave 2.2 = @3
    SELECT seq, late OR CASE WHEN ahead THEN known.old = 0 ELSE NOT batch.old END AS stays,
           --guard:rows-from-the-future-do-not-leave-early 2 remove
           beyond OR ahead AND seq > known.old AS ends
    FROM batch, known
), reached AS (
    SELECT coalesce(min(seq) FILTER (WHERE stays OR ends),
                    CASE WHEN count(*) = 1000 THEN max(seq) + 1 END,
                    least((SELECT at + 10000 FROM start), (SELECT stop FROM leader))) AS next,
           min(seq) FILTER (WHERE stays) AS stays
    FROM judged
), removed AS (
    DELETE FROM postroom.outbox
    WHERE ctid = ANY (ARRAY(SELECT batch.ctid FROM batch, reached WHERE batch.seq < reached.next))
    RETURNING seq
), forgotten AS (
    DELETE FROM postroom.refused
    --guard:failures-leave-with-the-log 1 = seq < $2
    --guard:a-former-leader-removes-no-failures 3 true
    --guard:failures-stay-as-long-as-the-log = @1
    WHERE seq >= $2 AND seq < (SELECT next FROM reached) AND EXISTS (SELECT FROM leader)
)
SELECT (SELECT count(*) FROM removed) AS removed,
       reached.next,
       reached.next < leader.stop AND reached.next IS DISTINCT FROM reached.stays AS more
FROM leader, reached;
