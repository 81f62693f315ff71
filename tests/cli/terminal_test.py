"""On a terminal: who gets Ctrl-C and Ctrl-Z, and that the terminal comes back."""

import time
import unittest

from kit import COMMAND, CliTest, Screen, wait_until


class Terminal(CliTest):
    def screen(self, *arguments):
        made = Screen(list(arguments), {**self.environment, "PATH": "/usr/bin:/bin"})
        self.addCleanup(made.close)
        return made

    def run_on_terminal(self, script, *options):
        return self.screen(COMMAND, "run", *options, "x", "--", "sh", "-c", script)

    def test_the_command_reads_from_the_terminal(self):
        screen = self.run_on_terminal("echo ready; read line; echo got-$line; exit 4")
        screen.expect("ready")
        screen.type("hello\n")
        screen.expect("got-hello")
        self.assertEqual(screen.end(), 4)

    def test_control_c_reaches_the_command(self):
        screen = self.run_on_terminal("trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.02; done")
        screen.expect("ready")
        screen.type("\x03")
        screen.expect("interrupted")
        self.assertEqual(screen.end(), 9)

    def test_control_c_ends_a_plain_command(self):
        screen = self.run_on_terminal("echo ready; exec sleep 1000")
        screen.expect("ready")
        screen.type("\x03")
        self.assertEqual(screen.end(), 130)

    def test_control_z_stops_the_command_but_not_the_renewals(self):
        lease = 1
        screen = self.run_on_terminal("echo ready; read line; echo got-$line; exit 4", "--lease", f"{lease}s")
        screen.expect("ready")
        screen.type("\x1a")
        screen.expect("keeps 'x'; Ctrl-Z continues it, Ctrl-C ends it")
        self.assertEqual(screen.foreground(), screen.pid)
        stopped_at = time.monotonic()
        wait_until(lambda: time.monotonic() > stopped_at + 2.5 * lease, "more than two leases to pass")

        screen.type("\x1a")
        wait_until(lambda: screen.foreground() != screen.pid, "the command in the foreground again")
        screen.type("hello\n")
        screen.expect("got-hello")
        self.assertEqual(screen.end(), 4)
        self.assertNotIn("lost", screen.output)

    def test_control_c_ends_a_stopped_command(self):
        screen = self.run_on_terminal("echo ready; exec sleep 1000")
        screen.expect("ready")
        screen.type("\x1a")
        screen.expect("Ctrl-C ends it")
        screen.type("\x03")
        self.assertEqual(screen.end(), 130)

    def test_the_terminal_is_given_back(self):
        script = f"{COMMAND} run x -- sh -c 'echo inside; read line'; echo code-$?; read line; echo shell-$line"
        screen = self.screen("/bin/sh", "-c", script)
        screen.expect("inside")
        wait_until(lambda: screen.foreground() != screen.pid, "the command in the foreground")
        screen.type("one\n")
        screen.expect("code-0")
        self.assertEqual(screen.foreground(), screen.pid)
        screen.type("two\n")
        screen.expect("shell-two")
        self.assertEqual(screen.end(), 0)

    def test_the_terminal_is_given_back_after_a_failed_start(self):
        script = f"{COMMAND} run x -- no-such-command; echo code-$?; read line; echo shell-$line"
        screen = self.screen("/bin/sh", "-c", script)
        screen.expect("code-127")
        screen.type("two\n")
        screen.expect("shell-two")
        self.assertEqual(screen.end(), 0)

    def test_a_closed_terminal_ends_the_command(self):
        screen = self.run_on_terminal("trap 'echo gone > $DIR/hup; exit' HUP; echo ready; while :; do sleep 0.02; done")
        screen.expect("ready")
        import os

        master, screen.master = screen.master, os.open("/dev/null", os.O_RDWR)
        os.close(master)
        self.wait_for_file("hup")
        screen.end()


if __name__ == "__main__":
    unittest.main()
