-- Insert the event of one transaction into the outbox that a service without Postroom would have.
--
-- Locks   the new row.
-- Called  by producers.
INSERT INTO postroom.outbox_by_hand (event_id, type, key, data) VALUES ($1, $2, $3, $4);
