"""Turns with kazoo's Lock, for the benchmark; the conversation is described in README.md."""

import concurrent.futures
import os
import sys
import time

import redis
from kazoo.client import KazooClient

port, process, seats, hold_us = map(int, sys.argv[1:])


def take_turns(seat):
    lock = zookeeper.Lock("/kazoo/bench/lock")
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


zookeeper = KazooClient(hosts=os.environ["BENCH_ZOOKEEPER"], timeout=30.0)
zookeeper.start()
with zookeeper.Lock(f"/kazoo/bench/warm-{process}"):
    pass

client = redis.Redis("127.0.0.1", port)
client.incr("bench/ready")
_, go = client.blpop("bench/go")
begin, end = map(int, go.split())
with concurrent.futures.ThreadPoolExecutor(seats) as pool:
    all_turns = pool.map(take_turns, range(process * seats, (process + 1) * seats))
lines = (" ".join(map(str, turn)) + "\n" for turns in all_turns for turn in turns)
client.rpush("bench/turns", "".join(lines))
zookeeper.stop()
