/*
 * Handing a lock of a quorum of Redis masters over to a waiter, instead of leaving it to a race.
 *
 * The nodes, the tokens and the network are those of redlock_tokens.pml; read that first. New is
 * how a waiter W gets the keys of the holder X:
 *   1. X ends its own lease. Then on every node, in one script: if the key is X, it becomes `W|X`,
 *      good for a claim window, and W is told. `W|X` is an id made of W's registration and X;
 *   2. W claims where it was told: if the key is `W|X`, it is made to last for a lease, and the
 *      counter is incremented and answered. W's deadline counts from before its first claim;
 *   3. with a majority of answers W fixes its token, raises, and returns, as everybody does. With
 *      fewer it releases `W|X` everywhere and tries again like anybody else.
 *
 * So there are two kinds of attempts: ordinary ones begin with a SET where the key is absent, heirs
 * with a hand-off from another attempt and a claim. From there on they are the same process. A
 * client that tries again after a failure is another attempt.
 *
 * A hand-off may be executed at any time after X has ended its lease, or never (X died; the request
 * was lost), and again and again: that X sends it once is not assumed. On each node X may choose
 * another heir. X may also be an attempt that failed and has a few nodes to give away. A notice
 * that is lost is a claim that is never made.
 */

#define N 3
#define MAJORITY 2

/* Who takes part. is_from(h, x): keys of x may become keys of heir h. */
#define RIVAL 1                 /* X, a rival, and W|X */
#define TWO_HEIRS 2             /* X, W|X and V|X */
#define CHAIN 3                 /* X, W|X and V|(W|X) */
#define RIVAL_LEAVES_TOO 4      /* X, a rival B, W|X and W|B */
#define CHAIN_AND_RIVAL 5       /* X, a rival, W|X and V|(W|X) */
#define SAME_ID 6               /* broken: X, a rival B, and W, heir of both by one id */
#define MIXED 7                 /* X, a rival B, and W, who counts W|X and W|B together */
#ifndef CAST
#define CAST RIVAL
#endif

#if CAST == RIVAL
#define ORDINARY 2
#define IDS 3
#define is_from(h, x) ((x) == 1)
#elif CAST == TWO_HEIRS
#define ORDINARY 1
#define IDS 3
#define is_from(h, x) ((x) == 1)
#elif CAST == CHAIN
#define ORDINARY 1
#define IDS 3
#define is_from(h, x) ((x) == (h) - 1)
#elif CAST == RIVAL_LEAVES_TOO
#define ORDINARY 2
#define IDS 4
#define is_from(h, x) ((x) == (h) - 2)
#elif CAST == CHAIN_AND_RIVAL
#define ORDINARY 2
#define IDS 4
#define is_from(h, x) (((h) == 3 && (x) == 1) || ((h) == 4 && (x) == 3))
#elif CAST == SAME_ID
#define ORDINARY 2
#define IDS 3
#define is_from(h, x) ((x) == 1 || (x) == 2)
#elif CAST == MIXED
#define ORDINARY 2
#define IDS 3                           /* W|X is 3, W|B is 4; both belong to the process 3 */
#define is_from(h, x) ((x) == 1 || (x) == 2)
#else
#error no such CAST
#endif
#define is_heir(id) ((id) > ORDINARY)

/* The id of heir h by a hand-off from x; whether an id is one of h's. */
#define heir_id(h, x) (CAST == MIXED -> (x) + 2 : (h))
#define is_id_of(h, id) ((id) == (h) || (CAST == MIXED && is_heir(h) && (id) == 4))

/*
 * Two questions, and a model for each.
 * Without time: are tokens unique, and do they grow? Any key may vanish at any time (clock steps,
 * eviction, somebody's DEL, and of course leases that end), so that an ordinary SET finds the key
 * absent whenever it likes.
 * With time: do two attempts ever both believe to hold the lock? A key ends when it was released
 * or when its time is up. Counters have no say in this, so there are none, and no raise: an attempt
 * may return as soon as it has a majority.
 */
#ifndef TIMED
#define TIMED 0
#endif
#define LEASE 2                 /* ticks */
#define WINDOW 1

#if TIMED
#define FIRST_COUNTER 0
#endif
#ifndef FIRST_COUNTER
#define FIRST_COUNTER 1         /* counters begin anywhere from 0 to this */
#endif

/* What may be broken, or is done in another way. */
#ifndef WAITS_AGAIN
#define WAITS_AGAIN 0           /* 1: an heir that gave up waits once more, by the same id */
#endif
#ifndef CLAIM_INCREMENTS
#define CLAIM_INCREMENTS 1      /* 0: a claim only extends, and answers the counter as it is */
#endif
#ifndef LATE_CLAIM_COUNTS
#define LATE_CLAIM_COUNTS 0     /* R may hold nodes that answered the claim after T was fixed */
#endif
#ifndef REPEATED_CLAIMS
#define REPEATED_CLAIMS 0       /* so often a claim is sent again; its second answer counts */
#endif
#ifndef DRAWS_AGAIN
#define DRAWS_AGAIN 0           /* 1: a holder gets more tokens, once, by claiming what it holds */
#endif
#ifndef BLOCK
#define BLOCK 1                 /* tokens drawn by one grant: T - BLOCK + 1 .. T */
#endif
#ifndef RAISE_TO_FIRST
#define RAISE_TO_FIRST 0        /* 1: counters are raised to the block's first token only */
#endif
#ifndef HAND_OFF_WHILE_HOLDING
#define HAND_OFF_WHILE_HOLDING 0 /* 1: X hands over before it has ended its own lease */
#endif
#ifndef LEASE_FROM_RETURN
#define LEASE_FROM_RETURN 0     /* 1: the deadline counts from the end of the attempt */
#endif
#ifndef CLAIM_EXTENDS
#define CLAIM_EXTENDS 1         /* 0: a claimed key lasts no longer than the claim window */
#endif

byte key[N];                    /* the id of the owner; 0: absent */
byte counter[N];
byte key_left[N];               /* ticks until the key may end */

byte lease_left[IDS + 1];       /* ticks until the attempt's deadline */
byte finished;                  /* attempts that returned and ended their lease, or gave up */
byte holders;                   /* attempts that believe to hold the lock */
byte repeats;

int returned;                   /* a set of tokens */
byte highest;                   /* the largest token returned so far */
byte heirs_granted;             /* heirs that have returned; for WITNESS */

#define bit(i) (1 << (i))
#define has(set, i) (((set) >> (i)) & 1)
#define size(set) (has(set, 0) + has(set, 1) + has(set, 2))

/* Options of a loop, one for each node. */
#define SOME_NODE(step) :: step(0) :: step(1) :: step(2)

/* ---- What nodes do for attempt `me` ---------------------------------------------------------- */

/* X's release script. */
#define may_hand_off(x) (has(finished, x) || (HAND_OFF_WHILE_HOLDING && has(holders, x)))
#define HAND_OFF(i) d_step { \
  is_heir(me) && key[i] != 0 && is_from(me, key[i]) && may_hand_off(key[i]) -> \
  printf("%d: hand-off to %d on node %d\n", key[i], me, i); \
  key[i] = heir_id(me, key[i]); key_left[i] = TIMED * WINDOW }

/* An ordinary SET finds no key; a claim finds the key that was handed over, or is held already. */
#if DRAWS_AGAIN
#define claims (is_heir(me) || draws)
#else
#define claims is_heir(me)
#endif
#define can_take(i) (!has(sent, i) && (claims -> is_id_of(me, key[i]) : !TIMED || key[i] == 0))

inline take(i) {
  sent = sent | bit(i);
  key[i] = (claims -> key[i] : me);
#if CAST == MIXED
  taken_as[i] = key[i];
#endif
#if TIMED
  key_left[i] = (is_heir(me) && !CLAIM_EXTENDS -> key_left[i] : LEASE)
#else
  counter[i] = counter[i] + (is_heir(me) && !CLAIM_INCREMENTS -> 0 : BLOCK)
#endif
}

#define TAKE_HEARD(i) d_step { can_take(i) -> \
  take(i); in_time = in_time | bit(i); answer[i] = (TIMED -> 0 : counter[i]); \
  printf("%d: takes node %d, answered %d\n", me, i, counter[i]) }

#define TAKE_UNHEARD(i) d_step { can_take(i) -> \
  take(i); \
  printf("%d: takes node %d, unheard; counter %d\n", me, i, counter[i]) }

/* Still the owner, by the very id that it took the node with. */
#if CAST == MIXED
#define is_owner(i) (key[i] == taken_as[i])
#else
#define is_owner(i) (key[i] == me)
#endif

#define can_claim_again(i) \
  (repeats < REPEATED_CLAIMS && is_heir(me) && has(sent, i) && is_owner(i))

#define CLAIM_AGAIN_HEARD(i) d_step { can_claim_again(i) -> \
  repeats++; take(i); in_time = in_time | bit(i); answer[i] = (TIMED -> 0 : counter[i]); \
  printf("%d: claims node %d again, answered %d\n", me, i, counter[i]) }

#define CLAIM_AGAIN_UNHEARD(i) d_step { can_claim_again(i) -> \
  repeats++; take(i); \
  printf("%d: claims node %d again, unheard; counter %d\n", me, i, counter[i]) }

#define CLAIM_LATE(i) d_step { is_heir(me) && can_take(i) -> \
  take(i); in_time = in_time | bit(i); \
  printf("%d: claims node %d, answered %d too late\n", me, i, counter[i]) }

#define goal (RAISE_TO_FIRST -> token - BLOCK + 1 : token)

inline raise_counter(i) {
  if
  :: counter[i] < goal -> counter[i] = goal
  :: else
  fi
}

#define RAISE_HEARD(i) d_step { is_owner(i) && has(in_time, i) && !has(raised, i) -> \
  raise_counter(i); raised = raised | bit(i); \
  printf("%d: raise on node %d to %d, acknowledged\n", me, i, goal) }

/* Executed late. (Before that, an unheard raise is a heard one of an attempt that then fails.) */
#define RAISE_LATE(i) d_step { token > 0 && is_owner(i) && has(sent, i) && counter[i] < goal -> \
  raise_counter(i); \
  printf("%d: raise on node %d to %d, late\n", me, i, goal) }

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
    :: has(in_time, n) && answer[n] == token -> raised = raised | bit(n)
    :: else
    fi;
    answer[n] = 0
  }
  n = 0;
  printf("%d: token is %d\n", me, token)
}

inline count_grant() {
  heirs_granted = heirs_granted + is_heir(me);
#ifdef WITNESS
  assert(heirs_granted < WITNESS);      /* fails if so many can succeed: the model is not idle */
#endif
}

/* The promises about tokens. */
inline return_token() {
  byte t;
  printf("%d: returns %d .. %d\n", me, token - BLOCK + 1, token);
  for (t : token - BLOCK + 1 .. token) {
    assert(!has(returned, t));          /* no token is returned twice */
    returned = returned | bit(t)
  }
  t = 0;
  assert(token - BLOCK + 1 > floor);    /* all are larger than what was returned before it began */
  highest = (token > highest -> token : highest);
  count_grant()
}

/* The promise about time. */
inline enter() {
  printf("%d: enters\n", me);
  assert(holders == 0);                 /* nobody else believes to hold the lock */
  holders = holders | bit(me);
  lease_left[me] = (LEASE_FROM_RETURN -> LEASE : lease_left[me]);
  count_grant()
}

proctype attempt(byte me) {
  byte sent;                    /* nodes where the SET or the claim was executed */
  byte in_time;                 /* S */
  byte raised;                  /* R, always within S */
  byte answer[N];
#if CAST == MIXED
  byte taken_as[N];             /* the id by which it took the node */
#endif
  byte token;
  byte floor;                   /* the largest token that was returned before this attempt began */
#if WAITS_AGAIN
  bool again;
#endif
#if DRAWS_AGAIN
  bool draws;
#endif

end_not_begun:
  do
  SOME_NODE(HAND_OFF)
    /* An ordinary attempt begins when it likes, an heir when it is told of its first node. */
  :: d_step { !is_heir(me) ||
       is_id_of(me, key[0]) || is_id_of(me, key[1]) || is_id_of(me, key[2]) ->
       floor = highest; lease_left[me] = TIMED * LEASE }; break
  od;

asks:
  do
  SOME_NODE(HAND_OFF)
  SOME_NODE(TAKE_HEARD)
#if !TIMED                              /* with time, to hear of a node takes no choice away */
  SOME_NODE(TAKE_UNHEARD)
#endif
#if REPEATED_CLAIMS
  SOME_NODE(CLAIM_AGAIN_HEARD)
  SOME_NODE(CLAIM_AGAIN_UNHEARD)
#endif
#if TIMED
  :: d_step { size(in_time) >= MAJORITY && (lease_left[me] > 0 || LEASE_FROM_RETURN) ->
       enter() }; break
#else
  :: d_step { size(in_time) >= MAJORITY -> fix_token() }; break
#endif
  :: goto over                          /* gives up, or dies */
  od;

  do
  SOME_NODE(HAND_OFF)
  SOME_NODE(TAKE_UNHEARD)
#if TIMED
  :: break                              /* releases, dies, or is past its deadline */
#else
  SOME_NODE(RAISE_HEARD)
#if REPEATED_CLAIMS
  SOME_NODE(CLAIM_AGAIN_UNHEARD)
#endif
#if LATE_CLAIM_COUNTS
  SOME_NODE(CLAIM_LATE)
#endif
  :: d_step { size(raised) >= MAJORITY -> return_token() }; break
  :: goto over                          /* gives up, or dies */
#endif
  od;

#if DRAWS_AGAIN
  if
  :: atomic { !draws ->
       draws = true; sent = 0; in_time = 0; raised = 0; token = 0; floor = highest }; goto asks
  :: true
  fi;
#endif

over:
  atomic {
    printf("%d: is over\n", me);
    finished = finished | bit(me) | (is_id_of(me, 4) -> bit(4) : 0);
    holders = holders & ~bit(me); lease_left[me] = 0;
    in_time = 0; raised = 0; floor = 0; answer[0] = 0; answer[1] = 0; answer[2] = 0
  }

#if WAITS_AGAIN
  if
  :: atomic { is_heir(me) && !again -> again = true; sent = 0; token = 0 }; goto end_not_begun
  :: true
  fi;
#endif

  /* What is still in the network. */
end:
  do
  SOME_NODE(HAND_OFF)
  SOME_NODE(TAKE_UNHEARD)
#if REPEATED_CLAIMS
  SOME_NODE(CLAIM_AGAIN_UNHEARD)
#endif
#if !TIMED
  SOME_NODE(RAISE_LATE)
#endif
  od
}

/* ---- What happens to nodes, and time --------------------------------------------------------- */

#define KEY_ENDS(i) d_step { \
  key[i] != 0 && (has(finished, key[i]) || key_left[i] == 0) -> \
  printf("node %d: the key of %d ends\n", i, key[i]); key[i] = 0; key_left[i] = 0 }

inline tick_down(ticks) {
  ticks = (ticks > 0 -> ticks - 1 : 0)
}

proctype world() {
end:
  do
  :: false                              /* there may be no other option */
#if TIMED
  SOME_NODE(KEY_ENDS)
  :: d_step {
       (key_left[0] + key_left[1] + key_left[2] +
        lease_left[1] + lease_left[2] + lease_left[3] + lease_left[IDS] > 0) ->
       printf("tick\n");
       tick_down(key_left[0]); tick_down(key_left[1]); tick_down(key_left[2]);
       byte id;
       for (id : 1 .. IDS) {
         tick_down(lease_left[id]);
         if
         :: lease_left[id] == 0 -> holders = holders & ~bit(id)
         :: else
         fi
       }
       id = 0 }
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
    :: n <= IDS -> run attempt(n); n++
    :: n > IDS -> break
    od;
    n = 0;
    run world()
  }
}
