-- Have the statements after this one, up to the end of the transaction, run as session
-- user $1 and current user $2, whatever the transaction's user code set.
--
-- Locks   none.
-- Index   none.
-- Called  by whoever has Loan.Own, before statements of its own behind a user's.
SELECT CASE WHEN $1::text <> '' AND session_user::text <> $1::text THEN set_config('session_authorization', $1::text, true) END,
       CASE WHEN $2::text <> '' AND current_user::text <> $2::text THEN set_config('role', CASE WHEN $1::text = $2::text THEN 'none' ELSE $2::text END, true) END;
