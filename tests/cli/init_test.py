"""`sallyport init`: three real servers become the nodes of a quorum."""

import unittest

from kit import CliTest, free_port


class Init(CliTest):
    def setUp(self):
        super().setUp()
        self.ports = [self.redis_server().port for _ in range(3)]
        self.store = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def test_makes_nodes_ready_that_were_refused_before(self):
        refused = self.sallyport("run", "--store", self.store, "x", "--", "true")
        self.assertEqual(refused.returncode, 69)
        self.assertIn("sallyport init", refused.stderr)

        done = self.sallyport("init", "--yes", "--max-lease", "40", self.store)
        self.assertEqual((done.returncode, done.stdout), (0, "ready; the longest lease is 40.0 s\n"))

        ran = self.sallyport("run", "--store", self.store, "x", "--", "sh", "-c", "echo $SALLYPORT_TOKEN")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertGreater(int(ran.stdout), 0)

    def test_again_changes_nothing(self):
        for seconds in ("40", "50"):
            done = self.sallyport("init", "--yes", "--max-lease", seconds, self.store)
            self.assertEqual((done.returncode, done.stdout), (0, "ready; the longest lease is 40.0 s\n"))

    def test_a_longer_lease_than_the_longest_is_refused(self):
        self.assertEqual(self.sallyport("init", "--yes", "--max-lease", "40", self.store).returncode, 0)
        refused = self.sallyport("run", "--store", self.store, "--lease", "41s", "x", "--", "true")
        self.assertEqual(refused.returncode, 64)

    def test_needs_all_nodes(self):
        alone = self.store + f",127.0.0.1:{free_port()}"
        refused = self.sallyport("init", "--yes", alone)
        self.assertEqual(refused.returncode, 69)
        self.assertIn("is not reachable", refused.stderr)

    def test_another_list_of_nodes_is_refused(self):
        self.assertEqual(self.sallyport("init", "--yes", self.store).returncode, 0)
        fewer = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in self.ports[:2])
        refused = self.sallyport("run", "--store", fewer, "x", "--", "true")
        self.assertEqual(refused.returncode, 69)
        self.assertIn(f"127.0.0.1:{self.ports[2]} is a member of this store", refused.stderr)

    def test_more_nodes_than_the_members_are_not_asked(self):
        self.assertEqual(self.sallyport("init", "--yes", self.store).returncode, 0)
        longer = self.store + f",127.0.0.1:{self.redis_server().port}"
        ran = self.sallyport("run", "--store", longer, "x", "--", "true")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        refused = self.sallyport("init", "--yes", longer)
        self.assertEqual(refused.returncode, 69)
        self.assertIn("--force", refused.stderr)

    def test_a_member_is_replaced_by_force(self):
        self.assertEqual(self.sallyport("init", "--yes", self.store).returncode, 0)
        token = "echo $SALLYPORT_TOKEN"
        before = self.sallyport("run", "--store", self.store, "x", "--", "sh", "-c", token)
        ports = [*self.ports[:2], self.redis_server().port]
        replaced = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)

        refused = self.sallyport("init", "--yes", replaced)
        self.assertEqual(refused.returncode, 69)
        self.assertIn("stop all clients", refused.stderr)
        done = self.sallyport("init", "--force", "--yes", replaced)
        self.assertEqual(done.returncode, 0, done.stderr)

        after = self.sallyport("run", "--store", replaced, "x", "--", "sh", "-c", token)
        self.assertGreater(int(after.stdout), int(before.stdout))
        refused = self.sallyport("run", "--store", self.store, "x", "--", "true")
        self.assertEqual(refused.returncode, 69)
        self.assertIn(f"127.0.0.1:{ports[2]} is a member of this store", refused.stderr)

    def test_a_member_is_replaced_while_clients_run(self):
        self.assertEqual(self.sallyport("init", "--yes", "--max-lease", "1", self.store).returncode, 0)
        spare = self.redis_server().port
        old, new = f"127.0.0.1:{self.ports[2]}", f"127.0.0.1:{spare}"
        longer = f"{self.store},{new}"
        token = ["x", "--", "sh", "-c", "echo $SALLYPORT_TOKEN"]
        before = self.sallyport("run", "--store", longer, "--lease", "1s", *token)
        self.assertEqual(before.returncode, 0, before.stderr)

        refused = self.sallyport("init", "--yes", "--replace", "127.0.0.1:1", new, longer)
        self.assertEqual(refused.returncode, 64, refused.stderr)
        self.assertIn(f"The members are 127.0.0.1:{self.ports[0]}", refused.stderr)
        for _ in range(2):  # the second time there is nothing left to do
            done = self.sallyport("init", "--yes", "--replace", old, new, self.store)
            self.assertEqual((done.returncode, done.stdout), (0, f"ready; {new} votes in the place of {old}\n"))

        after = self.sallyport("run", "--store", longer, "--lease", "1s", *token)
        self.assertGreater(int(after.stdout), int(before.stdout))
        refused = self.sallyport("run", "--store", self.store, "--lease", "1s", "x", "--", "true")
        self.assertEqual(refused.returncode, 69)
        self.assertIn(f"{new} is a member of this store", refused.stderr)

    def test_replacing_needs_two_servers(self):
        for wrong in (["--replace"], ["--replace", "a"], ["--replace", "a", "b", "--force", self.store],
                      ["--replace", "a", "b", "--max-lease", "9", self.store],
                      ["--replace", "a", "b/1", self.store], ["--replace", "a", "b", "local:machine"]):
            self.assertEqual(self.sallyport("init", "--yes", *wrong).returncode, 64, wrong)
        for options in ("initialise=replace", "old=a&new=b", "initialise=replace&new=b"):
            ran = self.sallyport("run", "--store", f"{self.store}?{options}", "x", "--", "true")
            self.assertEqual(ran.returncode, 64, options)

    def test_asks_first(self):
        refused = self.sallyport("init", self.store)
        self.assertEqual(refused.returncode, 64)
        self.assertIn("--yes", refused.stderr)

    def test_is_for_quorums_only(self):
        for store in ("local:", "redis://127.0.0.1", "redlock:"):
            self.assertEqual(self.sallyport("init", "--yes", store).returncode, 64, store)


if __name__ == "__main__":
    unittest.main()
