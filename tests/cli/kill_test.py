"""Whatever is killed or stopped, the next holder enters only when the old command is gone."""

import os
import pathlib
import random
import select
import signal
import subprocess
import unittest

from kit import COMMAND, LocalTest, alive, group_members, guard_of, wait_until

# As the command of the next holder: exit 1 if a process of group $1 lives. Zombies do not count.
NOBODY_LEFT = """
group=$1
for file in /proc/[0-9]*/stat; do
  read -r line < "$file" || continue
  set -- ${line##*) }
  if [ "$3" = "$group" ] && [ "$1" != Z ] && [ "$1" != X ]; then exit 1; fi
done 2>/dev/null
exit 0
"""


class KilledHolder(LocalTest):
    def start_tree(self, *options, sleepers=20):
        (self.folder / "pid").unlink(missing_ok=True)
        script = f"for i in $(seq {sleepers}); do sleep 1000 & done; echo $$ > $DIR/pid; wait"
        process = self.start("run", *options, "x", "--", "sh", "-c", script)
        return process, self.wait_for_pid()

    def next_holder(self, group, *options):
        return self.start("run", *options, "x", "--", "sh", "-c", NOBODY_LEFT, "sh", str(group))

    def test_the_next_enters_at_once_and_finds_nobody(self):
        for _ in range(5):
            wrapper, group = self.start_tree()
            following = self.next_holder(group)
            self.wait_for_waiters("x", 1)
            wrapper.kill()
            # The lease is 30 s: whoever waited for that would be too late.
            self.assertEqual(following.wait(15), 0)
            self.assertEqual(group_members(group), [])

    def test_a_latecomer_finds_nobody_either(self):
        wrapper, group = self.start_tree()
        wrapper.kill()
        self.assertEqual(self.next_holder(group).wait(15), 0)

    def test_at_any_moment_of_its_life(self):
        """Killed at random instants, between fork and exec for instance: no command outlives its lock."""
        chance = random.Random(7)
        for number in range(40):
            environment = {**self.environment, "ROUND": f"round-{os.getpid()}-{number}"}
            wrapper = self.start("run", "x", "--", "sh", "-c", "sleep 1000 & sleep 1000", env=environment)
            select.select([], [], [], chance.random() * 0.02)
            wrapper.kill()
            told = self.sallyport("run", "-w", "15", "x", "--", "true")
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertEqual(self.commands_of(environment["ROUND"]), [])

    def commands_of(self, mark):
        """Processes that run under the lock of that round."""
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    variables = (folder / "environ").read_bytes()
                except OSError:
                    continue
                if mark.encode() in variables and b"SALLYPORT_LOCK=" in variables and alive(folder.name):
                    found.append((folder / "cmdline").read_bytes())
        return found

    def test_a_killed_guard_does_not_free_the_lock(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE)
        self.wait_for_pid()
        os.kill(guard_of(process.pid), signal.SIGKILL)
        self.assertIn("guard process was killed", process.stderr.readline())
        self.assertEqual(self.sallyport("run", "-n", "x", "--", "true").returncode, 75)
        process.stdin.close()
        self.assertEqual(process.wait(20), 1)

    def test_a_guard_killed_before_the_command_starts_stops_it_from_starting(self):
        holder, _ = self.start_tree(sleepers=1)
        waiter = self.start("run", "x", "--", "touch", str(self.folder / "ran"))
        self.wait_for_waiters("x", 1)
        guard = guard_of(waiter.pid)
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: not alive(guard), "the end of the guard")
        holder.terminate()
        code, said = self.end_of(waiter)
        self.assertEqual(code, 71, said)
        self.assertIn("the guard process was killed before 'touch' started", said)
        self.assertFalse((self.folder / "ran").exists())
        self.assertEqual(self.who("x")["holders"], [])

    def test_both_killed_the_lock_is_free_and_the_command_itself_is_gone(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; exec sleep 1000")
        group = self.wait_for_pid()
        os.kill(guard_of(process.pid), signal.SIGKILL)
        process.stderr.readline()
        process.kill()
        self.assertEqual(self.sallyport("run", "-w", "15", "x", "--", "true").returncode, 0)
        wait_until(lambda: not group_members(group), "the end of the command")

    def test_a_wrapper_killed_while_it_waits_leaves_nothing(self):
        holder, _ = self.start_tree(sleepers=1)
        waiter = self.start("run", "x", "--", "touch", str(self.folder / "ran"))
        self.wait_for_waiters("x", 1)
        guard = guard_of(waiter.pid)
        waiter.kill()
        waiter.wait(20)
        wait_until(lambda: not alive(guard), "the end of the guard")
        self.wait_for_waiters("x", 0)
        holder.terminate()
        self.assertEqual(holder.wait(20), 143)
        self.assertFalse((self.folder / "ran").exists())


class NestedHolder(LocalTest):
    """A run inside a run: its command is in another group, which the inner guard kills, not the outer one."""

    def test_a_stopped_guard_inside_keeps_its_own_lock_and_not_the_outer_one(self):
        script = "sleep 1000 & echo $! > $DIR/pid; wait"
        outer = self.start("run", "outer", "--", COMMAND, "run", "inner", "--", "sh", "-c", script)
        left = self.wait_for_pid()
        inner_guard = guard_of(self.wait_for_holder("inner")["pid"])
        os.kill(inner_guard, signal.SIGSTOP)
        self.addCleanup(lambda: alive(inner_guard) and os.kill(inner_guard, signal.SIGCONT))

        outer.kill()

        self.assertEqual(self.sallyport("run", "-w", "15", "outer", "--", "true").returncode, 0)
        self.assertTrue(alive(left), "the outer lock does not wait for the inner group: docs/cli.md says so")
        self.assertEqual(self.sallyport("run", "-n", "inner", "--", "true").returncode, 75)
        following = self.start("run", "inner", "--", "sh", "-c", NOBODY_LEFT, "sh", str(os.getpgid(left)))
        self.wait_for_waiters("inner", 1)
        os.kill(inner_guard, signal.SIGCONT)
        self.assertEqual(following.wait(15), 0, "the next holder of the inner lock finds nobody")


class StoppedHolder(LocalTest):
    def test_the_next_enters_after_the_lease_and_finds_nobody(self):
        script = "sleep 1000 & echo $$ > $DIR/pid; wait"
        wrapper = self.start("run", "--lease", "1s", "x", "--", "sh", "-c", script)
        group = self.wait_for_pid()
        following = self.start("run", "-w", "15", "x", "--", "sh", "-c", NOBODY_LEFT, "sh", str(group))
        self.wait_for_waiters("x", 1)
        wrapper.send_signal(signal.SIGSTOP)
        self.assertEqual(following.wait(20), 0)
        wrapper.send_signal(signal.SIGCONT)
        code, said = self.end_of(wrapper)
        self.assertEqual(code, 76, said)


if __name__ == "__main__":
    unittest.main()
