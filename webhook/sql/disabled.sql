-- How many endpoints are disabled, counted up to 10,000.
--
-- Locks   none.
-- Index   webhook_endpoint_unwell.
-- Called  by disabledGauge.observe.
SELECT count(*) FROM (SELECT FROM postroom.webhook_endpoint WHERE disabled_at IS NOT NULL LIMIT 10000) AS e;
