/*
 * Which servers may vote for a lock on a majority of three? Their marks decide, not the list that a client was given.
 *
 * A mark names the store's epoch, the addresses of its members (the roster, which follows from the epoch here) and which
 * of them its server is. Four servers stand at four addresses. The store begins at the addresses 0, 1 and 2; the server at
 * address 3 is blank. Each attempt has one of three lists: the store's own, one in which address 3 has taken the place of
 * 2, or all four.
 *   1. A vote counts if the server's mark is that of the attempt's epoch, names a member, and is full; wherever the server
 *      was reached. A majority is one of the roster.
 *   2. A server that was restarted and stands at its own member's address, or that lost its data and stands at a
 *      member's address, is noted as quiet. When everything that was under way by then is over, it gets the largest counter
 *      of a majority of others, and is full again.
 *   3. A blank server at any other address is never taken in.
 *   4. The roster is changed by `init --force`, while nobody holds anything: that is a new epoch.
 * What may happen: servers lose their data; the servers at addresses 2 and 3 change places; the roster becomes {0, 1, 3}.
 *
 * Taking votes, fixing the token and raising the counters are one step here; redlock_tokens.pml has them in single steps.
 * There is no clock: a lease ends when its attempt is over, and the longest lease has passed when all that began before it
 * are over. A step of a server and its answer are one step; an attempt that is scheduled late is one whose answers are late.
 */

#define ADDRESSES 4
#define MAJORITY 2
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef EVENTS
#define EVENTS 3                /* losses, moves and changes of the roster, all together */
#endif

#ifndef ADOPT_ANYWHERE
#define ADOPT_ANYWHERE 0        /* without rules 1 and 3: a blank server of any list is taken in, and votes */
#endif
#ifndef BACK_ANYWHERE
#define BACK_ANYWHERE 0         /* rule 2 also for a restarted server that has its mark and stands at another address */
#endif
#ifndef MAJORITY_OF_LIST
#define MAJORITY_OF_LIST 0      /* one node of a list of one is a majority */
#endif
#ifndef VOTES_AT_ONCE
#define VOTES_AT_ONCE 0         /* without the wait of rule 2 */
#endif
#ifndef FORCED_WHILE_HELD
#define FORCED_WHILE_HELD 0     /* rule 4 without its condition */
#endif
#ifndef MOVES_UNSTOPPED
#define MOVES_UNSTOPPED 0       /* servers change places and vote on: not restarted, or with all their data on disk */
#endif

#define bit(i) (1 << (i))
#define has(set, i) (((set) >> (i)) & 1)
#define size(set) (has(set, 0) + has(set, 1) + has(set, 2) + has(set, 3))

#define LIST_OF_STORE 7         /* addresses 0, 1, 2 */
#define LIST_EDITED 11          /* addresses 0, 1, 3 */
#define LIST_OF_ALL 15
#define roster(e) ((e) == 1 -> LIST_OF_STORE : LIST_EDITED)

byte at[ADDRESSES];             /* which server an address leads to */
byte epoch[ADDRESSES];          /* of a server's mark; 0: blank */
byte own[ADDRESSES];            /* the address that its mark names */
bool voter[ADDRESSES];          /* its mark is full */
bool quiet[ADDRESSES];
byte awaited[ADDRESSES];        /* attempts that were under way when it was noted as quiet */
byte key[ADDRESSES];            /* whom the server voted for; 0: nobody */
byte counter[ADDRESSES];

byte begun, finished;           /* attempts: 1 .. begun; a set */
byte events;
byte holders, highest, grants;

#define under_way ((bit(begun + 1) - 2) & ~finished)

/* ---- One attempt ----------------------------------------------------------------------------- */

#if ADOPT_ANYWHERE
#define is_member(a) (epoch[at[a]] != 0)
#define member(a) (a)
#else
#define is_member(a) (epoch[at[a]] == my_epoch && has(roster(my_epoch), own[at[a]]))
#define member(a) own[at[a]]
#endif

#define VOTE(a) d_step { has(list, a) && voter[at[a]] && key[at[a]] == 0 && is_member(a) && !has(votes, member(a)) -> \
  key[at[a]] = me; counter[at[a]]++; answer[at[a]] = counter[at[a]]; votes = votes | bit(member(a)); \
  printf("%d: vote of server %d at address %d; counter %d\n", me, at[a], a, counter[at[a]]) }

#if MAJORITY_OF_LIST
#define suffices (size(votes) > size(list) / 2)
#define was_raised (raised > size(list) / 2)
#else
#define suffices (size(votes) >= MAJORITY)
#define was_raised (raised >= MAJORITY)
#endif

/* Servers whose answer was the token itself count as raised; the others are raised if they are still ours. */
inline fix_token() {
  byte n;
  for (n : 0 .. ADDRESSES - 1) {
    if
    :: answer[n] > token -> token = answer[n]
    :: else
    fi
  }
  for (n : 0 .. ADDRESSES - 1) {
    if
    :: answer[n] == token -> raised++
    :: answer[n] > 0 && answer[n] < token && key[n] == me -> counter[n] = token; raised++
    :: else
    fi;
    answer[n] = 0
  }
  n = 0
}

inline enter() {
  printf("%d: enters with token %d\n", me, token);
  assert(holders == 0);                 /* nobody else is inside */
  assert(token > highest);              /* and no token like it, or larger, was given out */
  holders++; grants++; highest = token; inside = true;
#ifdef WITNESS
  assert(grants < WITNESS);             /* fails if so many can succeed: the model is not idle */
#endif
}

inline leave() {
  byte n;
  for (n : 0 .. ADDRESSES - 1) {
    if
    :: key[n] == me -> key[n] = 0
    :: else
    fi
  }
  n = 0;
  holders = holders - inside;
  finished = finished | bit(me);
  printf("%d: is over\n", me);
  inside = false; votes = 0; raised = 0; token = 0; list = 0; my_epoch = 0;
  answer[0] = 0; answer[1] = 0; answer[2] = 0; answer[3] = 0
}

proctype attempt(byte me) {
  byte list, my_epoch, votes, raised, token;
  byte answer[ADDRESSES];       /* of the servers; 0: none */
  bool inside;

  /* In the order of their ids: attempts are alike. */
  atomic {
    begun == me - 1 -> begun = me;
    if
    :: list = LIST_OF_STORE
    :: list = LIST_EDITED
    :: list = LIST_OF_ALL
#if MAJORITY_OF_LIST
    :: list = bit(2)
#endif
    fi;
    my_epoch = 1;
    if
    :: my_epoch = 2
    :: skip
    fi;
    printf("%d: begins with list %d and epoch %d\n", me, list, my_epoch)
  }
  do
  :: !suffices ->
     if
     :: VOTE(0) :: VOTE(1) :: VOTE(2) :: VOTE(3)
     :: break                           /* gives up, or dies */
     fi
  :: d_step { suffices && token == 0 -> fix_token() };
     if
     :: d_step { was_raised -> enter() }
     :: else
     fi;
     break
  od;
  /* It gave the lock back, or its time is up. */
  atomic { leave() }
}

/* ---- What happens to servers ----------------------------------------------------------------- */

#define LOSE(s) d_step { events < EVENTS && epoch[s] != 0 -> \
  events++; epoch[s] = 0; own[s] = 0; voter[s] = 0; quiet[s] = 0; awaited[s] = 0; key[s] = 0; counter[s] = 0; \
  printf("server %d loses its data\n", s) }

inline restart(s) {
  voter[s] = false; quiet[s] = false; awaited[s] = 0; key[s] = 0
}

inline change_places() {
  byte kept;
  kept = at[2]; at[2] = at[3]; at[3] = kept; kept = 0;
#if !MOVES_UNSTOPPED
  restart(at[2]); restart(at[3]);
#endif
  events++;
  printf("servers %d and %d change places\n", at[2], at[3])
}

inline join_by_force(a) {
  epoch[at[a]] = 2; own[at[a]] = a; voter[at[a]] = true; quiet[at[a]] = false; awaited[at[a]] = 0; key[at[a]] = 0;
  counter[at[a]] = highest              /* their clocks are above all that was given out */
}

#define may_force (FORCED_WHILE_HELD || under_way == 0)

/* A majority of intact members of epoch e, none of which is the server at address a. */
#define intact(e, a, b) ((a) != (b) && voter[at[b]] && epoch[at[b]] == (e))
#define intact_others(e, a) (intact(e, a, 0) + intact(e, a, 1) + intact(e, a, 2) + intact(e, a, 3))
#define may_rejoin(e, a) (ADOPT_ANYWHERE || (epoch[at[a]] == 0 -> has(roster(e), a) : \
  epoch[at[a]] <= (e) && has(roster(e), own[at[a]]) && (BACK_ANYWHERE || own[at[a]] == (a))))

#define NOTE(e, a) d_step { !voter[at[a]] && !quiet[at[a]] && may_rejoin(e, a) && intact_others(e, a) >= MAJORITY -> \
  own[at[a]] = (epoch[at[a]] == 0 || ADOPT_ANYWHERE -> a : own[at[a]]); epoch[at[a]] = e; quiet[at[a]] = true; awaited[at[a]] = (VOTES_AT_ONCE -> 0 : under_way); \
  printf("server %d at address %d is quiet\n", at[a], a) }

#define raise_to_that_of(e, a, b) \
  if \
  :: intact(e, a, b) && counter[at[b]] > counter[at[a]] -> counter[at[a]] = counter[at[b]] \
  :: else \
  fi

#define REJOIN(e, a) d_step { quiet[at[a]] && epoch[at[a]] == (e) && (ADOPT_ANYWHERE || BACK_ANYWHERE || own[at[a]] == (a)) && \
    (awaited[at[a]] & ~finished) == 0 && intact_others(e, a) >= MAJORITY -> \
  raise_to_that_of(e, a, 0); raise_to_that_of(e, a, 1); raise_to_that_of(e, a, 2); raise_to_that_of(e, a, 3); \
  voter[at[a]] = true; quiet[at[a]] = false; awaited[at[a]] = 0; \
  printf("server %d at address %d is a member again, at %d\n", at[a], a, counter[at[a]]) }

proctype world() {
end:
  do
  :: LOSE(0) :: LOSE(1) :: LOSE(2) :: LOSE(3)
  :: d_step { events < EVENTS -> change_places() }
  :: d_step { events < EVENTS && may_force -> join_by_force(0); join_by_force(1); join_by_force(3); events++;
       printf("the roster is 0, 1 and 3\n") }
  :: NOTE(1, 0) :: NOTE(1, 1) :: NOTE(1, 2) :: NOTE(1, 3)
  :: NOTE(2, 0) :: NOTE(2, 1) :: NOTE(2, 2) :: NOTE(2, 3)
  :: REJOIN(1, 0) :: REJOIN(1, 1) :: REJOIN(1, 2) :: REJOIN(1, 3)
  :: REJOIN(2, 0) :: REJOIN(2, 1) :: REJOIN(2, 2) :: REJOIN(2, 3)
  od
}

init {
  byte n;
  atomic {
    for (n : 0 .. ADDRESSES - 1) {
      at[n] = n;
      if
      :: n < 3 -> epoch[n] = 1; own[n] = n; voter[n] = true
      :: else
      fi
    }
    n = 1;
    do
    :: n <= ATTEMPTS -> run attempt(n); n++
    :: n > ATTEMPTS -> break
    od;
    n = 0;
    run world()
  }
}
