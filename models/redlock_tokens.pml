/*
 * Fencing tokens from a quorum of independent Redis masters: are they unique, and do they grow?
 *
 * A node has one lock key (who owns it) and one counter. To get the lock and a token, an attempt
 *   1. SETs the key to its own id on every node where it is absent; the same script increments that
 *      node's counter and answers it. S is the set of nodes whose answer came in time;
 *   2. with a majority in S, fixes its token: the largest answer;
 *   3. raises the counters of S to the token. R is the set of nodes that are known to be raised;
 *   4. returns the token when R is a majority.
 * Which of these steps may be weakened, and what may happen to nodes, is what the macros below say.
 *
 * One process is one attempt with a fresh id, not one client: a client that tries again is simply
 * another attempt. There is no clock at all: whatever a late timer could do, a process that is
 * scheduled late does here.
 *
 * The network: a step of a node and the arrival of its answer are one step of the model (an answer
 * that is under way and a client that is slow to look at it are the same), or the answer is never
 * heard ("unheard"). A request may be executed long after its attempt gave up or returned. One that
 * is never executed, and a SET that finds the key taken, need no step: nothing happens.
 */

#ifndef N
#define N 3                     /* nodes; 3 or 5 */
#endif
#define MAJORITY (N / 2 + 1)
#ifndef ATTEMPTS
#define ATTEMPTS 2              /* at most 4 */
#endif
#ifndef FIRST_COUNTER
#define FIRST_COUNTER 2         /* counters begin anywhere from 0 to this */
#endif

/* How the lower counters are raised before the token is returned. */
#define NOT_AT_ALL 0
#define BEST_EFFORT 1           /* sent, but nobody waits for the answers */
#define UNCONDITIONAL 2         /* acknowledged by a majority, whoever owns the key by then */
#define IF_OWNER 3              /* acknowledged by a majority, each if the key is still ours */
#ifndef RAISE
#define RAISE IF_OWNER
#endif
#ifndef EQUAL_COUNTS
#define EQUAL_COUNTS 1          /* a node whose answer was the token itself needs no raise */
#endif
#ifndef MOST_OF_S_SUFFICES
#define MOST_OF_S_SUFFICES 0    /* R is more than half of S, not of all nodes */
#endif
#ifndef LATE_OK_COUNTS
#define LATE_OK_COUNTS 0        /* R may hold nodes that answered after the token was fixed */
#endif
#ifndef REPEATED_SETS
#define REPEATED_SETS 0         /* so often a SET is executed again, where the key was lost */
#endif

/*
 * Keys that vanish while their attempt is under way: a clock step, eviction, somebody's DEL. With
 * this, any key may vanish at any time. All that a vanished key does is to keep its owner from
 * raising, which may fail to happen anyway, and to let somebody else's SET in. So it needs no step
 * of its own: a SET finds the key absent whenever it likes.
 */
#ifndef EARLY_LOSSES
#define EARLY_LOSSES 1
#endif

/* One node may restart without its key. What does it know of its counter, and when is it back? */
#define NEVER 0
#define DURABLE 1               /* the counter was on disk; back at once */
#define AMNESIA 2               /* the counter begins at 0; back at once */
#define AMNESIA_LATER 3         /* the counter begins at 0; back when what was under way is over */
#define REJOIN_AT_ONCE 4        /* back at once, with the largest counter of a majority of others */
#define REJOIN_QUIET 5          /* waits till what was under way is over, then asks others */
#define REJOIN_ASKS_EARLY 6     /* asks others at once, then waits */
#ifndef RESTART
#define RESTART NEVER
#endif
#ifndef OTHERS_ASKED
#define OTHERS_ASKED MAJORITY   /* so many others it asks; itself it cannot ask */
#endif

byte key[N];                    /* the id of the owner; 0: absent */
byte counter[N];

byte begun;                     /* attempts that have begun: 1 .. begun */
byte finished;                  /* a set of attempts: returned, or given up */
byte repeats;                   /* SETs that were executed a second time */

byte down;                      /* the node that is away, plus 1; 0: none is */
bool restarted;
byte awaited;                   /* attempts that were under way when it crashed */
byte asked_others, best;        /* for its return: whom it has asked, the largest counter heard */

short returned;                 /* a set of tokens */
byte highest;                   /* the largest token returned so far */
byte grants;                    /* how many attempts have returned; for WITNESS */

#define bit(i) (1 << (i))
#define has(set, i) (((set) >> (i)) & 1)
#define size(set) (has(set, 0) + has(set, 1) + has(set, 2) + has(set, 3) + has(set, 4))
#define up(i) (down != (i) + 1)

/* Options of a loop, one for each node. */
#if N == 3
#define SOME_NODE(step) :: step(0) :: step(1) :: step(2)
#elif N == 5
#define SOME_NODE(step) :: step(0) :: step(1) :: step(2) :: step(3) :: step(4)
#else
#error N is 3 or 5
#endif

/* ---- What nodes do for attempt `me` ---------------------------------------------------------- */

inline set_key(i) {
  key[i] = me;
  counter[i]++;
  sent = sent | bit(i)
}

#define is_free(i) (up(i) && (EARLY_LOSSES || key[i] == 0))
#define can_set(i) (!has(sent, i) && is_free(i))

#define SET_HEARD(i) d_step { can_set(i) -> \
  set_key(i); in_time = in_time | bit(i); answer[i] = counter[i]; \
  printf("%d: SET on node %d, answered %d\n", me, i, counter[i]) }

#define SET_UNHEARD(i) d_step { can_set(i) -> \
  set_key(i); \
  printf("%d: SET on node %d, unheard; counter %d\n", me, i, counter[i]) }

/* A SET that was sent twice, or that a proxy repeated: it re-creates the key with the same id. */
#define SET_REPEATED(i) d_step { \
  has(sent, i) && is_free(i) && repeats < REPEATED_SETS -> \
  repeats++; set_key(i); \
  printf("%d: SET on node %d once more; counter %d\n", me, i, counter[i]) }

/* The answer comes after the token was fixed. Whether it counts is the question. */
#define SET_LATE(i) d_step { LATE_OK_COUNTS && can_set(i) -> \
  set_key(i); in_time = in_time | bit(i); \
  printf("%d: SET on node %d, answered %d too late\n", me, i, counter[i]) }

#define can_raise(i) (token > 0 && up(i) && (RAISE != IF_OWNER || key[i] == me))

inline raise_counter(i) {
  if
  :: counter[i] < token -> counter[i] = token
  :: else
  fi
}

#define RAISE_HEARD(i) d_step { can_raise(i) && has(in_time, i) && !has(raised, i) -> \
  raise_counter(i); raised = raised | bit(i); \
  printf("%d: raise on node %d to %d, acknowledged\n", me, i, token) }

/* Executed late. (Before that, an unheard raise is a heard one of an attempt that then fails.) */
#define RAISE_LATE(i) d_step { RAISE != NOT_AT_ALL && can_raise(i) && counter[i] < token -> \
  raise_counter(i); \
  printf("%d: raise on node %d to %d, late\n", me, i, token) }

/* ---- One attempt ----------------------------------------------------------------------------- */

inline fix_token() {
  byte n;
  for (n : 0 .. N - 1) {
    if
    :: answer[n] > token -> token = answer[n]
    :: else
    fi
  }
  for (n : 0 .. N - 1) {
    if
    :: EQUAL_COUNTS && has(in_time, n) && answer[n] == token -> raised = raised | bit(n)
    :: else
    fi;
    answer[n] = 0
  }
  n = 0;
  printf("%d: token is %d\n", me, token)
}

/* The two promises, and what can be had in fair weather on top. */
inline return_token() {
  printf("%d: returns %d\n", me, token);
  assert(!has(returned, token));        /* no two attempts return the same token */
  assert(token > floor);                /* larger than all that were returned before it began */
#if !EARLY_LOSSES && RESTART == NEVER
  assert(token > highest);              /* larger than all that were returned until now */
#endif
  returned = returned | bit(token);
  grants++;
  if
  :: token > highest -> highest = token
  :: else
  fi;
#ifdef WITNESS
  assert(grants < WITNESS);             /* fails if so many can succeed: the model is not idle */
#endif
}

#if RAISE == NOT_AT_ALL || RAISE == BEST_EFFORT
#define may_return 1
#elif MOST_OF_S_SUFFICES
#define may_return (size(raised) > size(in_time) / 2)
#else
#define may_return (size(raised) >= MAJORITY)
#endif

proctype attempt(byte me) {
  byte sent;                    /* nodes where the SET was executed */
  byte in_time;                 /* S */
  byte raised;                  /* R, always within S */
  byte answer[N];
  byte token;
  byte floor;                   /* the largest token that was returned before this attempt began */

  /* In the order of their ids: attempts are alike, so no other order is any different. */
  d_step { begun == me - 1 -> begun = me; floor = highest }

  do
  SOME_NODE(SET_HEARD)
  SOME_NODE(SET_UNHEARD)
#if REPEATED_SETS
  SOME_NODE(SET_REPEATED)
#endif
  :: d_step { size(in_time) >= MAJORITY -> fix_token() }; break
  :: goto over                          /* gives up, or dies */
  od;

  do
  SOME_NODE(RAISE_HEARD)
  SOME_NODE(SET_UNHEARD)
#if LATE_OK_COUNTS
  SOME_NODE(SET_LATE)
#endif
#if REPEATED_SETS
  SOME_NODE(SET_REPEATED)
#endif
  :: d_step { may_return -> return_token() }; break
  :: break                              /* gives up, or dies */
  od;

over:
  atomic {
    printf("%d: is over\n", me);
    finished = finished | bit(me); in_time = 0; raised = 0; floor = 0;
    answer[0] = 0; answer[1] = 0; answer[2] = 0;
#if N == 5
    answer[3] = 0; answer[4] = 0;
#endif
  }

  /* What is still in the network. */
end:
  do
  SOME_NODE(SET_UNHEARD)
  SOME_NODE(RAISE_LATE)
  od
}

/* ---- What happens to nodes ------------------------------------------------------------------- */

/* The attempt is over: it has released the key, or the lease ended. */
#define KEY_ENDS(i) d_step { key[i] != 0 && has(finished, key[i]) -> \
  printf("node %d: the key of %d ends\n", i, key[i]); key[i] = 0 }

#define CRASH(i) d_step { !restarted -> \
  printf("node %d: restarts\n", i); \
  restarted = true; key[i] = 0; \
  counter[i] = (RESTART == DURABLE -> counter[i] : 0); \
  down = (RESTART >= AMNESIA_LATER -> (i) + 1 : 0); \
  awaited = (RESTART >= AMNESIA_LATER -> (bit(begun + 1) - 2) & ~finished : 0) }

/* In the real world: the longest lease has passed since the crash. */
#define all_is_over ((awaited & ~finished) == 0)
#define may_ask_others (RESTART != REJOIN_QUIET || all_is_over)
#define may_return_to_work (RESTART == REJOIN_AT_ONCE || all_is_over)

#define ASK_OTHER(i) d_step { \
  down != 0 && may_ask_others && up(i) && !has(asked_others, i) && \
  size(asked_others) < OTHERS_ASKED -> \
  asked_others = asked_others | bit(i); best = (counter[i] > best -> counter[i] : best); \
  printf("node %d: asked node %d, counter %d\n", down - 1, i, counter[i]) }

proctype world() {
end:
  do
  :: false                              /* there may be no other option */
#if !EARLY_LOSSES
  SOME_NODE(KEY_ENDS)
#endif
#if RESTART != NEVER
  SOME_NODE(CRASH)
#endif
#if RESTART == AMNESIA_LATER
  :: d_step { down != 0 && all_is_over -> down = 0; awaited = 0; printf("back, at 0\n") }
#endif
#if RESTART >= REJOIN_AT_ONCE
  SOME_NODE(ASK_OTHER)
  :: d_step { down != 0 && size(asked_others) >= OTHERS_ASKED && may_return_to_work ->
       printf("node %d: back, at %d\n", down - 1, best);
       counter[down - 1] = best; down = 0; awaited = 0; asked_others = 0; best = 0 }
#endif
  od
}

init {
  byte n;
  atomic {
    /* Any counters, but in ascending order: nodes are alike, so no other order is any different. */
    n = 0;
    do
    :: n < N && counter[n] < FIRST_COUNTER -> counter[n]++
    :: n < N && (n == 0 || counter[n] >= counter[n - 1]) -> n++
    :: n == N -> break
    od;
    n = 1;
    do
    :: n <= ATTEMPTS -> run attempt(n); n++
    :: n > ATTEMPTS -> break
    od;
    n = 0;
    run world()
  }
}
