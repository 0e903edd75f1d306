-- Run the later statements of the transaction as session user $1 and current user $2, even if code
-- of the application has changed these users.
--
-- Locks   none.
-- Index   none.
-- Called  by packages with a Loan or a Pool: the method Own returns the statement. They send it
--         after the statements of the user's code, before their own statements.
SELECT CASE WHEN $1::text <> '' AND session_user::text <> $1::text THEN set_config('session_authorization', $1::text, true) END,
       CASE WHEN $2::text <> '' AND current_user::text <> $2::text THEN set_config('role', CASE WHEN $1::text = $2::text THEN 'none' ELSE $2::text END, true) END;
