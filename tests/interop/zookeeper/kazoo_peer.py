"""kazoo's locks, told what to do by lines on standard input; see zookeeper_kit.py.

usage: kazoo_peer.py HOSTS FOLDER
"""

import os
import pathlib
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock


class CuratorLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


KINDS = {"mutex": Lock, "read": ReadLock, "write": WriteLock, "curator": CuratorLock}
FOLDER = pathlib.Path(sys.argv[2])
SPEAKING = threading.Lock()


def tell(who, word):
    with SPEAKING:
        print(who, word, flush=True)


def one_turn():
    os.mkdir(FOLDER / "inside")
    count = int((FOLDER / "count").read_text())
    (FOLDER / "count").write_text(str(count + 1))
    os.rmdir(FOLDER / "inside")


class Contender:
    def __init__(self, zookeeper, who, kind, path):
        self.zookeeper, self.who, self.kind, self.path = zookeeper, who, kind, path
        self.give = threading.Event()

    def lock(self):
        return KINDS[self.kind](self.zookeeper, self.path)

    def take(self, limit_ms):
        lock = self.lock()
        try:
            taken = lock.acquire(timeout=None if limit_ms < 0 else limit_ms / 1000)
        except LockTimeout:
            taken = False
        tell(self.who, "taken" if taken else "refused")
        if not taken:
            return
        self.give.wait()
        lock.release()
        tell(self.who, "given")

    def turns(self, count):
        for _ in range(count):
            with self.lock():
                one_turn()
        tell(self.who, "done")

    def note(self):
        with self.lock(), open(FOLDER / "order", "a", encoding="utf-8") as file:
            file.write(self.who + "\n")
        tell(self.who, "done")


def main():
    zookeeper = KazooClient(hosts=sys.argv[1], timeout=1.0)
    zookeeper.start()
    tell("peer", "ready")
    contenders = {}
    for line in sys.stdin:
        what, who, *rest = line.split()
        if what == "give":
            contenders[who].give.set()
            continue
        if what == "wish":
            zookeeper.set(rest[0], b"__REVOKE__")
            tell(who, "wished")
            continue
        mine = contenders[who] = Contender(zookeeper, who, rest[0], rest[1])
        numbers = [int(each) for each in rest[2:]]
        threading.Thread(target=getattr(mine, what), args=numbers, daemon=True).start()
    zookeeper.stop()


main()
