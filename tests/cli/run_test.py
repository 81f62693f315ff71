"""One `sallyport run`: exit codes, environment, streams, signals, and the lease it holds."""

import os
import signal
import subprocess
import time
import unittest

from kit import COMMAND, CliTest, alive, group_members, guard_of, state_of, wait_until


class ExitCodes(CliTest):
    def test_are_the_commands_own(self):
        for code in (0, 1, 7, 75, 76, 126, 127, 128, 255):
            self.assertEqual(self.sallyport("run", "x", "--", "sh", "-c", f"exit {code}").returncode, code)

    def test_are_128_and_the_signal_that_ended_the_command(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1):
            told = self.sallyport("run", "x", "--", "sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual(told.returncode, 128 + number)

    def test_command_not_found(self):
        told = self.sallyport("run", "x", "--", "no-such-command-here")
        self.assertEqual(told.returncode, 127)
        self.assertEqual(told.stderr, "sallyport: cannot run 'no-such-command-here': command not found in PATH\n")
        self.assertEqual(self.sallyport("run", "x", "--", "/no/such/file").returncode, 127)

    def test_command_not_executable(self):
        script = self.folder / "script"
        script.write_text("#!/bin/sh\n")
        told = self.sallyport("run", "x", "--", str(script))
        self.assertEqual(told.returncode, 126)
        self.assertIn("chmod +x", told.stderr)
        self.assertEqual(self.sallyport("run", "x", "--", str(self.folder)).returncode, 126)

    def test_nothing_is_said_when_all_goes_well(self):
        told = self.sallyport("run", "x", "--", "true")
        self.assertEqual((told.returncode, told.stdout, told.stderr), (0, "", ""))

    def test_verbose_tells_token_and_lease(self):
        told = self.sallyport("run", "-v", "--lease", "5s", "x", "--", "true")
        self.assertRegex(told.stderr, r"^sallyport: acquired 'x' after \d+ ms, token \d+, lease 5\.0 s, store memory:\n$")

    def test_flock_style_without_dashes(self):
        told = self.sallyport("run", "-n", "x", "echo", "-n", "--", "a")
        self.assertEqual((told.returncode, told.stdout), (0, "-- a"))


class Environment(CliTest):
    def variables(self, *arguments, **options):
        told = self.sallyport("run", *arguments, "--", "env", **options)
        self.assertEqual(told.returncode, 0, told.stderr)
        pairs = [line.split("=", 1) for line in told.stdout.splitlines() if line.startswith("SALLYPORT_")]
        self.assertEqual(told.stdout.splitlines()[-len(pairs) :], ["=".join(pair) for pair in pairs], "set last")
        return dict(pairs)

    def test_says_lock_token_and_store(self):
        told = self.variables("orders/42")
        self.assertEqual(told["SALLYPORT_LOCK"], "orders/42")
        self.assertGreater(int(told["SALLYPORT_TOKEN"]), 0)
        self.assertEqual(told["SALLYPORT_STORE"], self.store)
        self.assertNotIn("SALLYPORT_DEADLINE", told)

    def test_permits_carry_no_token(self):
        self.environment["SALLYPORT_TOKEN"] = "12"
        self.assertNotIn("SALLYPORT_TOKEN", self.variables("--permits", "2", "x"))

    def test_fixed_leases_say_when_they_end_in_seconds_since_boot(self):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        told = self.variables("--fixed", "--lease", "20s", "x")
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        deadline = float(told["SALLYPORT_DEADLINE"])
        self.assertLessEqual(deadline, after + 20)
        self.assertGreaterEqual(deadline, before + 20 * 0.97)

    def test_the_named_store_wins_over_the_environments(self):
        self.environment["SALLYPORT_STORE"] = "carrier-pigeon:"
        self.assertEqual(self.variables("--store", "memory:", "x")["SALLYPORT_STORE"], "memory:")

    def test_an_empty_environment_is_enough(self):
        told = self.sallyport("run", "--store", "memory:", "x", "--", "env", env={})
        self.assertEqual(told.returncode, 0, told.stderr)
        names = [line.split("=")[0] for line in told.stdout.splitlines()]
        self.assertEqual(names, ["SALLYPORT_STORE", "SALLYPORT_LOCK", "SALLYPORT_TOKEN", "SALLYPORT_FENCE_LOCK"])


class Streams(CliTest):
    def test_standard_input_reaches_the_command(self):
        told = self.sallyport("run", "x", "--", "cat", input="hello\nworld\n")
        self.assertEqual((told.returncode, told.stdout), (0, "hello\nworld\n"))

    def test_the_guard_holds_nothing_of_the_callers(self):
        process = self.start(
            "run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE, cwd=self.folder
        )
        self.wait_for_pid()
        guard = guard_of(process.pid)
        held = [os.readlink(f"/proc/{guard}/fd/{number}") for number in os.listdir(f"/proc/{guard}/fd")]
        self.assertEqual(sorted(each.split(":")[0] for each in held), ["anon_inode", "socket"])
        self.assertEqual(os.readlink(f"/proc/{guard}/cwd"), "/")
        self.assertNotEqual(os.getsid(guard), os.getsid(process.pid))

    def test_the_command_gets_the_callers_descriptors_and_no_other(self):
        for store in self.stores():
            self.environment["SALLYPORT_STORE"] = store
            with open("/dev/null", "rb") as passed:
                script = "import os; print(*sorted(int(n) for n in os.listdir('/proc/self/fd')))"
                command = ["/usr/bin/python3", "-c", script]
                told = self.sallyport("run", "x", "--", *command, pass_fds=[passed.fileno()])
                plain = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=20,
                    pass_fds=[passed.fileno()],
                )
            self.assertEqual(told.stdout, plain.stdout, store)

    def test_the_end_of_output_comes_when_the_killed_are_gone(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$; sleep 1000", stdout=subprocess.PIPE)
        process.stdout.readline()
        process.kill()
        rest = process.communicate(timeout=20)  # until the end of file
        self.assertEqual(rest, ("", ""))

    def test_closed_standard_streams_are_survived(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            line = f'"$0" run x -- sh -c "exit 3" {closed}'
            done = subprocess.run(["sh", "-c", line, COMMAND], env=self.environment, timeout=20, check=False)
            self.assertEqual(done.returncode, 3, closed)


class Signals(CliTest):
    def test_are_passed_on_to_the_command(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            ready = self.folder / f"ready-{number}"
            script = f"trap 'exit 42' {int(number)}; echo $$ > {ready}; while :; do sleep 0.02; done"
            process = self.start("run", "x", "--", "sh", "-c", script)
            self.wait_for_file(ready.name)
            process.send_signal(number)
            self.assertEqual(self.end_of(process)[0], 42, number)

    def test_reach_the_whole_group(self):
        process = self.start("run", "x", "--", "sh", "-c", "sleep 1000 & echo $! > $DIR/pid; wait")
        sleeper = self.wait_for_pid()
        process.terminate()
        self.assertEqual(self.end_of(process)[0], 128 + signal.SIGTERM)
        wait_until(lambda: not alive(sleeper), "the end of the sleeper")

    def test_window_changes_do_not_end_anything(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE)
        self.wait_for_pid()
        process.send_signal(signal.SIGWINCH)
        process.stdin.close()
        self.assertEqual(process.wait(20), 1)

    def test_a_signal_ignored_from_the_start_stays_ignored(self):
        script = 'trap "" HUP; exec "$0" run x -- sh -c "echo \\$\\$ > $DIR/pid; read line; exit 5"'
        process = subprocess.Popen(
            ["sh", "-c", script, COMMAND], env=self.environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        self.wait_for_pid()
        process.send_signal(signal.SIGHUP)
        process.stdin.write("go\n")
        process.stdin.close()
        self.assertEqual(self.end_of(process), (5, ""))

    def test_a_stopped_command_is_reported_and_continued(self):
        script = "echo $$ > $DIR/pid; kill -STOP $$; exit 6"
        process = self.start("run", "x", "--", "sh", "-c", script)
        pid = self.wait_for_pid()
        wait_until(lambda: state_of(pid) == "T", "the command to stop")
        self.assertIn("keeps 'x'", process.stderr.readline())
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(20), 6)

    def test_the_command_starts_with_the_callers_mask_and_actions(self):
        def masks(command):
            told = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=20, check=True)
            return [line for line in told.stdout.splitlines() if line.startswith("Sig") and "SigQ" not in line]

        plain = ["cat", "/proc/self/status"]
        self.assertEqual(masks([COMMAND, "run", "x", "--", *plain]), masks(plain))

    def test_an_ignored_sigchld_does_not_lose_the_exit_code(self):
        script = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
        done = subprocess.run(
            ["/usr/bin/python3", "-c", script, COMMAND, "run", "x", "--", "sh", "-c", "exit 9"],
            env=self.environment, timeout=20, check=False,
        )
        self.assertEqual(done.returncode, 9)


class Lease(CliTest):
    def test_a_fixed_lease_asks_the_command_to_stop_before_it_ends(self):
        script = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.02; done"
        told = self.sallyport("run", "--fixed", "--lease", "1s", "--grace", "500ms", "x", "--", "sh", "-c", script)
        self.assertEqual((told.returncode, told.stdout), (76, "asked\n"))
        self.assertIn("SIGTERM", told.stderr)

    def test_a_command_that_does_not_listen_is_gone_before_the_deadline(self):
        script = "trap '' TERM; echo $SALLYPORT_DEADLINE $$; (trap '' TERM; while :; do sleep 0.02; done) & wait; wait"
        process = self.start("run", "--fixed", "--lease", "800ms", "x", "--", "sh", "-c", script, stdout=subprocess.PIPE)
        deadline, group = process.stdout.readline().split()
        wait_until(lambda: not group_members(int(group)), "the end of the group")
        # As seen from outside, with the time that looking through /proc takes.
        self.assertLess(time.clock_gettime(time.CLOCK_BOOTTIME), float(deadline) + 0.5)
        code, said = self.end_of(process)
        self.assertEqual(code, 76)
        self.assertIn("killed the command", said)

    def test_a_renewed_lease_outlives_its_length(self):
        told = self.sallyport("run", "--lease", "1s", "x", "--", "sleep", "2.5")
        self.assertEqual((told.returncode, told.stderr), (0, ""))

    def test_a_stopped_wrapper_does_not_let_the_command_outlive_the_lease(self):
        script = "sleep 1000 & echo $$ > $DIR/pid; wait"
        process = self.start("run", "--lease", "600ms", "x", "--", "sh", "-c", script)
        group = self.wait_for_pid()
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not group_members(group), "the guard to kill the group")
        self.assertEqual(state_of(process.pid), "T")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.end_of(process)[0], 76)

    def test_processes_that_the_command_left_behind_are_told(self):
        script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > $DIR/pid"
        process = self.start("run", "-v", "x", "--", "sh", "-c", script)
        code, said = self.end_of(process)
        left = self.wait_for_pid()
        self.addCleanup(os.kill, left, signal.SIGKILL)
        self.assertEqual(code, 0)
        self.assertIn("left processes behind", said)
        self.assertTrue(alive(left))


class KilledProcesses(CliTest):
    def started_tree(self):
        script = "sleep 1000 & (sleep 1000 & wait) & echo $$ > $DIR/pid; wait"
        process = self.start("run", "x", "--", "sh", "-c", script)
        group = self.wait_for_pid()
        wait_until(lambda: len(group_members(group)) == 4, "the whole tree")
        return process, group

    def test_a_killed_wrapper_takes_the_group_along(self):
        process, group = self.started_tree()
        guard = guard_of(process.pid)
        process.kill()
        wait_until(lambda: not group_members(group), "the end of the group")
        wait_until(lambda: not alive(guard), "the end of the guard")

    def test_a_stopped_group_is_taken_along_too(self):
        process, group = self.started_tree()
        os.killpg(group, signal.SIGSTOP)
        process.kill()
        wait_until(lambda: not group_members(group), "the end of the group")

    def test_a_killed_guard_is_told_and_the_command_goes_on(self):
        process = self.start(
            "run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line; exit 8", stdin=subprocess.PIPE
        )
        self.wait_for_pid()
        os.kill(guard_of(process.pid), signal.SIGKILL)
        self.assertIn("guard process was killed", process.stderr.readline())
        process.stdin.close()
        self.assertEqual(process.wait(20), 8)

    def test_without_a_guard_the_kernel_still_ends_the_command_itself(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE)
        command = self.wait_for_pid()
        os.kill(guard_of(process.pid), signal.SIGKILL)
        process.stderr.readline()
        process.kill()
        wait_until(lambda: not alive(command), "the end of the command")

    def test_a_stopped_guard_does_not_hang_the_wrapper(self):
        process = self.start(
            "run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line; exit 8", stdin=subprocess.PIPE
        )
        self.wait_for_pid()
        os.kill(guard_of(process.pid), signal.SIGSTOP)
        process.stdin.close()
        self.assertEqual(process.wait(20), 8)

    def test_the_guard_leaves_with_the_wrapper(self):
        process = self.start("run", "x", "--", "sh", "-c", "echo $$ > $DIR/pid; read line", stdin=subprocess.PIPE)
        self.wait_for_pid()
        guard = guard_of(process.pid)
        process.stdin.close()
        process.wait(20)
        self.assertIsNone(state_of(guard), "reaped, not even a zombie")


if __name__ == "__main__":
    unittest.main()
