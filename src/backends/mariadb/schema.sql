-- The rules of locking, as procedures of MariaDB. {p} stands for the prefix of all names; a line of two slashes ends a statement.
--
-- A name belongs to one of 1,024 stripes. Every procedure that changes what a name's contenders see first locks the row of
-- its stripe, and reads clock and tables after that: in READ COMMITTED each statement sees what was committed before it
-- began, and has a time of its own, so the one who waited sees all that the one before it did. The stripe's row has the
-- counters of tokens and places: whoever draws has the row. Renewals lock their own row only; whoever removes lapsed rows
-- removes them by their expiry and looks afterwards at what is left. Who needs both takes the stripe first.
--
-- What is deleted is skipped by everyone who reads until the server purges it, which may take it a while. So a grant has a
-- slot, the smallest that is free, and the next one takes its row again; and it has its place in the queue: those who wait
-- stand behind all places that were let in, and nobody looks at what is before them.
--
-- No transaction writes for more than {most} contenders: whoever stopped there says so, and its client calls again at once (leave, of
-- nobody). Should it die before that, those who wait go on when they ask.
--
-- Numbers: kind 1 mutex, 2 shared_mutex, 3 semaphore, 4 election; mode 0 exclusive, 1 shared; state 0 claimed,
-- 1 provisional (handed over, good for the claim window), 2 a tombstone. Times are microseconds since 1970, UTC.
CREATE TABLE IF NOT EXISTS `{p}stripe` (
  id SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL,
  place BIGINT NOT NULL
) ENGINE = InnoDB COMMENT = 'Sallyport: the last fencing tokens; never set them back, and drop this only when nobody remembers a token'
//
CREATE TABLE IF NOT EXISTS `{p}lock` (
  name VARBINARY(255) NOT NULL,
  slot INT NOT NULL,
  holder VARBINARY(16) NOT NULL,
  place BIGINT NOT NULL,
  kind TINYINT NOT NULL,
  mode TINYINT NOT NULL,
  state TINYINT NOT NULL,
  permits INT NOT NULL,
  first_token BIGINT NOT NULL,
  last_token BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  since BIGINT NOT NULL,
  local_waiters INT NOT NULL,
  pid BIGINT NOT NULL,
  host BLOB NOT NULL,
  label BLOB NOT NULL,
  value MEDIUMBLOB NOT NULL,
  PRIMARY KEY (name, slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'Sallyport: one row for each grant'
//
CREATE TABLE IF NOT EXISTS `{p}queue` (
  name VARBINARY(255) NOT NULL,
  place BIGINT NOT NULL,
  holder VARBINARY(16) NOT NULL,
  kind TINYINT NOT NULL,
  mode TINYINT NOT NULL,
  permits INT NOT NULL,
  window_ms BIGINT NOT NULL,
  tokens INT NOT NULL,
  lapses BIGINT NOT NULL,
  since BIGINT NOT NULL,
  local_waiters INT NOT NULL,
  pid BIGINT NOT NULL,
  host BLOB NOT NULL,
  label BLOB NOT NULL,
  value MEDIUMBLOB NOT NULL,
  PRIMARY KEY (name, place),
  KEY contender (name, holder)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'Sallyport: one row for each waiter'
//
CREATE TABLE IF NOT EXISTS `{p}state` (
  one TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  store VARCHAR(36) CHARACTER SET ascii NOT NULL,
  swept BIGINT NOT NULL
) ENGINE = InnoDB COMMENT = 'Sallyport: the version of tables and procedures, the last sweep'
//
INSERT IGNORE INTO `{p}stripe` (id, token, place)
  WITH n (id) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3)
  SELECT a.id * 256 + b.id * 64 + c.id * 16 + d.id * 4 + e.id, 0, 0 FROM n a JOIN n b JOIN n c JOIN n d JOIN n e
//
-- What has lapsed goes, and the queue is served: while its head may enter, it does, provisionally. Tells how many contenders entered
-- or went; if p_most, there may be more to do. REQUIRES: the stripe is locked, p_token is its token, and all who wait stand behind the
-- place p_floor.
CREATE PROCEDURE IF NOT EXISTS `{p}settle`(p_name VARBINARY(255), p_now BIGINT, p_stripe INT, p_floor BIGINT, p_most INT,
  INOUT p_token BIGINT, OUT p_done INT)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: serves a queue'
BEGIN
  DECLARE head_place, head_lapses, holders, barring BIGINT;
  DECLARE head_kind, head_mode, head_permits, slot_, taken_slot INT;
  DECLARE token_before BIGINT DEFAULT p_token;
  SET p_done = 0;
  -- A row that is being renewed is waited for, and stays.
  IF EXISTS (SELECT 1 FROM `{p}lock` WHERE name = p_name AND expires <= p_now) THEN
    DELETE FROM `{p}lock` WHERE name = p_name AND expires <= p_now LIMIT p_most;
    SET p_done = ROW_COUNT();
  END IF;
  SELECT COUNT(*), COALESCE(SUM(mode = 0 OR state = 2), 0) INTO holders, barring FROM `{p}lock` WHERE name = p_name;
  serve: WHILE p_done < p_most DO
    SET head_place = NULL;
    SELECT place, lapses, kind, mode, permits INTO head_place, head_lapses, head_kind, head_mode, head_permits
      FROM `{p}queue` WHERE name = p_name AND place > p_floor ORDER BY place LIMIT 1;
    IF head_place IS NULL THEN LEAVE serve; END IF;
    IF head_lapses <= p_now THEN
      DELETE FROM `{p}queue` WHERE name = p_name AND place = head_place;
      SET p_done = p_done + 1;
      ITERATE serve;
    END IF;
    IF NOT CASE WHEN head_kind = 3 THEN holders < head_permits
                WHEN head_kind = 2 AND head_mode = 1 THEN barring = 0
                ELSE holders = 0 END THEN
      LEAVE serve;
    END IF;
    -- The next slot that is free, or the one behind the last.
    IF slot_ IS NULL THEN SET slot_ = 0; ELSE SET slot_ = slot_ + 1; END IF;
    IF holders > 0 THEN
      SET taken_slot = NULL;
      SELECT slot INTO taken_slot FROM `{p}lock` WHERE name = p_name AND slot = slot_;
      IF taken_slot IS NOT NULL THEN
        SELECT MIN(l.slot) + 1 INTO slot_ FROM `{p}lock` l LEFT JOIN `{p}lock` r ON r.name = l.name AND r.slot = l.slot + 1
          WHERE l.name = p_name AND l.slot >= taken_slot AND r.slot IS NULL;
      END IF;
    END IF;
    INSERT INTO `{p}lock` (name, slot, holder, place, kind, mode, state, permits, first_token, last_token, expires, since,
        local_waiters, pid, host, label, value)
      SELECT name, slot_, holder, place, kind, mode, 1, permits, p_token + 1, p_token + tokens, p_now + window_ms * 1000, p_now,
        local_waiters, pid, host, label, value FROM `{p}queue` WHERE name = p_name AND place = head_place;
    DELETE FROM `{p}queue` WHERE name = p_name AND place = head_place;
    SET p_token = p_token + 1024, p_done = p_done + 1, p_floor = head_place, holders = holders + 1,
      barring = barring + IF(head_mode = 0, 1, 0);
  END WHILE;
  IF p_token <> token_before THEN
    UPDATE `{p}stripe` SET token = p_token WHERE id = p_stripe;
  END IF;
END
//
-- Answers {1, first, last, remaining ms, provisional, permits}, {2, ask again after ms, 0, permits, how many stand before it},
-- {3} held, {4, kind} in use as another kind, {6}: nothing but that some were let in or taken away that stood before; ask again. A
-- seventh number of the first one: there is more to do for others.
CREATE PROCEDURE IF NOT EXISTS `{p}acquire`(p_name VARBINARY(255), p_holder VARBINARY(16), p_kind INT, p_mode INT, p_lease_ms BIGINT,
  p_window_ms BIGINT, p_ticket_ms BIGINT, p_may_wait INT, p_asked INT, p_permits INT, p_tokens INT, p_local_waiters INT,
  p_pid BIGINT, p_host BLOB, p_label BLOB, p_value MEDIUMBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: lets in or puts into the queue'
attempt: BEGIN
  DECLARE stripe_ INT DEFAULT CRC32(p_name) & 1023;
  DECLARE now_, token_, last_place, place_, lapses_, head_place, before_, window_ BIGINT;
  DECLARE floor_ BIGINT DEFAULT 0;
  DECLARE first_, last_, expires_, since_, soonest, latest, latest_barring BIGINT;
  DECLARE holders, barring BIGINT DEFAULT 0;
  DECLARE kind_, state_, local_, served, mine_ INT;
  DECLARE slot_ INT DEFAULT 0;
  DECLARE permits_ INT DEFAULT p_permits;
  DECLARE ask_ms BIGINT DEFAULT p_ticket_ms DIV 3;
  DECLARE answer VARCHAR(200) CHARACTER SET ascii;
  DECLARE more VARCHAR(2) CHARACTER SET ascii DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  -- A waiter that asks how it stands, when nothing has to be written, reads and locks nothing.
  IF p_asked THEN
    SELECT place, lapses, permits, local_waiters, window_ms INTO place_, lapses_, permits_, local_, window_
      FROM `{p}queue` WHERE name = p_name AND holder = p_holder LIMIT 1;
    IF place_ IS NOT NULL AND local_ = p_local_waiters AND window_ = p_window_ms THEN
      SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
      SELECT COUNT(*), MIN(expires), MAX(expires), MAX(IF(mode = 0 OR state = 2, expires, NULL)), MAX(place)
        INTO holders, soonest, latest, latest_barring, floor_ FROM `{p}lock` WHERE name = p_name;
      -- While all who hold are alive nobody enters but by a release, which sees to those who lapsed.
      IF lapses_ > now_ + p_ticket_ms * 500 AND holders > 0 AND soonest > now_ THEN
        SELECT COUNT(*) INTO before_ FROM
          (SELECT 1 FROM `{p}queue` WHERE name = p_name AND place > floor_ AND place < place_ LIMIT 64) b;
        IF before_ = 0 THEN
          SET ask_ms = LEAST(ask_ms, (CASE WHEN p_kind = 3 THEN soonest WHEN p_kind = 2 AND p_mode = 1
            THEN COALESCE(latest_barring, latest) ELSE latest END - now_) DIV 1000 + 1);
        END IF;
        SELECT CONCAT('{2,', GREATEST(ask_ms, 1), ',0,', permits_, ',', before_, '}') AS answer;
        LEAVE attempt;
      END IF;
    END IF;
    SET place_ = NULL, permits_ = p_permits;
    SET soonest = NULL, latest = NULL, latest_barring = NULL;
  END IF;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT token, place INTO token_, last_place FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE;
  SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT COUNT(*), COALESCE(MAX(place), 0) INTO holders, floor_ FROM `{p}lock` WHERE name = p_name;
  IF holders > 0 OR EXISTS (SELECT 1 FROM `{p}queue` WHERE name = p_name AND place > floor_) THEN
    CALL `{p}settle`(p_name, now_, stripe_, floor_, {most}, token_, served);
    IF served >= {most} THEN SET more = ',1'; END IF;
    SELECT slot, kind, state, permits, first_token, last_token, expires, since, local_waiters
      INTO mine_, kind_, state_, permits_, first_, last_, expires_, since_, local_
      FROM `{p}lock` WHERE name = p_name AND holder = p_holder AND state <> 2 LIMIT 1;
    IF kind_ = p_kind AND state_ = 1 AND since_ = now_ THEN
      -- Let in by its own question: nothing has to be claimed.
      UPDATE `{p}lock` SET state = 0, expires = now_ + p_lease_ms * 1000, local_waiters = p_local_waiters, value = p_value
        WHERE name = p_name AND slot = mine_;
      SET answer = CONCAT('{1,', first_, ',', last_, ',', p_lease_ms, ',0,', permits_, more, '}');
    ELSEIF kind_ = p_kind THEN
      IF local_ <> p_local_waiters THEN
        UPDATE `{p}lock` SET local_waiters = p_local_waiters WHERE name = p_name AND slot = mine_;
      END IF;
      SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
      SET answer = CONCAT('{1,', first_, ',', last_, ',', (expires_ - now_) DIV 1000, ',', state_, ',', permits_, more, '}');
    ELSEIF kind_ IS NULL AND served >= {most} THEN
      SET answer = '{6}';
    ELSE
      IF kind_ IS NULL THEN
        SELECT kind, permits INTO kind_, permits_ FROM `{p}lock` WHERE name = p_name LIMIT 1;
      END IF;
      IF kind_ <> p_kind THEN
        SET answer = CONCAT('{4,', kind_, '}');
      ELSE
        SELECT COUNT(*), COALESCE(SUM(mode = 0 OR state = 2), 0), MIN(expires), MAX(expires),
            MAX(IF(mode = 0 OR state = 2, expires, NULL)), GREATEST(floor_, COALESCE(MAX(place), 0))
          INTO holders, barring, soonest, latest, latest_barring, floor_ FROM `{p}lock` WHERE name = p_name;
        SELECT place, lapses INTO place_, lapses_ FROM `{p}queue` WHERE name = p_name AND holder = p_holder LIMIT 1;
        IF lapses_ <= now_ THEN
          DELETE FROM `{p}queue` WHERE name = p_name AND place = place_;
          SET place_ = NULL;
        ELSEIF place_ IS NOT NULL THEN
          UPDATE `{p}queue` SET lapses = now_ + p_ticket_ms * 1000, window_ms = p_window_ms,
            tokens = LEAST(p_tokens, 1024), local_waiters = p_local_waiters WHERE name = p_name AND place = place_;
        END IF;
      END IF;
    END IF;
  END IF;

  IF answer IS NULL AND place_ IS NULL THEN
    SELECT place INTO head_place FROM `{p}queue` WHERE name = p_name AND place > floor_ LIMIT 1;
    IF head_place IS NULL AND CASE WHEN p_kind = 3 THEN holders < permits_
                                   WHEN p_kind = 2 AND p_mode = 1 THEN barring = 0
                                   ELSE holders = 0 END THEN
      SET first_ = token_ + 1, last_ = token_ + LEAST(p_tokens, 1024);
      IF holders > 0 THEN
        SELECT MIN(l.slot) + 1 INTO slot_ FROM `{p}lock` l LEFT JOIN `{p}lock` r ON r.name = l.name AND r.slot = l.slot + 1
          WHERE l.name = p_name AND r.slot IS NULL;
      END IF;
      INSERT INTO `{p}lock` (name, slot, holder, place, kind, mode, state, permits, first_token, last_token, expires, since,
          local_waiters, pid, host, label, value)
        VALUES (p_name, slot_, p_holder, last_place, p_kind, p_mode, 0, permits_, first_, last_, now_ + p_lease_ms * 1000, now_,
          p_local_waiters, p_pid, p_host, p_label, p_value);
      UPDATE `{p}stripe` SET token = token_ + 1024 WHERE id = stripe_;
      SET answer = CONCAT('{1,', first_, ',', last_, ',', p_lease_ms, ',0,', permits_, '}');
    ELSEIF NOT p_may_wait THEN
      SET answer = '{3}';
    ELSE
      SET place_ = last_place + 1;
      INSERT INTO `{p}queue` (name, place, holder, kind, mode, permits, window_ms, tokens, lapses, since, local_waiters,
          pid, host, label, value)
        VALUES (p_name, place_, p_holder, p_kind, p_mode, permits_, p_window_ms, LEAST(p_tokens, 1024),
          now_ + p_ticket_ms * 1000, now_, p_local_waiters, p_pid, p_host, p_label, p_value);
      UPDATE `{p}stripe` SET place = place_ WHERE id = stripe_;
    END IF;
  END IF;
  IF answer IS NULL THEN
    SELECT COUNT(*) INTO before_ FROM
      (SELECT 1 FROM `{p}queue` WHERE name = p_name AND place > floor_ AND place < place_ LIMIT 64) b;
    IF before_ = 0 THEN
      SET ask_ms = LEAST(ask_ms, (CASE WHEN p_kind = 3 THEN soonest WHEN p_kind = 2 AND p_mode = 1
        THEN COALESCE(latest_barring, latest) ELSE latest END - now_) DIV 1000 + 1);
    END IF;
    SET answer = CONCAT('{2,', GREATEST(ask_ms, 1), ',0,', permits_, ',', before_, '}');
  END IF;
  COMMIT;
  SELECT answer;
END
//
-- Compare-and-extend, for each of several holders; also the claim of what was handed over. Of each p_batch has: the length
-- of its name (1 byte), the name, the holder (16), lease in ms (6), how many new tokens (4), local waiters (4). Who wants
-- tokens comes alone: then the stripe can be locked before the row. Answers four numbers each: 1, first, last, remaining
-- ms; 2, ask again after ms, 0, permits: it waits; 0, 0, 0, 0: gone.
CREATE PROCEDURE IF NOT EXISTS `{p}renew`(p_batch MEDIUMBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: renews and claims'
BEGIN
  DECLARE at_ INT DEFAULT 1;
  DECLARE size_ INT DEFAULT LENGTH(p_batch);
  DECLARE length_, stripe_, permits_, looks, slot_ INT;
  DECLARE name_ VARBINARY(255);
  DECLARE holder_ VARBINARY(16);
  DECLARE lease_ms, tokens_, local_, now_, token_, first_, last_, expires_ BIGINT;
  DECLARE answers LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  WHILE at_ <= size_ DO
    SET length_ = ASCII(SUBSTRING(p_batch, at_, 1));
    SET name_ = SUBSTRING(p_batch, at_ + 1, length_), at_ = at_ + 1 + length_;
    SET holder_ = SUBSTRING(p_batch, at_, 16), lease_ms = CONV(HEX(SUBSTRING(p_batch, at_ + 16, 6)), 16, 10),
      tokens_ = CONV(HEX(SUBSTRING(p_batch, at_ + 22, 4)), 16, 10),
      local_ = CONV(HEX(SUBSTRING(p_batch, at_ + 26, 4)), 16, 10), at_ = at_ + 30;
    SET stripe_ = CRC32(name_) & 1023, looks = 0;
    IF tokens_ > 0 THEN SELECT token INTO token_ FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE; END IF;
    -- One that is not there may be entering just now, between a look at the grants and one at the queue: look twice.
    look: LOOP
      SET first_ = NULL, permits_ = NULL, slot_ = NULL, looks = looks + 1;
      SELECT slot INTO slot_ FROM `{p}lock` WHERE name = name_ AND holder = holder_ AND state <> 2 LIMIT 1;
      SELECT first_token, last_token, expires INTO first_, last_, expires_
        FROM `{p}lock` WHERE name = name_ AND slot = slot_ AND holder = holder_ AND state <> 2 FOR UPDATE;
      SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
      IF first_ IS NOT NULL AND expires_ <= now_ THEN SET first_ = NULL; END IF;
      IF first_ IS NOT NULL OR looks = 2 THEN LEAVE look; END IF;
      SELECT permits INTO permits_ FROM `{p}queue` WHERE name = name_ AND holder = holder_ AND lapses > now_ LIMIT 1;
      IF permits_ IS NOT NULL THEN LEAVE look; END IF;
    END LOOP;
    IF first_ IS NOT NULL THEN
      IF tokens_ > 0 THEN
        SET first_ = token_ + 1, last_ = token_ + LEAST(tokens_, 1024);
        UPDATE `{p}stripe` SET token = token_ + 1024 WHERE id = stripe_;
      END IF;
      UPDATE `{p}lock` SET expires = now_ + lease_ms * 1000, state = 0, local_waiters = local_, first_token = first_,
        last_token = last_ WHERE name = name_ AND slot = slot_;
      SET answers = CONCAT(answers, ',1,', first_, ',', last_, ',', lease_ms);
    ELSEIF permits_ IS NOT NULL THEN
      SET answers = CONCAT(answers, ',2,1,0,', permits_);
    ELSE
      SET answers = CONCAT(answers, ',0,0,0,0');
    END IF;
  END WHILE;
  COMMIT;
  SELECT CONCAT('{', SUBSTRING(answers, 2), '}') AS answer;
END
//
-- Release; with p_withdraw also out of the queue. Answers {1}: it was there, {0}: it was not; a second number: there is more to do
-- for others.
CREATE PROCEDURE IF NOT EXISTS `{p}leave`(p_name VARBINARY(255), p_holder VARBINARY(16), p_withdraw INT)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: releases, with hand-over'
BEGIN
  DECLARE stripe_ INT DEFAULT CRC32(p_name) & 1023;
  DECLARE now_, token_, floor_ BIGINT;
  DECLARE left_, served INT DEFAULT 0;
  DECLARE slot_ INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT token INTO token_ FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE;
  SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT slot INTO slot_ FROM `{p}lock` WHERE name = p_name AND holder = p_holder AND state <> 2 LIMIT 1;
  SELECT COALESCE(MAX(place), 0) INTO floor_ FROM `{p}lock` WHERE name = p_name;
  IF slot_ IS NOT NULL THEN
    DELETE FROM `{p}lock` WHERE name = p_name AND slot = slot_ AND expires > now_;
    SET left_ = ROW_COUNT();
    IF left_ = 0 THEN DELETE FROM `{p}lock` WHERE name = p_name AND slot = slot_; END IF;
  ELSEIF p_withdraw THEN
    DELETE FROM `{p}queue` WHERE name = p_name AND holder = p_holder AND lapses > now_;
    SET left_ = ROW_COUNT();
    IF left_ = 0 THEN DELETE FROM `{p}queue` WHERE name = p_name AND holder = p_holder; END IF;
  END IF;
  IF EXISTS (SELECT 1 FROM `{p}queue` WHERE name = p_name AND place > floor_) THEN
    CALL `{p}settle`(p_name, now_, stripe_, floor_, {most}, token_, served);
  END IF;
  COMMIT;
  SELECT CONCAT('{', left_, IF(served >= {most}, ',1', ''), '}') AS answer;
END
//
-- Exclusive to shared, keeping the token; waiting readers enter. Answers as renew; a fifth number: there is more to do for others.
CREATE PROCEDURE IF NOT EXISTS `{p}downgrade`(p_name VARBINARY(255), p_holder VARBINARY(16), p_lease_ms BIGINT, p_local_waiters INT)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: a writer becomes a reader'
BEGIN
  DECLARE stripe_ INT DEFAULT CRC32(p_name) & 1023;
  DECLARE now_, token_, floor_, first_, last_, expires_ BIGINT;
  DECLARE served, slot_ INT;
  DECLARE answer VARCHAR(100) CHARACTER SET ascii DEFAULT '{0,0,0,0}';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT token INTO token_ FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE;
  SELECT slot INTO slot_ FROM `{p}lock` WHERE name = p_name AND holder = p_holder AND state <> 2 AND kind = 2 LIMIT 1;
  SELECT first_token, last_token, expires INTO first_, last_, expires_
    FROM `{p}lock` WHERE name = p_name AND slot = slot_ FOR UPDATE;
  SELECT COALESCE(MAX(place), 0) INTO floor_ FROM `{p}lock` WHERE name = p_name;
  SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF expires_ > now_ THEN
    UPDATE `{p}lock` SET mode = 1, state = 0, expires = now_ + p_lease_ms * 1000, local_waiters = p_local_waiters
      WHERE name = p_name AND slot = slot_;
    CALL `{p}settle`(p_name, now_, stripe_, floor_, {most}, token_, served);
    SET answer = CONCAT('{1,', first_, ',', last_, ',', p_lease_ms, IF(served >= {most}, ',1', ''), '}');
  END IF;
  COMMIT;
  SELECT answer;
END
//
-- Answers {1}: done, {0}: this contender does not hold it.
CREATE PROCEDURE IF NOT EXISTS `{p}set_value`(p_name VARBINARY(255), p_holder VARBINARY(16), p_value MEDIUMBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: what a leader says'
BEGIN
  DECLARE now_, expires_ BIGINT;
  DECLARE slot_ INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT slot INTO slot_ FROM `{p}lock` WHERE name = p_name AND holder = p_holder AND state <> 2 LIMIT 1;
  SELECT expires INTO expires_ FROM `{p}lock` WHERE name = p_name AND slot = slot_ AND holder = p_holder FOR UPDATE;
  SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF expires_ > now_ THEN
    UPDATE `{p}lock` SET value = p_value WHERE name = p_name AND slot = slot_;
  END IF;
  COMMIT;
  SELECT IF(expires_ > now_, '{1}', '{0}') AS answer;
END
//
-- Takes the grant away whose block contains the token. Answers {1}: done, {0}: nobody holds it, {2}: held under another
-- token, {3}: broken already, {6}: nothing yet, ask again; a second number: there is more to do for others.
CREATE PROCEDURE IF NOT EXISTS `{p}break_lock`(p_name VARBINARY(255), p_token BIGINT, p_at_once INT)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: takes a grant away'
BEGIN
  DECLARE stripe_ INT DEFAULT CRC32(p_name) & 1023;
  DECLARE now_, token_, floor_, first_, found_, alive_ BIGINT;
  DECLARE served, slot_ INT;
  DECLARE answer VARCHAR(8) CHARACTER SET ascii DEFAULT '{1}';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT token INTO token_ FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE;
  SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT COALESCE(MAX(place), 0) INTO floor_ FROM `{p}lock` WHERE name = p_name;
  -- A grant that lapsed is none: all of those go first.
  CALL `{p}settle`(p_name, now_, stripe_, floor_, {most}, token_, served);
  -- Locked: a renewal of the same moment comes before this or finds nothing.
  SELECT COUNT(*), COALESCE(SUM(state <> 2), 0) INTO found_, alive_ FROM `{p}lock` WHERE name = p_name FOR UPDATE;
  SELECT slot, first_token INTO slot_, first_ FROM `{p}lock` WHERE name = p_name AND first_token <= p_token
    AND p_token <= last_token AND (state <> 2 OR p_at_once) LIMIT 1;
  IF served >= {most} THEN
    SET answer = '{6}';
  ELSEIF found_ = 0 THEN
    SET answer = '{0}';
  ELSEIF slot_ IS NULL THEN
    SET answer = IF(alive_ > 0, '{2}', '{3}');
  ELSEIF p_at_once THEN
    DELETE FROM `{p}lock` WHERE name = p_name AND slot = slot_;
    CALL `{p}settle`(p_name, now_, stripe_, floor_, {most}, token_, served);
    IF served >= {most} THEN SET answer = '{1,1}'; END IF;
  ELSE
    UPDATE `{p}lock` SET state = 2, holder = UNHEX(LPAD(HEX(first_), 16, '0')), value = ''
      WHERE name = p_name AND slot = slot_;
  END IF;
  COMMIT;
  SELECT answer;
END
//
-- Up to p_limit names from p_prefix on, after p_after, with their holders and waiters in order. Ids are not shown.
CREATE PROCEDURE IF NOT EXISTS `{p}look`(p_prefix VARBINARY(255), p_after VARBINARY(255), p_limit INT, p_exact INT)
READS SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: who holds and who waits'
BEGIN
  DECLARE now_ BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  WITH wanted AS (
    SELECT a.name FROM (
      SELECT l.name FROM `{p}lock` l WHERE l.expires > now_ AND l.name >= p_prefix AND l.name > p_after
        AND IF(p_exact, l.name = p_prefix, SUBSTRING(l.name, 1, LENGTH(p_prefix)) = p_prefix)
      UNION
      SELECT q.name FROM `{p}queue` q WHERE q.lapses > now_ AND q.name >= p_prefix AND q.name > p_after
        AND IF(p_exact, q.name = p_prefix, SUBSTRING(q.name, 1, LENGTH(p_prefix)) = p_prefix)) a
    ORDER BY a.name LIMIT p_limit)
  SELECT HEX(u.name), u.waits, u.kind, u.permits, u.mode, u.state, u.token, u.age DIV 1000, u.rest DIV 1000,
    u.local_waiters, u.pid, HEX(u.host), HEX(u.label), HEX(u.value) FROM (
    SELECT l.name, 'f' AS waits, l.kind, l.permits, l.mode, l.state, l.first_token AS token, now_ - l.since AS age,
      l.expires - now_ AS rest, l.local_waiters, l.pid, l.host, l.label, l.value, l.first_token AS ranked
      FROM `{p}lock` l JOIN wanted w ON w.name = l.name WHERE l.expires > now_
    UNION ALL
    SELECT q.name, 't', q.kind, q.permits, q.mode, 0, 0, now_ - q.since, 0, q.local_waiters, q.pid, q.host, q.label, '',
      q.place FROM `{p}queue` q JOIN wanted w ON w.name = q.name WHERE q.lapses > now_) u
  ORDER BY u.name, u.waits, u.ranked;
END
//
-- Removes what contenders left that ended without a word. Once a minute in the whole store, whoever asks, unless p_now.
-- A transaction for each name. Answers how many names it looked at; a second number: it stopped before the end, call again.
CREATE PROCEDURE IF NOT EXISTS `{p}sweep`(p_now INT)
MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'Sallyport: removes what the dead left'
BEGIN
  DECLARE now_ BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  DECLARE name_ VARBINARY(255);
  DECLARE token_ BIGINT;
  DECLARE stripe_, served INT;
  DECLARE looked, done, mine INT DEFAULT 0;
  DECLARE rest INT DEFAULT {most};  -- for so many contenders something may still be done
  DECLARE dead CURSOR FOR SELECT name FROM `{p}lock` WHERE expires <= now_
    UNION SELECT name FROM `{p}queue` WHERE lapses <= now_ LIMIT {most};
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  UPDATE `{p}state` SET swept = now_ WHERE one = 1 AND (p_now OR swept < now_ - 60000000);
  SET mine = ROW_COUNT();
  IF mine > 0 OR p_now THEN
    OPEN dead;
    each_name: LOOP
      FETCH dead INTO name_;
      IF done OR rest = 0 THEN LEAVE each_name; END IF;
      SET looked = looked + 1, stripe_ = CRC32(name_) & 1023;
      SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
      START TRANSACTION;
      SELECT token INTO token_ FROM `{p}stripe` WHERE id = stripe_ FOR UPDATE;
      SET now_ = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
      DELETE FROM `{p}queue` WHERE name = name_ AND lapses <= now_ ORDER BY place LIMIT rest;
      SET rest = rest - ROW_COUNT();
      IF rest > 0 THEN
        CALL `{p}settle`(name_, now_, stripe_, 0, rest, token_, served);
        SET rest = rest - served;
      END IF;
      COMMIT;
      SET done = 0;
    END LOOP;
    CLOSE dead;
    IF rest = 0 OR looked >= {most} THEN UPDATE `{p}state` SET swept = 0 WHERE one = 1; END IF;
  END IF;
  SELECT CONCAT('{', looked, IF(rest = 0 OR looked >= {most}, ',1', ''), '}') AS answer;
END
//
INSERT IGNORE INTO `{p}state` (one, version, store, swept) VALUES (1, {version}, UUID(), 0)
