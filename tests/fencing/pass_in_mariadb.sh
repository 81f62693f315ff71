#!/bin/sh
# docs/fencing.md shows this: a write to a table with triggers, under 'sallyport run'.
pass=$(printf 'exclusive %s %s' "$SALLYPORT_TOKEN" "$SALLYPORT_FENCE_LOCK" | od -An -v -tx1 | tr -d ' \n')
mariadb "$DATABASE" <<SQL
START TRANSACTION;
SET @sallyport_pass = X'$pass';
UPDATE accounts SET balance = balance + 50 WHERE id = 42;
COMMIT;
SQL
