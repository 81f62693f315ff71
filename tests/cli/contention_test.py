"""Several `sallyport run` at once, on the store of this machine."""

import signal
import subprocess
import time
import unittest

from kit import COMMAND, LocalTest, Screen, pending_signals, wait_until

HOLD = "echo held >> $DIR/holding; read line"


class ContentionTest(LocalTest):
    def hold(self, *options, name="x"):
        """A holder that leaves when its standard input is closed."""
        count = len(self.holders())
        process = self.start("run", *options, name, "--", "sh", "-c", HOLD, stdin=subprocess.PIPE)
        wait_until(lambda: len(self.holders()) > count, "the holder to enter")
        return process

    def holders(self):
        try:
            return (self.folder / "holding").read_text().splitlines()
        except FileNotFoundError:
            return []

    def let_go(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(20), 1)


class Waiting(ContentionTest):
    def test_nonblock_exits_75_in_silence_and_runs_nothing(self):
        self.hold()
        told = self.sallyport("run", "-n", "x", "--", "touch", str(self.folder / "ran"))
        self.assertEqual((told.returncode, told.stdout, told.stderr), (75, "", ""))
        self.assertFalse((self.folder / "ran").exists())

    def test_the_exit_code_can_be_chosen(self):
        self.hold()
        self.assertEqual(self.sallyport("run", "-n", "-E", "0", "x", "--", "false").returncode, 0)
        self.assertEqual(self.sallyport("run", "-w", "0.1", "-E", "9", "x", "--", "true").returncode, 9)
        self.assertEqual(self.sallyport("run", "-w", "0", "x", "--", "true").returncode, 75)

    def test_a_broken_store_is_not_taken_for_a_held_lock(self):
        for command in (["run", "-n", "x", "--", "touch", str(self.folder / "ran")], ["ls"], ["who", "x"]):
            told = self.sallyport(command[0], "--store", "local:/proc/no-such-folder", *command[1:])
            self.assertEqual((told.returncode, told.stdout), (69, ""), told.stderr)
            self.assertTrue(told.stderr.startswith("sallyport: "), told.stderr)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_limited_wait_ends_in_time(self):
        self.hold()
        began = time.monotonic()
        told = self.sallyport("run", "-w", "0.5", "x", "--", "true")
        took = time.monotonic() - began
        self.assertEqual(told.returncode, 75)
        self.assertGreaterEqual(took, 0.5)
        self.assertLess(took, 5)
        self.assertEqual(self.who("x")["waiters"], [])

    def test_a_waiter_enters_when_the_holder_leaves(self):
        holder = self.hold()
        waiter = self.start("run", "-w", "20", "x", "--", "sh", "-c", "exit 3")
        self.wait_for_waiters("x", 1)
        self.let_go(holder)
        self.assertEqual(self.end_of(waiter), (3, ""))

    def test_three_enter_in_the_order_in_which_they_came(self):
        holder = self.hold()
        waiters = []
        for number in (1, 2, 3):
            waiters.append(self.start("run", "x", "--", "sh", "-c", f"echo {number} >> $DIR/order"))
            self.wait_for_waiters("x", number)
        self.let_go(holder)
        for waiter in waiters:
            self.assertEqual(self.end_of(waiter), (0, ""))
        self.assertEqual((self.folder / "order").read_text(), "1\n2\n3\n")

    def test_verbose_says_who_is_in_the_way(self):
        holder = self.hold("--label", "nightly")
        waiter = self.start("run", "-v", "x", "--", "true")
        self.assertRegex(
            waiter.stderr.readline(), rf"^sallyport: waiting for 'x': held by nightly \(pid {holder.pid} on .*\) for "
        )
        told = self.sallyport("run", "-v", "-n", "x", "--", "true")
        self.assertRegex(told.stderr, r"^sallyport: not acquired: 'x': held by nightly .*; store local:/.*/store\n$")
        self.let_go(holder)
        self.assertEqual(waiter.wait(20), 0)

    def test_a_signal_ends_the_wait_and_leaves_nothing_behind(self):
        holder = self.hold()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            waiter = self.start("run", "x", "--", "touch", str(self.folder / "ran"))
            self.wait_for_waiters("x", 1)
            waiter.send_signal(number)
            self.assertEqual(self.end_of(waiter), (128 + number, ""))
            self.assertEqual(self.who("x")["waiters"], [])
        self.assertFalse((self.folder / "ran").exists())
        self.let_go(holder)

    def test_on_a_terminal_the_waiter_is_told_who_is_in_the_way(self):
        holder = self.hold("--label", "nightly")
        screen = Screen([COMMAND, "run", "x", "--", "true"], self.environment)
        self.addCleanup(screen.close)
        screen.expect(f"waiting for 'x': held by nightly (pid {holder.pid}")
        screen.type("\x1a")
        screen.type("\x03")
        self.assertEqual(screen.end(), 130)
        self.assertEqual(self.who("x")["waiters"], [])
        self.let_go(holder)

    def test_other_signals_do_not_end_the_wait(self):
        holder = self.hold()
        waiter = self.start("run", "x", "--", "sh", "-c", "exit 3")
        self.wait_for_waiters("x", 1)
        for number in (signal.SIGTSTP, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCONT):
            waiter.send_signal(number)
        # One that is still pending when the command starts would be passed on to it.
        wait_until(lambda: not pending_signals(waiter.pid), "the signals to be read")
        self.let_go(holder)
        self.assertEqual(self.end_of(waiter), (3, ""))

    def test_a_killed_waiter_is_skipped(self):
        holder = self.hold()
        first = self.start("run", "x", "--", "true")
        self.wait_for_waiters("x", 1)
        second = self.start("run", "x", "--", "sh", "-c", "exit 3")
        self.wait_for_waiters("x", 2)
        first.kill()
        first.wait(20)
        self.let_go(holder)
        self.assertEqual(self.end_of(second), (3, ""))


class Exclusion(ContentionTest):
    def test_two_are_never_inside_together(self):
        inside = 'mkdir "$DIR/inside" || echo overlap >> "$DIR/bad"; rmdir "$DIR/inside"; echo in >> "$DIR/turns"'
        loop = f"for i in 1 2 3 4 5 6 7 8; do \"$0\" run x -- sh -c '{inside}' || exit 1; done"
        loops = []
        for _ in range(4):
            process = subprocess.Popen(["sh", "-c", loop, COMMAND], env=self.environment, stderr=subprocess.PIPE, text=True)
            self.started.append(process)
            loops.append(process)
        for process in loops:
            self.assertEqual(self.end_of(process), (0, ""))
        self.assertFalse((self.folder / "bad").exists())
        self.assertEqual(len((self.folder / "turns").read_text().splitlines()), 32)

    def test_tokens_grow_from_run_to_run(self):
        tokens = [int(self.sallyport("run", "x", "--", "sh", "-c", "echo $SALLYPORT_TOKEN").stdout) for _ in range(3)]
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_nested_run_meets_the_same_store(self):
        told = self.sallyport("run", "--store", self.store, "x", "--", COMMAND, "run", "-n", "x", "--", "true", env={})
        self.assertEqual(told.returncode, 75, told.stderr)

    def test_the_lock_is_free_after_every_kind_of_end(self):
        for command, code in ((["no-such-command"], 127), (["/etc/passwd"], 126), (["false"], 1)):
            self.assertEqual(self.sallyport("run", "x", "--", *command).returncode, code)
            self.assertEqual(self.who("x")["holders"], [])

    def test_other_names_are_not_kept_out(self):
        self.hold()
        self.assertEqual(self.sallyport("run", "-n", "y", "--", "true").returncode, 0)


class Sharing(ContentionTest):
    def test_readers_enter_together_and_keep_the_writer_out(self):
        readers = [self.hold("-s"), self.hold("-s")]
        self.assertEqual(self.sallyport("run", "-n", "-x", "x", "--", "true").returncode, 75)
        self.assertEqual(len(self.who("x")["holders"]), 2)
        for reader in readers:
            self.let_go(reader)
        self.assertEqual(self.sallyport("run", "-n", "-x", "x", "--", "true").returncode, 0)

    def test_a_plain_run_is_kept_out_by_readers_too(self):
        reader = self.hold("-s")
        self.assertEqual(self.sallyport("run", "-n", "x", "--", "true").returncode, 75)
        waiter = self.start("run", "x", "--", "sh", "-c", "exit 3")
        self.wait_for_waiters("x", 1)
        self.let_go(reader)
        self.assertEqual(self.end_of(waiter), (3, ""))

    def test_readers_are_kept_out_by_a_plain_run(self):
        holder = self.hold()
        for option in ("-s", "-x"):
            self.assertEqual(self.sallyport("run", "-n", option, "x", "--", "true").returncode, 75)
        waiter = self.start("run", "-s", "x", "--", "sh", "-c", "exit 3")
        self.wait_for_waiters("x", 1)
        self.let_go(holder)
        self.assertEqual(self.end_of(waiter), (3, ""))

    def test_permits_are_counted(self):
        holders = [self.hold("--permits", "2"), self.hold("--permits", "2")]
        self.assertEqual(self.sallyport("run", "-n", "--permits", "2", "x", "--", "true").returncode, 75)
        self.let_go(holders[0])
        told = self.sallyport("run", "-n", "--permits", "5", "x", "--", "true")
        self.assertEqual(told.returncode, 0)
        self.assertIn("2 permits, not 5", told.stderr)
        refused = self.sallyport("run", "-n", "x", "--", "true")
        self.assertEqual(refused.returncode, 64)


if __name__ == "__main__":
    unittest.main()
