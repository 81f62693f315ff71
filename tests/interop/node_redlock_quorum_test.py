"""node-redlock and Sallyport's redlock:// on the same three nodes."""

import os
import subprocess
import unittest

from kit import COMMAND, KEY, LIMIT, NodeRedlock, Nodes
from schedules import Schedules


class AgainstNodeRedlockOnThreeNodes(Schedules):
    LOCK = NodeRedlock
    SERVER = Nodes

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SALLYPORT_")}
        subprocess.run(
            [COMMAND, "init", "--yes", cls.server.store()], stdin=subprocess.DEVNULL, check=True, timeout=2 * LIMIT,
            capture_output=True, env=environment,
        )

    def ours(self):
        values = [each.client.get(KEY) or b"" for each in self.server.all]
        return sum(value.startswith(b"sp2 ") for value in values) >= 2

    def test_they_are_kept_out_by_two_nodes_of_three(self):
        holder = self.hold()
        self.server.all[2].client.delete(KEY)
        self.assertFalse(self.other.acquire(30))
        self.let_go(holder)
        self.assertTrue(self.other.acquire(30))
        self.assertTrue(self.other.release())

    def test_we_are_kept_out_by_two_nodes_of_three(self):
        self.assertTrue(self.other.acquire(30))
        self.server.all[0].client.delete(KEY)
        self.assertEqual(self.try_once(), 75)
        self.assertTrue(self.other.release())
        self.assertEqual(self.try_once(), 0)


del Schedules  # abstract: it is not to be run by itself

if __name__ == "__main__":
    unittest.main()
