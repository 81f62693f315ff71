/*
 * May a member of a lock on a majority of three, or of five, be replaced while clients run?
 *
 * A server's mark is a state and a roster, and is compared as a whole. Rosters have numbers here: roster 1 has the servers
 * 0, 1 and 2, and epoch 1; two replacers want the rosters 2 and 3.
 *   1. A replacer takes the members that stay, one at a time: from exactly `full` of the roster that it changes to `full` of
 *      the new one, in one step. Whoever finds anything else stops. That is all that a replacer does; no vote and no counter is touched.
 *   2. Votes count if they have marks of one roster, and a majority is one of that roster. So nothing is granted in the old
 *      roster once too few have its marks, and two majorities meet in a member that stayed, unless the new server votes.
 *   3. The new server is blank, and comes in as a member that lost its data. Whoever has seen a majority of full marks of a
 *      roster notes a blank member of it as quiet, also one with a mark of an earlier epoch. When everything that was
 *      under way by then is over, the counters of a majority of others with full marks of that roster are read, each in the
 *      step in which its mark is compared. Then it gets the largest of them, and is full.
 *   4. A member that was left behind, with the full mark of an earlier roster, is taken by whoever has seen a majority.
 *      Of three members nobody can be: both that stay are the majority. So there are five in some variants.
 *   5. A renewal counts votes of one roster, and extends what it counts.
 * What may happen: servers lose their data, at any time; a replacer ends anywhere, also between a step and its answer:
 * it is not scheduled any more. Clients may believe in a roster long after it was replaced. An attempt reaches any servers:
 * lists only leave out some of what may happen here. The old member lives on.
 *
 * There is no clock. The longest lease has passed when every attempt that was under way is over, or was renewed since.
 */

#ifndef MEMBERS
#define MEMBERS 3               /* or 5, with one replacer: 4 is replaced by 5 */
#endif
#if MEMBERS == 5
#define SERVERS 6
#define MAJORITY 3
#else
#ifndef SERVERS
#define SERVERS 4               /* 0, 1, 2: the members; 3: the new one; 4: that of another replacement */
#endif
#define MAJORITY 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef REPLACERS
#define REPLACERS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef RENEWALS
#define RENEWALS 1              /* of each holder */
#endif

#define SAME 0                  /* both replace 2 by 3; roster 3 is not used */
#define OTHER_NEW 1             /* the second one replaces 2 by 4 */
#define OTHER_OLD 2             /* the second one replaces 1 by 4 */
#define SEQUEL 3                /* the second one replaces 1 by 4 in roster 2: epoch 3 */
#ifndef SECOND
#define SECOND SAME
#endif

#ifndef VOTES_AT_ONCE
#define VOTES_AT_ONCE 0         /* rule 3 without the wait */
#endif
#ifndef NOT_PRIMED
#define NOT_PRIMED 0            /* rule 3 without the counters */
#endif
#ifndef MINORITY_SUFFICES
#define MINORITY_SUFFICES 0     /* rule 3: one full mark of a roster is believed */
#endif
#ifndef ONE_TELLS
#define ONE_TELLS 0             /* rule 3: counters of one member only, after a majority was seen */
#endif
#ifndef READ_UNCOMPARED
#define READ_UNCOMPARED 0       /* rule 3: counters of whoever was known as a member, whatever its mark is by now */
#endif
#ifndef TAKEN_UNCOMPARED
#define TAKEN_UNCOMPARED 0      /* rule 1: whatever the mark is, if there is one */
#endif
#ifndef VOTES_UNCOMPARED
#define VOTES_UNCOMPARED 0      /* rule 2: in the old roster marks of later ones count as well */
#endif
#ifndef MIXED_RENEWAL
#define MIXED_RENEWAL 0         /* rule 5: a renewal counts all votes that it has, whatever their rosters are */
#endif

#define bit(i) (1 << (i))
#define has(set, i) (((set) >> (i)) & 1)
#define size(set) (has(set, 0) + has(set, 1) + has(set, 2) + has(set, 3) + has(set, 4) + has(set, 5))

mtype:state = { blank, voter, quiet };

#if SECOND == OTHER_NEW
#define third_roster 19         /* 0, 1, 4 */
#define third_survivors 3
#elif SECOND == OTHER_OLD
#define third_roster 21         /* 0, 2, 4 */
#define third_survivors 5
#elif SECOND == SEQUEL
#define third_roster 25         /* 0, 3, 4 */
#define third_survivors 9
#else
#define third_roster 11
#define third_survivors 3
#endif
#if MEMBERS == 5
#define roster(r) ((r) == 1 -> 31 : 47)
#define survivors(r) 15
#else
#define roster(r) ((r) == 1 -> 7 : ((r) == 2 -> 11 : third_roster))
#define survivors(r) ((r) == 2 -> 3 : third_survivors)
#endif
#define epoch(r) ((r) == 1 -> 1 : ((r) == 3 && SECOND == SEQUEL -> 3 : 2))
#define before(r) ((r) == 3 && SECOND == SEQUEL -> 2 : 1)

mtype:state mark[SERVERS];      /* its state */
byte belongs[SERVERS];          /* and its roster */
byte awaited[SERVERS];          /* quiet: attempts that were under way when it was noted */
byte noted[SERVERS];            /* quiet: the counter that was read for it, and one more; 0: none yet */
byte key[SERVERS];              /* whom it votes for; 0: nobody */
byte counter[SERVERS];
byte in_force;                  /* rosters of which a majority of full marks was seen */

byte begun, finished;           /* attempts: 1 .. begun; a set */
byte holders, highest, losses, replacers;
byte grants_later, kept;        /* for witnesses */
#ifdef WITNESS_LEFT_BEHIND
byte moved, by_left_behind;     /* servers that a client has taken; how many of them voted for a grant */
#endif

#define under_way ((bit(begun + 1) - 2) & ~finished)
#define is_full(s, r) (mark[s] == voter && belongs[s] == (r) && has(roster(r), s))
#if SERVERS > 5
#define HOW_MANY(IS, r) (IS(0, r) + IS(1, r) + IS(2, r) + IS(3, r) + IS(4, r) + IS(5, r))
#elif SERVERS > 4
#define HOW_MANY(IS, r) (IS(0, r) + IS(1, r) + IS(2, r) + IS(3, r) + IS(4, r))
#else
#define HOW_MANY(IS, r) (IS(0, r) + IS(1, r) + IS(2, r) + IS(3, r))
#endif

/* ---- One attempt ----------------------------------------------------------------------------- */

#if VOTES_UNCOMPARED
#define votes_in(s, r) (mark[s] == voter && belongs[s] >= (r) && has(roster(r), s))
#else
#define votes_in(s, r) is_full(s, r)
#endif

#define VOTE(s) d_step { key[s] == 0 && !has(votes, s) && votes_in(s, (mine == 0 -> belongs[s] : mine)) -> \
  mine = (mine == 0 -> belongs[s] : mine); key[s] = me; counter[s]++; answer[s] = counter[s]; votes = votes | bit(s); \
  printf("%d: vote of server %d in roster %d; counter %d\n", me, s, mine, counter[s]) }

/* Servers whose answer was the token itself count as raised; the others are raised if they are still ours. */
inline fix_token() {
  byte n;
  for (n : 0 .. SERVERS - 1) {
    if
    :: answer[n] > token -> token = answer[n]
    :: else
    fi
  }
  for (n : 0 .. SERVERS - 1) {
    if
    :: answer[n] == token -> raised++
    :: answer[n] > 0 && answer[n] < token && key[n] == me && votes_in(n, mine) -> counter[n] = token; raised++
    :: else
    fi;
    answer[n] = 0
  }
  n = 0; votes = 0
}

#define voted_left_behind(s, r) (key[s] == me && has(moved, s))

inline enter() {
  printf("%d: enters with token %d\n", me, token);
  assert(holders == 0);                 /* nobody else is inside */
  assert(token > highest);              /* and no token like it, or larger, was given out */
  holders++; highest = token; inside = true; raised = 0;
#ifdef WITNESS
  grants_later = grants_later + (mine > 1 && key[3] == me);
  assert(grants_later < WITNESS);       /* fails if so many can succeed with the new server: the model is not idle */
#endif
#ifdef WITNESS_LEFT_BEHIND
  by_left_behind = HOW_MANY(voted_left_behind, mine);
  assert(by_left_behind < WITNESS_LEFT_BEHIND);  /* fails if so many that were left behind can vote in the new roster */
#endif
#ifdef WITNESS_THIRD
  assert(mine < 3);                     /* fails if the second replacement comes about, too */
#endif
}

#if MIXED_RENEWAL
#define keeps(s, r) (key[s] == me && mark[s] == voter)
#else
#define keeps(s, r) (key[s] == me && is_full(s, r))
#endif

/* Extends its votes in one roster and draws a token there. What was not extended ends. */
inline renew(r) {
  byte n;
  for (n : 0 .. SERVERS - 1) {
    if
    :: keeps(n, r) -> counter[n]++; if :: counter[n] > token -> token = counter[n] :: else fi
    :: key[n] == me && !keeps(n, r) -> key[n] = 0
    :: else
    fi
  }
  for (n : 0 .. SERVERS - 1) {
    if
    :: key[n] == me -> counter[n] = token
    :: else
    fi;
    awaited[n] = awaited[n] & ~bit(me)
  }
  n = 0;
  renewals++;
  printf("%d: is renewed in roster %d, and draws %d\n", me, r, token);
  assert(token > highest);
  highest = token;
#ifdef WITNESS_KEPT
  kept = kept + (r > mine);
  assert(kept < WITNESS_KEPT);          /* fails if a holder can live across a replacement */
#endif
}

#define RENEW(r) d_step { inside && renewals < RENEWALS && HOW_MANY(keeps, r) >= MAJORITY -> renew(r) }

inline leave() {
  byte n;
  for (n : 0 .. SERVERS - 1) {
    if
    :: key[n] == me -> key[n] = 0
    :: else
    fi;
    answer[n] = 0
  }
  n = 0;
  holders = holders - inside;
  finished = finished | bit(me);
  printf("%d: is over\n", me);
  inside = false; votes = 0; raised = 0; token = 0; mine = 0; renewals = 0
}

proctype attempt(byte me) {
  byte mine, votes, raised, token, renewals;
  byte answer[SERVERS];
  bool inside;

  /* In the order of their ids: attempts are alike. */
  d_step { begun == me - 1 -> begun = me; printf("%d: begins\n", me) };
  do
  :: size(votes) < MAJORITY ->
     if
     :: VOTE(0) :: VOTE(1) :: VOTE(2) :: VOTE(3)
#if SERVERS > 4
     :: VOTE(4)
#endif
#if SERVERS > 5
     :: VOTE(5)
#endif
     :: break                           /* gives up, or dies */
     fi
  :: d_step { size(votes) >= MAJORITY -> fix_token() };
     if
     :: d_step { raised >= MAJORITY -> enter() }
     :: else
     fi;
     break
  od;
  do
  :: RENEW(1) :: RENEW(2)
#if SERVERS == 5
  :: RENEW(3)
#endif
  :: break
  od;
  /* It gave the lock back, or its time is up. */
  atomic { leave() }
}

/* ---- A replacer -------------------------------------------------------------------------------- */

#define may_be_taken(s) (is_full(s, before(mine)) || TAKEN_UNCOMPARED && mark[s] != blank && belongs[s] != mine)

/* In any order: not all replacers see the same servers. */
#define TAKE(s) d_step { !has(taken, s) && has(survivors(mine), s) -> \
  if \
  :: may_be_taken(s) -> mark[s] = voter; belongs[s] = mine; awaited[s] = 0; noted[s] = 0; \
     printf("server %d is taken into roster %d\n", s, mine) \
  :: else \
  fi; \
  taken = taken | bit(s) }

proctype replacer(byte number) {
  byte mine, taken;

  d_step { replacers == number -> replacers++; mine = (SECOND == SAME -> 2 : number + 2) };
  do
  :: taken != survivors(mine) -> if :: TAKE(0) :: TAKE(1) :: TAKE(2) :: TAKE(3) fi
  :: taken == survivors(mine) -> break
  od;
  atomic { mine = 0; taken = 0 }
}

/* ---- What happens to servers, and what clients do about it ------------------------------------- */

#define LOSE(s) d_step { losses < LOSSES && mark[s] != blank -> \
  losses++; mark[s] = blank; belongs[s] = 0; awaited[s] = 0; noted[s] = 0; key[s] = 0; counter[s] = 0; \
  printf("server %d loses its data\n", s) }

#define SEE(r) d_step { !has(in_force, r) && HOW_MANY(is_full, r) >= (MINORITY_SUFFICES -> 1 : MAJORITY) -> \
  in_force = in_force | bit(r); printf("somebody sees roster %d\n", r) }

#define is_earlier(s, r) (mark[s] != blank && epoch(belongs[s]) < epoch(r))

#define NOTE(r, s) d_step { has(in_force, r) && has(roster(r), s) && (mark[s] == blank || is_earlier(s, r)) -> \
  mark[s] = quiet; belongs[s] = r; noted[s] = 0; awaited[s] = (VOTES_AT_ONCE -> 0 : under_way); \
  printf("server %d is quiet in roster %d\n", s, r) }

#ifdef WITNESS_LEFT_BEHIND
#define note_moved(s) moved = moved | bit(s)
#else
#define note_moved(s) skip
#endif

#define LEFT_BEHIND(r, s) d_step { has(in_force, r) && has(roster(r), s) && mark[s] == voter && is_earlier(s, r) -> \
  belongs[s] = r; note_moved(s); printf("server %d is taken into roster %d by a client\n", s, r) }

#if READ_UNCOMPARED
#define tells(s, r) (has(roster(r), s) && mark[s] != blank)
#else
#define tells(s, r) is_full(s, r)
#endif
/* The asker itself is quiet. */
#if ONE_TELLS || MINORITY_SUFFICES
#define ENOUGH 1
#else
#define ENOUGH MAJORITY
#endif

#define note_that_of(r, s, t) \
  if \
  :: (s) != (t) && tells(t, r) && counter[t] >= noted[s] -> noted[s] = counter[t] + 1 \
  :: else \
  fi

#define READ(r, s) d_step { mark[s] == quiet && belongs[s] == (r) && noted[s] == 0 && (awaited[s] & ~finished) == 0 && \
    HOW_MANY(tells, r) - tells(s, r) >= ENOUGH -> \
  note_that_of(r, s, 0); note_that_of(r, s, 1); note_that_of(r, s, 2); note_that_of(r, s, 3); \
  note_that_of(r, s, SERVERS - 2); note_that_of(r, s, SERVERS - 1) }

#define REJOIN(r, s) d_step { mark[s] == quiet && belongs[s] == (r) && noted[s] != 0 -> \
  counter[s] = (!NOT_PRIMED && noted[s] - 1 > counter[s] -> noted[s] - 1 : counter[s]); \
  mark[s] = voter; noted[s] = 0; awaited[s] = 0; key[s] = 0; \
  printf("server %d is full in roster %d, at %d\n", s, r, counter[s]) }

#if MEMBERS == 5
#define FOR_ALL(STEP) :: STEP(1, 0) :: STEP(1, 1) :: STEP(1, 2) :: STEP(1, 3) :: STEP(1, 4) \
  :: STEP(2, 0) :: STEP(2, 1) :: STEP(2, 2) :: STEP(2, 3) :: STEP(2, 5)
#else
#define FOR_ONE_AND_TWO(STEP) :: STEP(1, 0) :: STEP(1, 1) :: STEP(1, 2) :: STEP(2, 0) :: STEP(2, 1) :: STEP(2, 3)
#if SERVERS > 4
#define FOR_ALL(STEP) FOR_ONE_AND_TWO(STEP) :: STEP(3, 0) :: STEP(3, 1) :: STEP(3, 2) :: STEP(3, 3) :: STEP(3, 4)
#else
#define FOR_ALL(STEP) FOR_ONE_AND_TWO(STEP)
#endif
#endif

proctype world() {
end:
  do
  :: LOSE(0) :: LOSE(1) :: LOSE(2) :: LOSE(3)
  :: SEE(2)
#if SERVERS > 4
  :: LOSE(4)
#endif
#if SERVERS > 5
  :: LOSE(5)
#elif SERVERS > 4
  :: SEE(3)
#endif
  FOR_ALL(NOTE)
  FOR_ALL(READ)
  FOR_ALL(REJOIN)
  FOR_ALL(LEFT_BEHIND)
  od
}

init {
  byte n;
  atomic {
    for (n : 0 .. SERVERS - 1) {
      if
      :: n < MEMBERS -> mark[n] = voter; belongs[n] = 1
      :: else -> mark[n] = blank
      fi
    }
    in_force = bit(1);
    n = 1;
    do
    :: n <= ATTEMPTS -> run attempt(n); n++
    :: n > ATTEMPTS -> break
    od;
    n = 0;
    run replacer(0);
#if REPLACERS > 1
    run replacer(1);
#endif
    run world()
  }
}
