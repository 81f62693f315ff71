#!/bin/sh
# docs/fencing.md shows this: a write to a table with triggers, under 'sallyport run'.
psql -v ON_ERROR_STOP=1 -v pass="exclusive $SALLYPORT_TOKEN $SALLYPORT_FENCE_LOCK" "$DATABASE" <<'SQL'
BEGIN;
SELECT set_config('sallyport.pass', :'pass', true);
UPDATE accounts SET balance = balance + 50 WHERE id = 42;
COMMIT;
SQL
