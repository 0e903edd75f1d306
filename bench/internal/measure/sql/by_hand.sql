-- Insert the event of one transaction into the outbox that is written by hand.
--
-- Locks   the new row.
-- Called  by producers.
INSERT INTO postroom.outbox_by_hand (event_id, type, key, data) VALUES ($1, $2, $3, $4);
