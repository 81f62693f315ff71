/*
 * Until when may the holder of a lease believe in it?
 *
 * The server gives a key for TTL ticks of its own clock, from the moment at which it executes the
 * request. The holder cannot see that moment: it knows when it sent the request, and when the
 * answer came. It believes until TTL - MARGIN ticks of its own clock have passed since one of the
 * two. When the server's time is up, a rival may get the key. Both must never believe at once.
 *
 * A renewal is no different: it is one more request that is sent, executed and answered.
 */

#ifndef TTL
#define TTL 6
#endif
#ifndef DRIFT
#define DRIFT 1                 /* the clocks come apart by at most so many ticks in a lease */
#endif
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef FROM_REPLY
#define FROM_REPLY 0            /* 1: the holder counts from the answer, not from the sending */
#endif
#ifndef CLOCK_STEP
#define CLOCK_STEP 0            /* 1: the server's clock may be set forward, once */
#endif

#define NOBODY 0
#define HOLDER 1
#define RIVAL 2

byte owner;                     /* as the server sees it */
byte key_left;                  /* ticks of the server's clock */
byte holder_left;               /* ticks of the holder's clock until its deadline */
bool request, reply;            /* under way */
bool holder_believes;
short ahead;                    /* ticks by which the server's clock gained since the sending */
bool stepped;

inline server_ticks() {
  key_left = (key_left > 0 -> key_left - 1 : 0);
  owner = (key_left == 0 -> NOBODY : owner)
}

inline holder_ticks() {
  holder_left = (holder_left > 0 -> holder_left - 1 : 0);
  holder_believes = holder_believes && holder_left > 0
}

active proctype holder() {
end:
  do
    /* One lease after the other. A request that nobody waits for any more is not in this model. */
  :: d_step { !request && !reply && !holder_believes && owner != HOLDER ->
       printf("sent\n");
       request = true; holder_left = (FROM_REPLY -> 0 : TTL - MARGIN); ahead = 0 }
  :: d_step { reply ->
       reply = false;
       holder_left = (FROM_REPLY -> TTL - MARGIN : holder_left);
       holder_believes = holder_left > 0;       /* an answer after the deadline revives nothing */
       printf("answered; %d ticks left\n", holder_left);
       assert(!(holder_believes && owner == RIVAL)) }
  :: d_step { reply -> reply = false; printf("answer lost\n") }
  od
}

active proctype server() {
end:
  do
  :: d_step { request && owner == NOBODY ->
       request = false; reply = true; owner = HOLDER; key_left = TTL; printf("executed\n") }
  :: d_step { request && owner == RIVAL -> request = false; printf("refused\n") }
  od
}

active proctype rival() {
end:
  do
  :: d_step { owner == NOBODY ->
       printf("the rival has it; the holder has %d ticks left\n", holder_left);
       owner = RIVAL; key_left = TTL;
       assert(!holder_believes) }
  :: d_step { owner == RIVAL -> owner = NOBODY; key_left = 0; printf("the rival releases\n") }
  od
}

active proctype time() {
end:
  do
  :: d_step { server_ticks(); holder_ticks(); printf("tick\n") }
  :: d_step { ahead < DRIFT -> ahead++; server_ticks(); printf("tick of the server only\n") }
  :: d_step { ahead > -DRIFT -> ahead--; holder_ticks(); printf("tick of the holder only\n") }
#if CLOCK_STEP
  :: d_step { !stepped && owner == HOLDER ->
       stepped = true; key_left = 0; owner = NOBODY; printf("the server's clock is set forward\n") }
#endif
  od
}
