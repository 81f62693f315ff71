-- The rules of locking, as functions of PostgreSQL. {schema} stands for the schema's name, quoted.
--
-- Every function that changes what a name's contenders see first takes an advisory lock of its transaction on the name, and
-- reads after that: in READ COMMITTED each statement of a VOLATILE function sees what was committed before it began, so
-- the one who waited sees all that the one before it did. Renewals take only the lock of their own row; whoever removes
-- rows removes them by their expiry and looks afterwards at what is left.
--
-- What is called for its effect is assigned (nothing := ...), where that may happen often: an expression costs plpgsql a tenth of what
-- a statement (PERFORM) does. draw and settle, which only the others call, inherit their settings.
--
-- Whoever looks for one name says enable_seqscan = off: a session keeps its plans, and one that was made while a table was small reads
-- the whole of it, with all that the next vacuum would remove, once many take turns. What has no index then seems to cost so much that
-- the server would compile it at every call, which takes a hundred times as long as the call: so jit is off, too.
--
-- No call writes for more than {most} contenders: whoever stopped there says so, and its client calls again at once (leave, of nobody).
-- Should it die before that, those who wait go on when they ask. So nobody stands behind a long transaction on a busy name.
--
-- Numbers: kind 1 mutex, 2 shared_mutex, 3 semaphore, 4 election; mode 0 exclusive, 1 shared; state 0 claimed,
-- 1 provisional (handed over, good for the claim window), 2 a tombstone.
DO $do$
DECLARE
  wanted constant text := {schema_text};
  foreign_object text;
BEGIN
  -- CREATE ... IF NOT EXISTS of two sessions at once may fail for one of them.
  PERFORM pg_advisory_xact_lock(6011413850937217615);
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = wanted) THEN
    EXECUTE format('CREATE SCHEMA %I', wanted);
  END IF;
  SELECT 'the relation ' || c.relname INTO foreign_object FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = wanted AND c.relname IN ('state', 'alive', 'lock', 'queue', 'token', 'place')
      AND coalesce(obj_description(c.oid, 'pg_class'), '') NOT LIKE 'Sallyport: %' LIMIT 1;
  IF foreign_object IS NULL THEN
    SELECT 'the function ' || p.proname INTO foreign_object FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = wanted AND p.proname IN ('draw', 'settle', 'acquire', 'renew', 'leave', 'downgrade', 'set_value',
        'break_lock', 'change_channel', 'sweep', 'look', 'name_key')
        AND coalesce(obj_description(p.oid, 'pg_proc'), '') NOT LIKE 'Sallyport: %' LIMIT 1;
  END IF;
  IF foreign_object IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'SP002',
      MESSAGE = format('schema %I has %s, which is not Sallyport''s; nothing was changed', wanted, foreign_object),
      HINT = 'Name another schema (?schema=...), or move it away.';
  END IF;
END
$do$;

CREATE TABLE IF NOT EXISTS {schema}.state (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version integer NOT NULL,
  store uuid NOT NULL DEFAULT gen_random_uuid(),
  reserved bigint NOT NULL DEFAULT 0,
  swept timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE {schema}.state IS 'Sallyport: the version of this schema, the end of the tokens that are on record, the last sweep';

-- Emptied by the server after a crash, and on a standby that is promoted: then what was committed last may be missing, and
-- tokens go on behind all that may have been drawn.
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.alive (one boolean PRIMARY KEY DEFAULT true CHECK (one));
COMMENT ON TABLE {schema}.alive IS 'Sallyport: empty after a crash';
WITH fresh AS (INSERT INTO {schema}.state (version) VALUES ({version}) ON CONFLICT DO NOTHING RETURNING one)
  INSERT INTO {schema}.alive SELECT one FROM fresh ON CONFLICT DO NOTHING;

CREATE SEQUENCE IF NOT EXISTS {schema}.token AS bigint INCREMENT BY 1024 MINVALUE 1024 MAXVALUE 9007199254740991 CACHE 1;
COMMENT ON SEQUENCE {schema}.token IS 'Sallyport: fencing tokens; never set it back, and drop it only when nobody remembers a token';
CREATE SEQUENCE IF NOT EXISTS {schema}.place AS bigint CACHE 1;
COMMENT ON SEQUENCE {schema}.place IS 'Sallyport: places in the queues';

CREATE TABLE IF NOT EXISTS {schema}.lock (
  name bytea NOT NULL,
  holder bytea NOT NULL,
  kind smallint NOT NULL,
  mode smallint NOT NULL,
  state smallint NOT NULL,
  permits integer NOT NULL,
  first_token bigint NOT NULL,
  last_token bigint NOT NULL,
  expires timestamptz NOT NULL,
  since timestamptz NOT NULL,
  local_waiters integer NOT NULL,
  client bigint NOT NULL,
  pid bigint NOT NULL,
  host bytea NOT NULL,
  label bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (name, holder)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {schema}.lock IS 'Sallyport: one row for each grant';

CREATE TABLE IF NOT EXISTS {schema}.queue (
  name bytea NOT NULL,
  place bigint NOT NULL,
  holder bytea NOT NULL,
  kind smallint NOT NULL,
  mode smallint NOT NULL,
  permits integer NOT NULL,
  window_ms bigint NOT NULL,
  tokens integer NOT NULL,
  lapses timestamptz NOT NULL,
  since timestamptz NOT NULL,
  local_waiters integer NOT NULL,
  client bigint NOT NULL,
  pid bigint NOT NULL,
  host bytea NOT NULL,
  label bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (name, place),
  UNIQUE (name, holder)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {schema}.queue IS 'Sallyport: one row for each waiter';

-- By what a name is locked within a transaction. Two names may share a key: then they wait for each other, no more.
CREATE OR REPLACE FUNCTION {schema}.name_key(p_name bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS
$$ SELECT hashtextextended(encode(p_name, 'hex'), 6011413850937217616) $$;
COMMENT ON FUNCTION {schema}.name_key IS 'Sallyport: the advisory lock of a name';

-- The first of p_count new tokens. REQUIRES: the name, or its holder's row, is locked by this transaction.
-- p_durable: this transaction is committed to disk before it is answered. If not, tokens stay below a number that was.
CREATE OR REPLACE FUNCTION {schema}.draw(p_durable boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  on_record bigint;
  drawn bigint;
  nothing text;
BEGIN
  SELECT s.reserved INTO on_record FROM {schema}.state s, {schema}.alive;
  IF NOT FOUND THEN
    SELECT s.reserved INTO STRICT on_record FROM {schema}.state s FOR UPDATE;
    IF NOT EXISTS (SELECT FROM {schema}.alive) THEN
      -- A standby may also lack some that were committed elsewhere: leave room.
      PERFORM setval('{schema_in_text}.token', greatest(on_record, (SELECT t.last_value FROM {schema}.token t))
        + 1024 * 1048576::bigint);
      INSERT INTO {schema}.alive DEFAULT VALUES;
      p_durable := true;
    END IF;
  END IF;
  IF p_durable THEN
    IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'local', true); END IF;
    RETURN nextval('{schema_in_text}.token') - 1023;
  END IF;
  drawn := nextval('{schema_in_text}.token');
  IF drawn > on_record THEN
    -- Others who need more wait here until it is on disk.
    SELECT s.reserved INTO STRICT on_record FROM {schema}.state s FOR UPDATE;
    IF drawn > on_record THEN
      UPDATE {schema}.state SET reserved = drawn + 1024 * 65536::bigint;
      PERFORM set_config('synchronous_commit', 'local', true);
      RETURN drawn - 1023;
    END IF;
  END IF;
  nothing := set_config('synchronous_commit', 'off', true);
  RETURN drawn - 1023;
END $$;
COMMENT ON FUNCTION {schema}.draw IS 'Sallyport: draws tokens';

-- Where changes of a watched name are told.
CREATE OR REPLACE FUNCTION {schema}.change_channel(p_name bytea) RETURNS text
LANGUAGE sql IMMUTABLE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS
$$ SELECT 'sallyport_c_' || left(encode(sha256(convert_to({schema_text}, 'UTF8') || decode('00', 'hex') || p_name), 'hex'), 40) $$;
COMMENT ON FUNCTION {schema}.change_channel IS 'Sallyport: the channel of a name''s changes';

-- What has lapsed goes, and the queue is served: while its head may enter, it does, provisionally. Returns how many
-- contenders entered or went; if p_most, there may be more to do. REQUIRES: the name is locked.
DROP FUNCTION IF EXISTS {schema}.settle(bytea, timestamptz, bytea, boolean);  -- of an earlier version
CREATE OR REPLACE FUNCTION {schema}.settle(p_name bytea, p_now timestamptz, p_asker bytea, p_durable boolean,
  p_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  head {schema}.queue%ROWTYPE;
  holders bigint;
  barring bigint;
  soonest timestamptz;
  first_ bigint;
  steps integer := 0;
  served_kind smallint;
  lapsed_kind smallint;
  nothing text;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE l.mode = 0 OR l.state = 2), min(l.expires) INTO holders, barring, soonest
    FROM {schema}.lock l WHERE l.name = p_name;
  IF soonest <= p_now THEN
    -- A row that is being renewed is waited for, and stays.
    WITH gone AS (DELETE FROM {schema}.lock l WHERE l.name = p_name AND l.expires <= p_now AND l.holder = ANY (ARRAY(
        SELECT o.holder FROM {schema}.lock o WHERE o.name = p_name AND o.expires <= p_now LIMIT p_most)) RETURNING l.kind)
      SELECT max(gone.kind), count(*) INTO lapsed_kind, steps FROM gone;
    SELECT count(*), count(*) FILTER (WHERE l.mode = 0 OR l.state = 2) INTO holders, barring
      FROM {schema}.lock l WHERE l.name = p_name;
  END IF;
  WHILE steps < p_most LOOP
    IF holders = 0 THEN
      -- Whoever is first enters, or has lapsed: it leaves the queue in either case.
      DELETE FROM {schema}.queue q WHERE q.name = p_name AND q.place =
        (SELECT f.place FROM {schema}.queue f WHERE f.name = p_name ORDER BY f.place LIMIT 1) RETURNING q.* INTO head;
      EXIT WHEN NOT FOUND;
    ELSE
      SELECT * INTO head FROM {schema}.queue q WHERE q.name = p_name ORDER BY q.place LIMIT 1;
      EXIT WHEN NOT FOUND;
      IF head.lapses > p_now THEN
        EXIT WHEN NOT CASE
          WHEN head.kind = 3 THEN holders < head.permits
          WHEN head.kind = 2 AND head.mode = 1 THEN barring = 0
          ELSE false END;
      END IF;
      DELETE FROM {schema}.queue q WHERE q.name = p_name AND q.place = head.place;
    END IF;
    steps := steps + 1;
    CONTINUE WHEN head.lapses <= p_now;
    first_ := {schema}.draw(p_durable);
    INSERT INTO {schema}.lock VALUES (p_name, head.holder, head.kind, head.mode, 1, head.permits, first_,
      first_ + head.tokens - 1, p_now + head.window_ms * interval '1 millisecond', p_now, head.local_waiters, head.client,
      head.pid, head.host, head.label, head.value);
    served_kind := head.kind;
    holders := holders + 1;
    IF head.mode = 0 THEN barring := barring + 1; END IF;
    IF head.holder <> p_asker THEN
      nothing := pg_notify('sallyport_' || to_hex(head.client), format('g %s %s %s %s %s', encode(head.holder, 'hex'), first_,
        first_ + head.tokens - 1, head.window_ms, head.permits))::text;
    END IF;
    EXIT WHEN head.mode = 0 AND head.kind <> 3;  -- nobody enters beside it
  END LOOP;
  IF lapsed_kind = 4 OR served_kind = 4 THEN PERFORM pg_notify({schema}.change_channel(p_name), ''); END IF;
  RETURN steps;
END $$;
COMMENT ON FUNCTION {schema}.settle IS 'Sallyport: serves a queue';

-- Answers {1, first, last, remaining ms, provisional, permits}, {2, ask again after ms, newest token, permits}, {3} held,
-- {4, kind} in use as another kind, {6}: nothing but that some were let in or taken away that stood before; ask again. A seventh
-- number of the first one: there is more to do for others.
CREATE OR REPLACE FUNCTION {schema}.acquire(p_name bytea, p_holder bytea, p_kind smallint, p_mode smallint,
  p_lease_ms bigint, p_window_ms bigint, p_ticket_ms bigint, p_may_wait boolean, p_permits integer, p_tokens integer,
  p_local_waiters integer, p_durable boolean, p_client bigint, p_pid bigint, p_host bytea, p_label bytea, p_value bytea)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_ timestamptz;
  other {schema}.lock%ROWTYPE;  -- one of those who hold it
  mine {schema}.lock%ROWTYPE;
  is_first boolean;
  used_as smallint;
  permits_ integer := p_permits;
  place_ bigint;
  lapses_ timestamptz;
  holders bigint := 0;
  barring bigint := 0;
  own bigint;
  soonest timestamptz;
  latest timestamptz;
  latest_barring timestamptz;
  first_ bigint;
  ask_ms bigint := p_ticket_ms / 3;
  served integer := 0;
  more bigint[] := '{}';
  settled boolean := false;
  unused boolean := true;  -- nobody holds it, and nobody waits
  nothing text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  nothing := pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 6011413850937217616))::text;
  now_ := clock_timestamp();
  SELECT * INTO other FROM {schema}.lock l WHERE l.name = p_name LIMIT 1;
  IF p_may_wait AND other.kind = p_kind AND p_kind <> 3 AND other.mode = 0 AND other.state <> 2 AND other.expires > now_
    AND other.holder <> p_holder THEN
    -- Most who wait: somebody alive bars all others, so nobody else holds it, and the queue stays as it is but for one's own ticket.
    INSERT INTO {schema}.queue AS t VALUES (p_name, nextval('{schema_in_text}.place'), p_holder, p_kind, p_mode,
      other.permits, p_window_ms, least(p_tokens, 1024), now_ + p_ticket_ms * interval '1 millisecond', now_,
      p_local_waiters, p_client, p_pid, p_host, p_label, p_value)
      ON CONFLICT (name, holder) DO UPDATE SET lapses = excluded.lapses, window_ms = excluded.window_ms,
        tokens = excluded.tokens, local_waiters = excluded.local_waiters WHERE t.lapses > now_
      -- Behind {most} who have lapsed anybody may be the first.
      RETURNING coalesce(t.place <= (SELECT min(f.place) FROM (SELECT h.place, h.lapses FROM {schema}.queue h
        WHERE h.name = p_name ORDER BY h.place LIMIT {most}) f WHERE f.lapses > now_), true) INTO is_first;
    IF FOUND THEN
      -- A place in the queue that a crash takes away is taken again by the next question.
      nothing := set_config('synchronous_commit', 'off', true);
      IF is_first THEN
        ask_ms := least(ask_ms, ceil(extract(epoch FROM other.expires - clock_timestamp()) * 1000)::bigint);
      END IF;
      RETURN ARRAY[2, greatest(ask_ms, 1), other.last_token, other.permits];
    END IF;
  END IF;

  IF other.holder IS NOT NULL OR EXISTS (SELECT FROM {schema}.queue q WHERE q.name = p_name) THEN
    unused := false;
    LOOP
      SELECT count(*), count(*) FILTER (WHERE l.mode = 0 OR l.state = 2), min(l.expires), max(l.expires),
        max(l.expires) FILTER (WHERE l.mode = 0 OR l.state = 2), min(l.kind), min(l.permits),
        count(*) FILTER (WHERE l.holder = p_holder AND l.state <> 2)
        INTO holders, barring, soonest, latest, latest_barring, used_as, permits_, own
        FROM {schema}.lock l WHERE l.name = p_name;
      -- Where somebody alive bars all others, the queue stays as it is.
      EXIT WHEN settled OR (barring > 0 AND used_as <> 3 AND soonest > now_);
      served := {schema}.settle(p_name, now_, p_holder, p_durable, {most});
      settled := true;
      IF served >= {most} THEN more := ARRAY[1]; END IF;
    END LOOP;
    IF own > 0 THEN
      SELECT * INTO mine FROM {schema}.lock l WHERE l.name = p_name AND l.holder = p_holder AND l.state <> 2;
      IF mine.kind <> p_kind THEN RETURN ARRAY[4, mine.kind]; END IF;
      IF mine.since = now_ AND mine.state = 1 THEN
        -- Let in by its own question: nothing has to be claimed.
        UPDATE {schema}.lock l SET state = 0, expires = now_ + p_lease_ms * interval '1 millisecond',
          local_waiters = p_local_waiters, value = p_value WHERE l.name = p_name AND l.holder = p_holder;
        RETURN ARRAY[1, mine.first_token, mine.last_token, p_lease_ms, 0, mine.permits] || more;
      END IF;
      IF mine.local_waiters <> p_local_waiters THEN
        UPDATE {schema}.lock l SET local_waiters = p_local_waiters WHERE l.name = p_name AND l.holder = p_holder;
      END IF;
      RETURN ARRAY[1, mine.first_token, mine.last_token, floor(extract(epoch FROM mine.expires - clock_timestamp()) * 1000)::bigint,
        mine.state, mine.permits] || more;
    END IF;
    IF served >= {most} THEN RETURN ARRAY[6]; END IF;
    IF holders = 0 THEN permits_ := p_permits; END IF;
    IF used_as <> p_kind THEN RETURN ARRAY[4, used_as]; END IF;
    SELECT q.place, q.lapses INTO place_, lapses_ FROM {schema}.queue q WHERE q.name = p_name AND q.holder = p_holder;
    IF lapses_ <= now_ THEN
      DELETE FROM {schema}.queue q WHERE q.name = p_name AND q.holder = p_holder;
      place_ := NULL;
    ELSIF place_ IS NOT NULL THEN
      UPDATE {schema}.queue q SET lapses = now_ + p_ticket_ms * interval '1 millisecond', window_ms = p_window_ms,
        tokens = least(p_tokens, 1024), local_waiters = p_local_waiters WHERE q.name = p_name AND q.place = place_;
    END IF;
  END IF;

  IF place_ IS NULL THEN
    IF (CASE
      WHEN p_kind = 3 THEN holders < permits_
      WHEN p_kind = 2 AND p_mode = 1 THEN barring = 0
      ELSE holders = 0 END) THEN
      IF NOT unused THEN unused := NOT EXISTS (SELECT FROM {schema}.queue q WHERE q.name = p_name); END IF;
      IF unused THEN
        first_ := {schema}.draw(p_durable);
        INSERT INTO {schema}.lock VALUES (p_name, p_holder, p_kind, p_mode, 0, permits_, first_,
          first_ + least(p_tokens, 1024) - 1, now_ + p_lease_ms * interval '1 millisecond', now_, p_local_waiters, p_client,
          p_pid, p_host, p_label, p_value);
        IF p_kind = 4 THEN PERFORM pg_notify({schema}.change_channel(p_name), ''); END IF;
        RETURN ARRAY[1, first_, first_ + least(p_tokens, 1024) - 1, p_lease_ms, 0, permits_];
      END IF;
    END IF;
    IF NOT p_may_wait THEN RETURN ARRAY[3]; END IF;
    place_ := nextval('{schema_in_text}.place');
    INSERT INTO {schema}.queue VALUES (p_name, place_, p_holder, p_kind, p_mode, permits_, p_window_ms,
      least(p_tokens, 1024), now_ + p_ticket_ms * interval '1 millisecond', now_, p_local_waiters, p_client, p_pid, p_host,
      p_label, p_value);
  END IF;
  -- As above.
  IF served = 0 THEN nothing := set_config('synchronous_commit', 'off', true); END IF;
  IF NOT EXISTS (SELECT FROM (SELECT h.lapses FROM {schema}.queue h WHERE h.name = p_name AND h.place < place_
      ORDER BY h.place LIMIT {most}) q WHERE q.lapses > now_) THEN
    IF p_kind = 3 THEN latest := soonest;
    ELSIF p_kind = 2 AND p_mode = 1 THEN latest := latest_barring;
    END IF;
    ask_ms := least(ask_ms, ceil(extract(epoch FROM latest - clock_timestamp()) * 1000)::bigint);
  END IF;
  RETURN ARRAY[2, greatest(ask_ms, 1), (SELECT t.last_value FROM {schema}.token t), permits_];
END $$;
COMMENT ON FUNCTION {schema}.acquire IS 'Sallyport: lets in or puts into the queue';

-- Compare-and-extend, for each of several holders; also the claim of what was handed over. Answers four numbers each:
-- 1, first, last, remaining ms; 2, ask again after ms, newest token, permits: it waits; 0, 0, 0, 0: gone.
CREATE OR REPLACE FUNCTION {schema}.renew(p_names bytea[], p_holders bytea[], p_lease_ms bigint[], p_tokens integer[],
  p_local_waiters integer[], p_durable boolean) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  answers bigint[] := '{}';
  told bigint[];
  first_ bigint;
  last_ bigint;
  kind_ smallint;
  permits_ integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  IF NOT p_durable THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'local', true);
  END IF;
  FOR i IN 1 .. cardinality(p_names) LOOP
    told := ARRAY[0, 0, 0, 0];
    -- One that is not there may be entering just now, between the look at the grants and that at the queue: look twice.
    FOR turn IN 1 .. 2 LOOP
      UPDATE {schema}.lock l SET expires = clock_timestamp() + p_lease_ms[i] * interval '1 millisecond', state = 0,
        local_waiters = p_local_waiters[i]
        WHERE l.name = p_names[i] AND l.holder = p_holders[i] AND l.state <> 2 AND l.expires > clock_timestamp()
        RETURNING l.first_token, l.last_token, l.kind INTO first_, last_, kind_;
      IF FOUND THEN
        IF p_tokens[i] > 0 THEN
          first_ := {schema}.draw(p_durable);
          last_ := first_ + least(p_tokens[i], 1024) - 1;
          UPDATE {schema}.lock l SET first_token = first_, last_token = last_
            WHERE l.name = p_names[i] AND l.holder = p_holders[i];
          IF kind_ = 4 THEN PERFORM pg_notify({schema}.change_channel(p_names[i]), ''); END IF;
        END IF;
        told := ARRAY[1, first_, last_, p_lease_ms[i]];
        EXIT;
      END IF;
      EXIT WHEN turn = 2;
      UPDATE {schema}.queue q SET local_waiters = p_local_waiters[i]
        WHERE q.name = p_names[i] AND q.holder = p_holders[i] AND q.lapses > clock_timestamp()
        RETURNING q.permits INTO permits_;
      IF FOUND THEN
        told := ARRAY[2, 1, (SELECT t.last_value FROM {schema}.token t), permits_];
        EXIT;
      END IF;
    END LOOP;
    answers := answers || told;
  END LOOP;
  RETURN answers;
END $$;
COMMENT ON FUNCTION {schema}.renew IS 'Sallyport: renews and claims';

-- Release; with p_withdraw also out of the queue. Answers {1}: it was there, {0}: it was not; a second number: there is more to do
-- for others.
CREATE OR REPLACE FUNCTION {schema}.leave(p_name bytea, p_holder bytea, p_withdraw boolean, p_durable boolean)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_ timestamptz;
  head {schema}.queue%ROWTYPE;
  first_ bigint;
  until timestamptz;
  kind_ smallint;
  left_ bigint := 0;
  served integer := 0;
  nothing text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  nothing := pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 6011413850937217616))::text;
  now_ := clock_timestamp();
  SELECT * INTO head FROM {schema}.queue q WHERE q.name = p_name ORDER BY q.place LIMIT 1;
  IF NOT p_withdraw AND head.kind <> 3 AND head.mode = 0 AND head.lapses > now_ AND head.holder <> p_holder THEN
    -- Most hand-overs: who bars all others leaves, and the first in the queue does the same. The row changes hands.
    first_ := {schema}.draw(p_durable);
    UPDATE {schema}.lock l SET holder = head.holder, state = 1, permits = head.permits, first_token = first_,
      last_token = first_ + head.tokens - 1, expires = now_ + head.window_ms * interval '1 millisecond', since = now_,
      local_waiters = head.local_waiters, client = head.client, pid = head.pid, host = head.host, label = head.label,
      value = head.value
      WHERE l.name = p_name AND l.holder = p_holder AND l.kind = head.kind AND l.mode = 0 AND l.state <> 2
        AND l.expires > now_;
    IF FOUND THEN
      DELETE FROM {schema}.queue q WHERE q.name = p_name AND q.place = head.place;
      nothing := pg_notify('sallyport_' || to_hex(head.client), format('g %s %s %s %s %s', encode(head.holder, 'hex'), first_,
        first_ + head.tokens - 1, head.window_ms, head.permits))::text;
      IF head.kind = 4 THEN PERFORM pg_notify({schema}.change_channel(p_name), ''); END IF;
      RETURN ARRAY[1];
    END IF;
  END IF;

  DELETE FROM {schema}.lock l WHERE l.name = p_name AND l.holder = p_holder AND l.state <> 2
    RETURNING l.expires, l.kind INTO until, kind_;
  IF FOUND THEN
    IF until > now_ THEN left_ := 1; END IF;
    IF kind_ = 4 THEN PERFORM pg_notify({schema}.change_channel(p_name), ''); END IF;
  ELSIF p_withdraw THEN
    DELETE FROM {schema}.queue q WHERE q.name = p_name AND q.holder = p_holder RETURNING q.lapses INTO until;
    IF FOUND AND until > now_ THEN left_ := 1; END IF;
  END IF;
  IF head.place IS NOT NULL THEN
    served := {schema}.settle(p_name, now_, p_holder, p_durable, {most});
  END IF;
  -- A release that a crash undoes is a lock that ends with its lease. What was drawn is committed as draw() said.
  IF served = 0 AND first_ IS NULL THEN nothing := set_config('synchronous_commit', 'off', true); END IF;
  IF served >= {most} THEN RETURN ARRAY[left_, 1]; END IF;
  RETURN ARRAY[left_];
END $$;
COMMENT ON FUNCTION {schema}.leave IS 'Sallyport: releases, with hand-over';

-- Exclusive to shared, keeping the token; waiting readers enter. Answers as renew; a fifth number: there is more to do for others.
CREATE OR REPLACE FUNCTION {schema}.downgrade(p_name bytea, p_holder bytea, p_lease_ms bigint, p_local_waiters integer,
  p_durable boolean) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_ timestamptz;
  first_ bigint;
  last_ bigint;
  nothing text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  nothing := pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 6011413850937217616))::text;
  IF current_setting('synchronous_commit') = 'off' AND p_durable THEN
    PERFORM set_config('synchronous_commit', 'local', true);
  END IF;
  now_ := clock_timestamp();
  UPDATE {schema}.lock l SET mode = 1, state = 0, expires = now_ + p_lease_ms * interval '1 millisecond',
    local_waiters = p_local_waiters
    WHERE l.name = p_name AND l.holder = p_holder AND l.state <> 2 AND l.kind = 2 AND l.expires > now_
    RETURNING l.first_token, l.last_token INTO first_, last_;
  IF NOT FOUND THEN RETURN ARRAY[0, 0, 0, 0]; END IF;
  IF {schema}.settle(p_name, now_, p_holder, p_durable, {most}) >= {most} THEN RETURN ARRAY[1, first_, last_, p_lease_ms, 1]; END IF;
  RETURN ARRAY[1, first_, last_, p_lease_ms];
END $$;
COMMENT ON FUNCTION {schema}.downgrade IS 'Sallyport: a writer becomes a reader';

-- Answers {1}: done, {0}: this contender does not hold it.
CREATE OR REPLACE FUNCTION {schema}.set_value(p_name bytea, p_holder bytea, p_value bytea) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  UPDATE {schema}.lock l SET value = p_value
    WHERE l.name = p_name AND l.holder = p_holder AND l.state <> 2 AND l.expires > clock_timestamp();
  IF NOT FOUND THEN RETURN ARRAY[0]; END IF;
  PERFORM pg_notify({schema}.change_channel(p_name), '');
  RETURN ARRAY[1];
END $$;
COMMENT ON FUNCTION {schema}.set_value IS 'Sallyport: what a leader says';

-- Takes the grant away whose block contains the token. Answers {1}: done, {0}: nobody holds it, {2}: held under another
-- token, {3}: broken already, {6}: nothing yet, ask again; a second number: there is more to do for others.
CREATE OR REPLACE FUNCTION {schema}.break_lock(p_name bytea, p_token bigint, p_at_once boolean, p_durable boolean)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_ timestamptz;
  broken {schema}.lock%ROWTYPE;
  found_ bigint;
  alive_ bigint;
  served integer := 0;
  nothing text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  nothing := pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 6011413850937217616))::text;
  IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'local', true); END IF;
  now_ := clock_timestamp();
  -- A grant that lapsed is none: all of those go first.
  IF {schema}.settle(p_name, now_, ''::bytea, p_durable, {most}) >= {most} THEN RETURN ARRAY[6]; END IF;
  -- Locked: a renewal of the same moment comes before this or finds nothing.
  PERFORM FROM {schema}.lock l WHERE l.name = p_name FOR UPDATE;
  SELECT count(*), count(*) FILTER (WHERE l.state <> 2) INTO found_, alive_ FROM {schema}.lock l WHERE l.name = p_name;
  IF found_ = 0 THEN RETURN ARRAY[0]; END IF;
  SELECT * INTO broken FROM {schema}.lock l WHERE l.name = p_name AND l.first_token <= p_token
    AND p_token <= l.last_token AND (l.state <> 2 OR p_at_once) LIMIT 1;
  IF NOT FOUND THEN RETURN ARRAY[CASE WHEN alive_ > 0 THEN 2 ELSE 3 END]; END IF;
  IF broken.state <> 2 THEN
    PERFORM pg_notify('sallyport_' || to_hex(broken.client), 'l ' || encode(broken.holder, 'hex'));
  END IF;
  IF p_at_once THEN
    DELETE FROM {schema}.lock l WHERE l.name = p_name AND l.holder = broken.holder;
    served := {schema}.settle(p_name, now_, ''::bytea, p_durable, {most});
  ELSE
    UPDATE {schema}.lock l SET state = 2, holder = int8send(broken.first_token), value = ''
      WHERE l.name = p_name AND l.holder = broken.holder;
  END IF;
  IF broken.kind = 4 THEN PERFORM pg_notify({schema}.change_channel(p_name), ''); END IF;
  IF served >= {most} THEN RETURN ARRAY[1, 1]; END IF;
  RETURN ARRAY[1];
END $$;
COMMENT ON FUNCTION {schema}.break_lock IS 'Sallyport: takes a grant away';

-- Up to p_limit names from p_prefix on, after p_after, with their holders and waiters in order. Ids are not shown.
CREATE OR REPLACE FUNCTION {schema}.look(p_prefix bytea, p_after bytea, p_limit bigint, p_exact boolean)
RETURNS TABLE (name bytea, waits boolean, kind smallint, permits integer, mode smallint, state smallint, token bigint,
  age_ms bigint, rest_ms bigint, local_waiters integer, pid bigint, host bytea, label bytea, value bytea)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now_ timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  WITH wanted AS (
    SELECT a.name FROM (
      SELECT l.name FROM {schema}.lock l WHERE l.expires > now_ AND l.name >= p_prefix AND l.name > p_after
        AND CASE WHEN p_exact THEN l.name = p_prefix ELSE substring(l.name, 1, length(p_prefix)) = p_prefix END
      UNION
      SELECT q.name FROM {schema}.queue q WHERE q.lapses > now_ AND q.name >= p_prefix AND q.name > p_after
        AND CASE WHEN p_exact THEN q.name = p_prefix ELSE substring(q.name, 1, length(p_prefix)) = p_prefix END) a
    ORDER BY a.name LIMIT p_limit)
  SELECT u.name, u.waits, u.kind, u.permits, u.mode, u.state, u.token, u.age_ms, u.rest_ms, u.local_waiters, u.pid, u.host,
    u.label, u.value FROM (
    SELECT l.name, false AS waits, l.kind, l.permits, l.mode, l.state, l.first_token AS token,
      floor(extract(epoch FROM now_ - l.since) * 1000)::bigint AS age_ms,
      floor(extract(epoch FROM l.expires - now_) * 1000)::bigint AS rest_ms, l.local_waiters, l.pid, l.host, l.label,
      l.value, l.first_token AS rank
      FROM {schema}.lock l JOIN wanted w ON w.name = l.name WHERE l.expires > now_
    UNION ALL
    SELECT q.name, true, q.kind, q.permits, q.mode, 0::smallint, 0::bigint,
      floor(extract(epoch FROM now_ - q.since) * 1000)::bigint, 0::bigint, q.local_waiters, q.pid, q.host, q.label,
      ''::bytea, q.place
      FROM {schema}.queue q JOIN wanted w ON w.name = q.name WHERE q.lapses > now_) u
  ORDER BY u.name, u.waits, u.rank;
END $$;
COMMENT ON FUNCTION {schema}.look IS 'Sallyport: who holds and who waits';

-- Removes what contenders left that ended without a word. Once a minute in the whole store, whoever asks, unless p_now.
-- Answers how many names it looked at; a second number: it stopped before the end, call again.
CREATE OR REPLACE FUNCTION {schema}.sweep(p_now boolean, p_durable boolean) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  most constant integer := {most};
  now_ timestamptz := clock_timestamp();
  one bytea;
  looked bigint := 0;
  done_ integer;
  rest integer := most;  -- for so many contenders something may still be done
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001', MESSAGE = 'Sallyport needs transactions that are read committed';
  END IF;
  PERFORM FROM {schema}.state s WHERE p_now OR s.swept < now_ - interval '1 minute' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN ARRAY[0]; END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR one IN
    SELECT l.name FROM {schema}.lock l WHERE l.expires <= now_ UNION
    SELECT q.name FROM {schema}.queue q WHERE q.lapses <= now_ LIMIT most
  LOOP
    -- A name that is in use is settled by those who use it.
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(encode(one, 'hex'), 6011413850937217616));
    looked := looked + 1;
    DELETE FROM {schema}.queue q WHERE q.name = one AND q.place = ANY (ARRAY(
      SELECT o.place FROM {schema}.queue o WHERE o.name = one AND o.lapses <= now_ ORDER BY o.place LIMIT rest));
    GET DIAGNOSTICS done_ = ROW_COUNT;
    rest := rest - done_;
    EXIT WHEN rest = 0;
    rest := rest - {schema}.settle(one, now_, ''::bytea, p_durable, rest);
    EXIT WHEN rest = 0;
  END LOOP;
  IF rest = 0 OR looked >= most THEN RETURN ARRAY[looked, 1]; END IF;
  UPDATE {schema}.state SET swept = now_;
  RETURN ARRAY[looked];
END $$;
COMMENT ON FUNCTION {schema}.sweep IS 'Sallyport: removes what the dead left';
