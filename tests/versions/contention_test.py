"""The command of an older version and the present one, in one store."""

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from kit import COMMAND, CliTest, LocalTest  # noqa: E402

VERSIONS = {"older": os.environ["SALLYPORT_OLDER_COMMAND"], "present": COMMAND}
LEASE = "2s"


class Contention:
    """What has to hold whoever comes first."""

    def hold(self, version):
        process = self.start(
            "run", "--lease", LEASE, "x", "--", "sh", "-c", "echo $$ > $DIR/pid; cat > /dev/null", stdin=subprocess.PIPE,
            command=VERSIONS[version],
        )
        self.wait_for_pid()
        (self.folder / "pid").unlink()
        return process

    def pairs(self):
        return itertools.permutations(VERSIONS)

    def test_each_keeps_the_other_out_and_sees_it(self):
        for first, second in self.pairs():
            with self.subTest(holder=first):
                holder = self.hold(first)
                told = self.sallyport("run", "-n", "x", "--", "true", command=VERSIONS[second])
                self.assertEqual(told.returncode, 75, told.stderr)
                seen = self.sallyport("who", "x", command=VERSIONS[second])
                self.assertIn(str(holder.pid), seen.stdout)
                holder.stdin.close()
                self.assertEqual(holder.wait(20), 0)
                told = self.sallyport("run", "-n", "x", "--", "true", command=VERSIONS[second])
                self.assertEqual(told.returncode, 0, told.stderr)

    def test_they_enter_in_the_order_in_which_they_came(self):
        for first, second in self.pairs():
            with self.subTest(holder=first):
                log = self.folder / f"order-{first}"
                holder = self.hold(first)
                waiters = []
                for number, version in enumerate((second, first, second, first), 1):
                    waiters.append(self.start(
                        "run", "--lease", LEASE, "x", "--", "sh", "-c", f"echo {number} $SALLYPORT_TOKEN >> {log}",
                        command=VERSIONS[version],
                    ))
                    self.wait_for_waiters("x", number)
                holder.stdin.close()
                for process in (holder, *waiters):
                    self.assertEqual(process.wait(20), 0)
                lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
                self.assertEqual([number for number, _ in lines], [1, 2, 3, 4])
                tokens = [token for _, token in lines]
                self.assertEqual(tokens, sorted(set(tokens)), "tokens grow")

    def test_a_killed_holder_is_followed(self):
        for first, second in self.pairs():
            with self.subTest(holder=first):
                holder = self.hold(first)
                waiter = self.start("run", "-w", "20", "x", "--", "true", command=VERSIONS[second])
                self.wait_for_waiters("x", 1)
                holder.send_signal(signal.SIGKILL)
                self.assertEqual(self.end_of(waiter)[0], 0)

    def test_a_counter_that_only_the_lock_guards(self):
        turns, log = 15, self.folder / "log"
        step = 'n=$(cat $DIR/counter); echo "$SALLYPORT_TOKEN" >> $DIR/log; echo $((n + 1)) > $DIR/counter'
        (self.folder / "counter").write_text("0\n")
        loops = [
            subprocess.Popen(
                ["sh", "-c", f'for i in $(seq {turns}); do "$0" run x -- sh -c "$1" || exit 1; done', command, step],
                env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for command in VERSIONS.values() for _ in range(2)
        ]
        self.started.extend(loops)
        for loop in loops:
            code, told = self.end_of(loop)
            self.assertEqual(code, 0, told)
        self.assertEqual(int((self.folder / "counter").read_text()), turns * len(loops))
        tokens = [int(line) for line in log.read_text().split()]
        self.assertEqual(tokens, sorted(set(tokens)), "tokens grow from turn to turn, whichever version draws them")


class OnThisMachine(Contention, LocalTest):
    pass


class OnRedis(Contention, CliTest):
    def setUp(self):
        super().setUp()
        self.store = f"redis://127.0.0.1:{self.redis_server().port}"
        self.environment["SALLYPORT_STORE"] = self.store


class OnRedlock(CliTest):
    """Marks name the members now: a store that the other version has initialised is refused."""

    def test_marks_of_the_other_version_are_refused(self):
        for first, second in itertools.permutations(VERSIONS):
            with self.subTest(initialised_by=first):
                store = "redlock://" + ",".join(f"127.0.0.1:{self.redis_server().port}" for _ in range(3))
                done = self.sallyport("init", "--yes", store, command=VERSIONS[first])
                self.assertEqual(done.returncode, 0, done.stderr)
                refused = self.sallyport("run", "-n", "--store", store, "x", "--", "true", command=VERSIONS[second])
                self.assertEqual(refused.returncode, 69, refused.stderr)
                # What the older version says was written before it could know of the present one.
                if second == "present":
                    self.assertIn("earlier version", refused.stderr)
                    self.assertIn("sallyport init --force", refused.stderr)


if __name__ == "__main__":
    unittest.main()
