"""`sallyport fence`: the gate before a resource, for the shell."""

import json
import os
import pathlib
import random
import select
import signal
import subprocess
import unittest

from kit import COMMAND, CliTest, LocalTest, Screen, alive, guard_of, wait_until

LOCK = ("--lock", "orders")


class Fence(CliTest):
    def setUp(self):
        super().setUp()
        self.gate = str(self.folder / "orders.gate")

    def run_in_gate(self, token, *command, **options):
        return self.sallyport("fence", "run", *LOCK, self.gate, str(token), "--", *command, **options)

    def refused(self, *arguments):
        told = self.sallyport("fence", *arguments)
        self.assertEqual(told.returncode, 64, told.stderr)
        self.assertEqual(told.stdout, "")
        self.assertEqual(told.stderr.count("\n"), 1, told.stderr)
        return told.stderr


class Run(Fence):
    def test_a_late_holder_is_refused_and_nothing_is_run(self):
        self.assertEqual(self.run_in_gate(34, "touch", str(self.folder / "second")).returncode, 0)
        late = self.run_in_gate(33, "touch", str(self.folder / "first"))
        self.assertEqual(late.returncode, 76)
        self.assertIn("token 33 is stale", late.stderr)
        self.assertTrue((self.folder / "second").exists())
        self.assertFalse((self.folder / "first").exists())
        self.assertEqual(self.run_in_gate(34, "true").returncode, 0)

    def test_the_exit_code_is_the_commands(self):
        for code in (0, 1, 75, 76, 255):
            self.assertEqual(self.run_in_gate(1, "sh", "-c", f"exit {code}").returncode, code)
        self.assertEqual(self.run_in_gate(1, "sh", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.run_in_gate(1, "no-such-command").returncode, 127)
        self.assertEqual(self.run_in_gate(1, str(self.folder)).returncode, 126)

    def test_streams_and_environment_are_the_commands(self):
        env = {**self.environment, "HERE": "x"}
        told = self.run_in_gate(1, "sh", "-c", "cat; echo $HERE >&2; exit 3", input="in\n", env=env)
        self.assertEqual((told.returncode, told.stdout, told.stderr), (3, "in\n", "x\n"))

    def test_readers_and_a_writer_under_the_rule_of_gates(self):
        run = lambda *words: self.sallyport("fence", "run", *LOCK, *words, "--", "true").returncode
        self.assertEqual(run("-s", self.gate, "5"), 0)
        self.assertEqual(run(self.gate, "5"), 76)
        self.assertEqual(run("-s", self.gate, "4"), 0)
        self.assertEqual(run(self.gate, "6"), 0)
        self.assertEqual(run("--shared", self.gate, "5"), 76)

    def test_another_lock_is_wrong_usage_and_told(self):
        self.assertEqual(self.run_in_gate(5, "true").returncode, 0)
        told = self.sallyport("fence", "run", "--lock", "invoices", self.gate, "9", "--", "true")
        self.assertEqual(told.returncode, 64)
        self.assertIn("belong to another lock than 'invoices'", told.stderr)

    def test_others_wait_for_the_command_and_no_longer_than_they_are_told(self):
        inside = self.start(
            "fence", "run", *LOCK, self.gate, "5", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE
        )
        self.wait_for_pid()
        for option in ("-n", "-w0.1"):
            busy = self.sallyport("fence", "run", option, *LOCK, self.gate, "6", "--", "touch", str(self.folder / "ran"))
            self.assertEqual(busy.returncode, 69, busy.stderr)
        self.assertEqual(self.run_in_gate(4, "true").returncode, 76)  # the late one is told at once
        self.assertFalse((self.folder / "ran").exists())
        waiting = self.start("fence", "run", *LOCK, self.gate, "6", "--", "true")
        inside.communicate("\n", timeout=20)
        self.assertEqual(self.end_of(waiting), (0, ""))
        self.assertEqual(inside.returncode, 0)

    def test_signals_reach_the_command(self):
        process = self.start(
            "fence", "run", *LOCK, self.gate, "5", "--", "sh", "-c",
            "trap 'echo got > $DIR/got; exit 9' TERM; echo $$ > $DIR/pid; while :; do sleep 0.05; done",
        )
        self.wait_for_pid()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 9)
        self.assertTrue((self.folder / "got").exists())

    def test_a_signal_ends_the_wait_for_the_gate(self):
        inside = self.start(
            "fence", "run", *LOCK, self.gate, "5", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE
        )
        self.wait_for_pid()
        waiting = self.start("fence", "run", "-w", "1h", *LOCK, self.gate, "6", "--", "true")
        guard_of(waiting.pid)
        waiting.terminate()
        self.assertEqual(waiting.wait(20), -signal.SIGTERM)
        inside.communicate("\n", timeout=20)

    def test_a_killed_wrapper_takes_the_command_along(self):
        process = self.start("fence", "run", *LOCK, self.gate, "5", "--", "sh", "-c", "echo $$ > $DIR/pid; sleep 1000 & wait")
        pid = self.wait_for_pid()
        process.kill()
        process.wait(20)
        wait_until(lambda: not alive(pid), "the end of the command")
        self.assertEqual(self.run_in_gate(6, "true").returncode, 0)

    def test_what_outlives_a_killed_wrapper_keeps_the_gate_shut(self):
        """A process that left the group is not killed; it is still inside the gate."""
        process = self.start(
            "fence", "run", *LOCK, self.gate, "5", "--",
            "sh", "-c", "setsid sh -c 'echo $$ > $DIR/pid; exec sleep 1000' & wait",
        )
        pid = self.wait_for_pid()
        guard = guard_of(process.pid)
        self.addCleanup(lambda: alive(pid) and os.kill(pid, signal.SIGKILL))
        process.kill()
        process.wait(20)
        wait_until(lambda: not alive(guard), "the end of the guard, which has killed all that it can")
        self.assertTrue(alive(pid))
        busy = self.sallyport("fence", "run", "-n", *LOCK, self.gate, "6", "--", "true")
        self.assertEqual(busy.returncode, 69, busy.stderr)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.run_in_gate(6, "true").returncode, 0)

    def test_nobody_is_inside_when_the_next_one_enters(self):
        """Killed at random instants, between fork and exec for instance."""
        chance = random.Random(11)
        for number in range(1, 31):
            mark = f"round-{os.getpid()}-{number}-"
            wrapper = self.start(
                "fence", "run", *LOCK, self.gate, str(number), "--", "sh", "-c", "sleep 1000 & sleep 1000",
                env={**self.environment, "MARK": mark},
            )
            select.select([], [], [], chance.random() * 0.03)
            wrapper.kill()
            told = self.run_in_gate(number + 1, "true")
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertEqual(self.commands_of(mark), [])

    def commands_of(self, mark):
        """What lives of the command of that round: sh and sleep, not the wrapper and its guard."""
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    marked = mark.encode() in (folder / "environ").read_bytes()
                    line = (folder / "cmdline").read_bytes()
                except OSError:
                    continue
                if marked and line.startswith(b"s") and alive(folder.name):
                    found.append(int(folder.name))
        return found

    def test_the_number_stays_when_the_command_fails(self):
        self.assertEqual(self.run_in_gate(8, "false").returncode, 1)
        self.assertEqual(self.run_in_gate(7, "true").returncode, 76)

    def test_a_missing_or_damaged_gate_is_told(self):
        told = self.sallyport("fence", "run", "--existing", *LOCK, self.gate, "5", "--", "true")
        self.assertEqual(told.returncode, 64)
        self.assertIn("missing", told.stderr)
        (self.folder / "orders.gate").write_text("something else")
        told = self.run_in_gate(5, "touch", str(self.folder / "ran"))
        self.assertEqual(told.returncode, 69)
        self.assertEqual((self.folder / "orders.gate").read_text(), "something else")
        self.assertFalse((self.folder / "ran").exists())


class AtATerminal(Fence):
    def screen(self, *command):
        screen = Screen([COMMAND, "fence", "run", *LOCK, self.gate, "5", "--", *command], self.environment)
        self.addCleanup(screen.close)
        return screen

    def test_keys_reach_the_command(self):
        screen = self.screen("sh", "-c", "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done")
        screen.expect("ready")
        screen.type("\x03")
        screen.expect("interrupted")
        self.assertEqual(screen.end(), 7)

    def test_a_stopped_command_keeps_the_gate_shut_and_goes_on(self):
        screen = self.screen("sh", "-c", "echo ready; read line; echo got $line")
        screen.expect("ready")
        screen.type("\x1a")
        screen.expect("keeps the gate shut")
        busy = self.sallyport("fence", "run", "-n", *LOCK, self.gate, "6", "--", "true")
        self.assertEqual(busy.returncode, 69, busy.stderr)
        screen.type("\x1a")
        screen.type("word\n")
        screen.expect("got word")
        self.assertEqual(screen.end(), 0)


class Check(Fence):
    def test_it_answers_and_says_that_it_is_advice(self):
        passes = self.sallyport("fence", "check", *LOCK, self.gate, "5")
        self.assertEqual((passes.returncode, passes.stdout), (0, ""))
        self.assertIn("no fence", passes.stderr)
        self.assertIn("fence run", passes.stderr)
        self.assertEqual(self.sallyport("fence", "check", "-q", *LOCK, self.gate, "5").stderr, "")
        late = self.sallyport("fence", "check", "--json", *LOCK, self.gate, "4")
        self.assertEqual(late.returncode, 76)
        self.assertEqual(
            json.loads(late.stdout), {"gate": self.gate, "lock": "orders", "token": "4", "verdict": "stale"}
        )
        largest = str(2**64 - 1)
        told = self.sallyport("fence", "check", "--json", *LOCK, self.gate, largest)
        self.assertEqual(json.loads(told.stdout)["token"], largest)
        self.assertEqual(json.loads(told.stdout)["verdict"], "passed")


class Rebind(Fence):
    def rebind(self, token, *words, lock="new"):
        return self.sallyport("fence", "rebind", "--lock", lock, *words, self.gate, str(token))

    def run_as(self, lock, token):
        return self.sallyport("fence", "run", "--lock", lock, self.gate, str(token), "--", "true").returncode

    def test_the_old_lock_is_refused_and_the_new_one_goes_on(self):
        self.assertEqual(self.run_as("old", 34), 0)
        refused = self.sallyport("fence", "check", "--lock", "new", self.gate, "35")
        self.assertEqual(refused.returncode, 64)
        self.assertIn("'old'", refused.stderr)
        self.assertIn("fence rebind", refused.stderr)
        told = self.rebind(35, "--from", "old")
        self.assertEqual((told.returncode, told.stdout), (0, ""), told.stderr)
        self.assertIn("bound to 'new' from token 35 on", told.stderr)
        self.assertEqual(self.run_as("old", 99), 64)
        self.assertEqual(self.run_as("new", 34), 76)
        self.assertEqual(self.run_as("new", 35), 0)

    def test_it_may_be_repeated(self):
        self.assertEqual(self.run_as("old", 34), 0)
        for _ in range(2):
            self.assertEqual(self.rebind(35, "--from", "old").returncode, 0)
        self.assertEqual(self.run_as("new", 40), 0)
        for words in ((), ("--restart",)):
            again = self.rebind(35, "--from", "old", *words)
            self.assertEqual(again.returncode, 76, again.stderr)
        self.assertEqual(self.run_as("new", 39), 76)

    def test_smaller_tokens_need_a_restart(self):
        self.assertEqual(self.run_as("old", 34), 0)
        told = self.rebind(3, "--from", "old")
        self.assertEqual(told.returncode, 76)
        self.assertIn("--restart", told.stderr)
        self.assertEqual(self.run_as("old", 34), 0)
        told = self.rebind(3, "--from", "old", "--restart", "--json", "-q")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertEqual(
            json.loads(told.stdout),
            {"gate": self.gate, "from": "old", "lock": "new", "token": "3", "numbers": "restarted", "verdict": "passed"},
        )
        self.assertEqual([self.run_as("new", token) for token in (2, 3, 4)], [76, 0, 0])

    def test_another_binding_than_it_says_is_left_alone(self):
        self.assertEqual(self.run_as("third", 34), 0)
        told = self.rebind(35, "--from", "old", "--restart")
        self.assertEqual(told.returncode, 64)
        self.assertIn("bound to 'third', not to 'old'", told.stderr)
        self.assertEqual(self.run_as("third", 34), 0)

    def test_it_makes_no_gate_and_says_what_is_missing(self):
        self.assertEqual(self.rebind(35, "--from", "old").returncode, 64)
        self.assertEqual(os.listdir(self.folder), [])
        self.refused("rebind", "--lock", "new", self.gate, "35")
        self.refused("rebind", "--lock", "new", "--from", "new", self.gate, "35")
        self.refused("rebind", "--lock", "new", "--from", "old", self.gate, "35", "more")

    def test_a_shared_token_binds_nothing(self):
        self.assertEqual(self.run_as("old", 34), 0)
        for token in ((), ("$SALLYPORT_TOKEN",)):
            words = " ".join(["fence", "rebind", "--restart", "--from", "old", self.gate, *token])
            told = self.sallyport("run", "-s", "x", "--", "sh", "-c", f'"$0" {words}', COMMAND)
            self.assertEqual(told.returncode, 64, told.stderr)
            self.assertIn("exclusive token", told.stderr)
            self.assertEqual(self.run_as("old", 34), 0)
        told = self.sallyport("run", "x", "--", "sh", "-c", f'"$0" {words}', COMMAND)
        self.assertEqual(told.returncode, 0, told.stderr)

    def test_it_waits_for_who_is_inside(self):
        inside = self.start(
            "fence", "run", "--lock", "old", self.gate, "5", "--", "sh", "-c", "echo $$ > $DIR/pid; read line",
            stdin=subprocess.PIPE,
        )
        self.wait_for_pid()
        busy = self.rebind(6, "--from", "old", "-w0.1")
        self.assertEqual(busy.returncode, 69, busy.stderr)
        inside.communicate("\n", timeout=20)
        self.assertEqual(self.rebind(6, "--from", "old").returncode, 0)

    def test_the_statement_for_a_database_is_printed(self):
        for database in ("postgres", "mariadb", "sqlite"):
            told = self.sallyport(
                "fence", "rebind", "--sql", database, "--from", "it's old", "--lock", "new", "orders", "35"
            )
            self.assertEqual((told.returncode, told.stderr), (0, ""))
            self.assertIn("'it''s old'", told.stdout)
            self.assertNotIn("?", told.stdout)
            self.assertNotIn("$", told.stdout)


class Ddl(Fence):
    def test_it_prints_triggers_and_asks_nobody(self):
        for database, words in (
            ("postgres", ("BEGIN;", "CREATE TRIGGER", "current_schema()", "TRUNCATE", 'OLD."id"', "COMMIT;")),
            ("mariadb", ("DELIMITER //", "CREATE OR REPLACE TRIGGER", "OLD.`id`")),
        ):
            told = self.sallyport("fence", "ddl", database, "accounts", "--resource-column", "id")
            self.assertEqual((told.returncode, told.stderr), (0, ""))
            for word in words:
                self.assertIn(word, told.stdout)
            whole = self.sallyport("fence", "ddl", database, "shop.accounts", "--gate-table", "shop.fences").stdout
            self.assertIn("fences_judge", whole)
            dropped = self.sallyport("fence", "ddl", database, "accounts", "--drop").stdout
            self.assertIn("DROP TRIGGER", dropped)
            self.assertNotIn("CREATE", dropped)

    def test_what_it_cannot_say_is_refused(self):
        self.refused("ddl")
        self.refused("ddl", "postgres")
        self.refused("ddl", "oracle", "accounts")
        self.refused("ddl", "mysql", "accounts")  # it has neither OR REPLACE nor RETURNING
        self.refused("ddl", "postgres", "accounts", "more")
        self.refused("ddl", "mariadb", "x" * 64)
        self.refused("ddl", "mariadb", "new\nline")


class Words(Fence):
    def test_token_and_lock_come_from_the_outer_run(self):
        env = {**self.environment, "SALLYPORT_TOKEN": "5", "SALLYPORT_LOCK": "orders"}
        for words in ((self.gate,), (self.gate, "-")):
            self.assertEqual(self.sallyport("fence", "run", *words, "--", "true", env=env).returncode, 0)
        env["SALLYPORT_TOKEN"] = "4"
        self.assertEqual(self.sallyport("fence", "run", self.gate, "--", "true", env=env).returncode, 76)
        env["SALLYPORT_FENCE_LOCK"] = "store|orders"
        self.assertEqual(self.sallyport("fence", "check", self.gate, "9", env=env).returncode, 64)

    def test_what_is_missing_or_wrong_is_told(self):
        self.assertIn("fence run", self.refused())
        self.assertIn("did you mean 'fence check'", self.refused("chek"))
        self.assertIn("which gate", self.refused("run"))
        self.assertIn("SALLYPORT_TOKEN", self.refused("run", self.gate, "--", "true"))
        self.assertIn("--lock", self.refused("run", self.gate, "5", "--", "true"))
        self.assertIn("COMMAND", self.refused("run", *LOCK, self.gate, "5"))
        for bad in ("", "0", "-5", "5x", str(2**64), "1" * 100):
            self.refused("run", *LOCK, self.gate, bad, "--", "true")
        self.refused("run", *LOCK, "-w", "25h", self.gate, "5", "--", "true")
        self.refused("run", "--lock", "", self.gate, "5", "--", "true")
        self.refused("check", *LOCK, self.gate, "5", "more")
        self.refused("run", *LOCK, str(self.folder / "missing" / "gate"), "5", "--", "true")
        self.refused("run", *LOCK, str(self.folder), "5", "--", "true")
        self.assertEqual(os.listdir(self.folder), [])


class Both(LocalTest):
    def test_the_outer_and_the_inner_gate(self):
        gate = str(self.folder / "x.gate")
        inner = 'exec "$COMMAND" fence run "$GATE" "$SALLYPORT_TOKEN" -- sh -c "echo $SALLYPORT_TOKEN"'
        env = {**self.environment, "GATE": gate, "COMMAND": os.environ["SALLYPORT_COMMAND"]}
        first = self.sallyport("run", "x", "--", "sh", "-c", inner, env=env)
        second = self.sallyport("run", "x", "--", "sh", "-c", inner, env=env)
        self.assertEqual((first.returncode, second.returncode), (0, 0), first.stderr + second.stderr)
        self.assertLess(int(first.stdout), int(second.stdout))
        # The first holder comes back; what it holds is long over.
        as_the_first = inner.replace('"$SALLYPORT_TOKEN" --', first.stdout.strip() + " --")
        late = self.sallyport("run", "x", "--", "sh", "-c", as_the_first, env=env)
        self.assertEqual(late.returncode, 76, late.stderr)
        self.assertIn("stale", late.stderr)
        other = self.sallyport("run", "y", "--", "sh", "-c", inner, env=env)
        self.assertEqual(other.returncode, 64)


if __name__ == "__main__":
    unittest.main()
