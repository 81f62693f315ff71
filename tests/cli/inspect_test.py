"""`ls`, `who` and `break`, on the store of this machine."""

import json
import subprocess
import time
import unittest

from kit import COMMAND, LocalTest, Screen, group_members


class InspectTest(LocalTest):
    def hold(self, name, *options):
        process = self.start("run", *options, name, "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE)
        self.wait_for_pid()
        (self.folder / "pid").unlink()
        return process


class Looking(InspectTest):
    def test_who_shows_holder_and_waiters_in_order(self):
        holder = self.hold("orders/42", "--label", "nightly backup")
        waiters = []
        for number in (1, 2):
            waiters.append(self.start("run", "--label", f"waiter-{number}", "orders/42", "--", "true"))
            self.wait_for_waiters("orders/42", number)

        told = self.sallyport("who", "orders/42")
        self.assertEqual(told.returncode, 0)
        lines = told.stdout.splitlines()
        self.assertEqual(lines[0], "orders/42: mutex, held, 2 waiting")
        self.assertRegex(lines[1], r"^HOLDER +TOKEN +PID +HOST +LABEL +MODE +HELD FOR +LEFT$")
        self.assertRegex(lines[2], rf"^1 +\d+ +{holder.pid} +\S+ +nightly backup +exclusive +[\d.]+ m?s +[\d.]+ s$")
        self.assertRegex(lines[4], rf"^1 +{waiters[0].pid} +\S+ +waiter-1 +exclusive +[\d.]+ m?s$")
        self.assertRegex(lines[5], rf"^2 +{waiters[1].pid} +\S+ +waiter-2 +exclusive +[\d.]+ m?s$")

    def test_who_as_json(self):
        holder = self.hold("x", "--label", 'a "label" \\ with ü')
        told = self.who("x")
        self.assertEqual(
            list(told), ["name", "kind", "permits", "holders", "waiters", "waiting", "closed_for_ms"], "stable keys"
        )
        (who,) = told["holders"]
        self.assertEqual((who["pid"], who["label"], who["mode"]), (holder.pid, 'a "label" \\ with ü', "exclusive"))
        self.assertIsInstance(who["token"], str)
        self.assertGreater(int(who["token"]), 0)
        self.assertGreater(who["remaining_ms"], 0)
        self.assertLessEqual(who["remaining_ms"], 30_000)

    def test_a_free_name_is_said_to_be_free(self):
        told = self.sallyport("who", "x")
        self.assertEqual((told.returncode, told.stdout, told.stderr), (1, "x: free\n", ""))
        self.assertEqual(self.who("x")["holders"], [])

    def test_the_label_is_the_command_by_default(self):
        self.hold("x")
        self.assertEqual(self.who("x")["holders"][0]["label"], "sh")

    def test_ls_shows_what_begins_with_the_prefix(self):
        for name in ("b/1", "a/2", "a/1"):
            self.hold(name)
        told = self.sallyport("ls")
        names = [line.split()[0] for line in told.stdout.splitlines()]
        self.assertEqual(names, ["NAME", "a/1", "a/2", "b/1"])
        told = json.loads(self.sallyport("ls", "a/", "--json").stdout)
        self.assertEqual([lock["name"] for lock in told["locks"]], ["a/1", "a/2"])

    def test_ls_of_an_empty_store(self):
        told = self.sallyport("ls")
        self.assertEqual((told.returncode, told.stdout), (0, ""))
        self.assertEqual(told.stderr, "sallyport: no lock is held\n")
        told = self.sallyport("ls", "--json")
        self.assertEqual((told.returncode, json.loads(told.stdout)), (0, {"locks": []}))

    def test_a_label_cannot_move_the_cursor(self):
        self.hold("x", "--label", "evil\x1b[2J\nlabel")
        told = self.sallyport("who", "x")
        self.assertNotIn("\x1b", told.stdout)
        self.assertIn("evil [2J label", told.stdout)


class Breaking(InspectTest):
    def test_is_safe_by_default(self):
        holder = self.hold("x", "--lease", "2s")
        token = self.who("x")["holders"][0]["token"]

        told = self.sallyport("break", "x", "--yes")
        broken_at = time.monotonic()
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertRegex(told.stdout, rf"^broke 'x', token {token}: its holder is told, and nobody enters for another ")

        code, said = self.end_of(holder)
        self.assertEqual(code, 76, said)
        self.assertIn("killed the command", said)
        following = self.sallyport("run", "-w", "15", "x", "--", "true")
        self.assertEqual(following.returncode, 0)
        self.assertGreater(time.monotonic() - broken_at, 0.3, "nobody enters before the old deadline")

    def test_now_hands_on_at_once_and_says_what_that_means(self):
        holder = self.hold("x", "--lease", "60s")
        waiter = self.start("run", "x", "--", "true")
        self.wait_for_waiters("x", 1)
        told = self.sallyport("break", "x", "--now", "--yes")
        self.assertEqual(told.returncode, 0)
        self.assertIn("only resources that check the token are safe", told.stderr)
        self.assertEqual(waiter.wait(15), 0)
        self.assertEqual(self.end_of(holder)[0], 76)

    def test_kills_the_whole_group_at_once(self):
        script = "trap '' TERM; sleep 1000 & echo $$ > $DIR/pid; wait"
        holder = self.start("run", "--lease", "60s", "x", "--", "sh", "-c", script)
        group = self.wait_for_pid()
        began = time.monotonic()
        self.assertEqual(self.sallyport("break", "x", "--now", "--yes").returncode, 0)
        self.assertEqual(self.end_of(holder)[0], 76)
        self.assertLess(time.monotonic() - began, 15, "at once, not after the lease or its third")
        self.assertEqual(group_members(group), [])

    def test_compares_the_token(self):
        holder = self.hold("x")
        token = int(self.who("x")["holders"][0]["token"])
        told = self.sallyport("break", "x", "--token", str(token + 1), "--yes")
        self.assertEqual(told.returncode, 1)
        self.assertIn(f"not held under token {token + 1}", told.stderr)
        self.assertIsNone(holder.poll())
        told = self.sallyport("break", "x", "--token", str(token), "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        said = json.loads(told.stdout)
        self.assertEqual(list(said), ["name", "token", "style", "closed_for_ms"])
        self.assertEqual((said["name"], said["token"], said["style"]), ("x", str(token), "safe"))
        self.assertGreater(said["closed_for_ms"], 0)

    def test_needs_a_token_when_there_are_several_holders(self):
        first, second = self.hold("x", "-s"), self.hold("x", "-s")
        told = self.sallyport("break", "x", "--yes")
        self.assertEqual(told.returncode, 64)
        self.assertIn("2 holders; say which with --token", told.stderr)
        self.assertIsNone(first.poll())
        self.assertIsNone(second.poll())

    def test_of_a_free_name_does_nothing(self):
        told = self.sallyport("break", "x", "--yes")
        self.assertEqual(told.returncode, 1)
        self.assertIn("nobody holds 'x'", told.stderr)

    def test_asks_on_a_terminal_and_refuses_without_one(self):
        holder = self.hold("x")
        told = self.sallyport("break", "x")
        self.assertEqual(told.returncode, 64)
        self.assertIn("--yes", told.stderr)
        self.assertIsNone(holder.poll())

        for answer, code in (("n\n", 1), ("y\n", 0)):
            screen = Screen([COMMAND, "break", "x"], self.environment)
            self.addCleanup(screen.close)
            screen.expect("[y/N]")
            screen.type(answer)
            self.assertEqual(screen.end(), code)
        self.assertEqual(self.end_of(holder)[0], 76)


if __name__ == "__main__":
    unittest.main()
