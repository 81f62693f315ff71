"""kazoo's locks and Sallyport's on one path."""

import sys
import unittest

from kazoo.recipe.lock import Lock

from kit import wait_until
from meetings import PATH, Meetings, ReadersAndWriters
from zookeeper_kit import HERE, ROOT, ZooKeeperServer

PEER = [sys.executable, "-B", str(HERE / "kazoo_peer.py")]


class OftenSwept(ZooKeeperServer):
    SWEEP = 200


class InKazoosDialect(Meetings, ReadersAndWriters):
    SERVER = OftenSwept
    COMMAND = PEER
    OPTIONS = "&dialect=kazoo"

    def test_a_lock_object_of_theirs_outlives_a_time_without_contenders(self):
        self.token_of_a_run()  # we make the folder
        theirs = Lock(self.zookeeper, PATH)
        self.assertTrue(theirs.acquire(timeout=10))
        theirs.release()
        self.environment["SALLYPORT_STORE"] = self.server.store()
        self.assertTrue(self.runs("swept"))
        wait_until(lambda: not self.zookeeper.exists(f"{ROOT}/swept"), "the server has swept containers away")
        self.assertTrue(theirs.acquire(timeout=10))
        theirs.release()


class InCuratorsDialect(Meetings):
    """With two lines kazoo's lock is called as Curator's."""

    COMMAND = PEER
    KIND = "curator"


del Meetings, ReadersAndWriters  # abstract: they are not to be run by themselves

if __name__ == "__main__":
    unittest.main()
