"""Turns with redis-py's Lock, for the benchmark; the conversation is described in README.md.

The lock's own settings but for a lease of 30 s, so that it expires as everybody's: it polls every 0.1 s, for ever.
"""

import concurrent.futures
import sys
import time

import redis

port, process, seats, hold_us = map(int, sys.argv[1:])


def take_turns(seat):
    lock = client.lock("bench/lock", timeout=30)
    turns = []
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    while True:
        wanted = time.monotonic_ns()
        if wanted >= end:
            return turns
        lock.acquire()
        entered = time.monotonic_ns()
        if hold_us:
            time.sleep(hold_us / 1e6)
        released = time.monotonic_ns()
        lock.release()
        turns.append((seat, wanted, entered, released, 0))


client = redis.Redis("127.0.0.1", port)
# The connection is made and the scripts are loaded before it counts.
with client.lock(f"bench/warm/{process}", timeout=30):
    pass

client.incr("bench/ready")
_, go = client.blpop("bench/go")
begin, end = map(int, go.split())
with concurrent.futures.ThreadPoolExecutor(seats) as pool:
    all_turns = pool.map(take_turns, range(process * seats, (process + 1) * seats))
lines = (" ".join(map(str, turn)) + "\n" for turns in all_turns for turn in turns)
client.rpush("bench/turns", "".join(lines))
