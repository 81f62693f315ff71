"""What the tests of the command share. They drive the real binary, whose path is in SALLYPORT_COMMAND.

Every wait has a limit, every test its own folder, and only processes that a test started are ever signalled.
"""

import errno
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time
import unittest

COMMAND = os.environ["SALLYPORT_COMMAND"]
LIMIT = 20.0  # seconds that any one thing may take on a busy machine


def wait_until(condition, what, limit=LIMIT):
    """Returns the condition's first true value; fails when that takes too long."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        select.select([], [], [], 0.005)


def status_of(pid):
    """The fields of /proc/PID/stat from the state on; None when there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def alive(pid):
    """Whether a process lives; a zombie does not."""
    fields = status_of(pid)
    return fields is not None and fields[0] not in "ZX"


def state_of(pid):
    fields = status_of(pid)
    return fields[0] if fields else None


def pending_signals(pid):
    """The set of signals that wait for the process, as a number."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("ShdPnd:"):
            return int(line.split()[1], 16)
    raise AssertionError("no ShdPnd in /proc/PID/status")


def group_members(group):
    """The living processes of a process group."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = status_of(entry)
            if fields and int(fields[2]) == group and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = status_of(entry)
            if fields and int(fields[1]) == pid:
                found.append(int(entry))
    return found


def guard_of(wrapper):
    return wait_until(lambda: find_guard(wrapper), f"the guard of {wrapper}")


def find_guard(wrapper):
    for child in children_of(wrapper):
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "sallyport-guard":
                return child
        except (FileNotFoundError, ProcessLookupError):
            pass
    return None


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class RedisServer:
    """A real server in a folder of its own; it can be stopped and started again."""

    # Debian's package redis-tools holds the server; the binary becomes what it is called.
    BINARY = "/usr/bin/redis-check-rdb"

    def __init__(self, folder, *options):
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.process = None
        folder.mkdir()
        (folder / "redis-server").symlink_to(self.BINARY)

    def start(self):
        command = [str(self.folder / "redis-server"), "--port", str(self.port), "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [*command, *self.options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self.answers, f"the server at {self.port}")

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7)[:1] in (b"+", b"-")  # or NOAUTH
        except OSError:
            return False

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)
            self.process = None


class CliTest(unittest.TestCase):
    """A folder of its own, and a store in it that no other test knows."""

    STORE = "memory:"
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sallyport-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.STORE
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SALLYPORT_")
        }
        self.environment["SALLYPORT_STORE"] = self.store
        self.environment["DIR"] = str(self.folder)
        self.started = []
        self.addCleanup(self.end_all)

    def stores(self):
        """Every store that one process can use alone."""
        known = ["memory:", f"local:{self.folder}/own-store"]
        return known if os.environ.get("SALLYPORT_HAS_LOCAL") else known[:1]

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def redis_server(self, *options, started=True):
        server = RedisServer(pathlib.Path(tempfile.mkdtemp(prefix="redis-", dir=self.folder)) / "server", *options)
        self.addCleanup(server.stop)
        if started:
            server.start()
        return server

    def sallyport(self, *arguments, command=COMMAND, **options):
        """Runs to the end."""
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            options.pop("stdin")
        options.setdefault("env", self.environment)
        return subprocess.run(
            [command, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False, **options
        )

    def start(self, *arguments, command=COMMAND, **options):
        """Starts and returns at once."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.environment)
        process = subprocess.Popen([command, *arguments], text=True, **options)
        self.started.append(process)
        return process

    def end_of(self, process):
        """The exit code and what was said on standard error."""
        code = process.wait(LIMIT)
        return code, process.stderr.read()

    def wait_for_file(self, name):
        """The content of a file in the test's folder, once it holds a whole line."""
        path = self.folder / name

        def content():
            try:
                text = path.read_text()
            except FileNotFoundError:
                return None
            return text if text.endswith("\n") else None

        return wait_until(content, f"the file {name}")

    def wait_for_pid(self, name="pid"):
        return int(self.wait_for_file(name))

    def who(self, name):
        """What `who --json` says."""
        told = self.sallyport("who", name, "--json")
        self.assertIn(told.returncode, (0, 1), told.stderr)
        return json.loads(told.stdout)

    def wait_for_waiters(self, name, count):
        return wait_until(lambda: len(self.who(name)["waiters"]) == count, f"{count} waiters for {name}")

    def wait_for_holder(self, name):
        return wait_until(lambda: self.who(name)["holders"], f"a holder of {name}")[0]


class LocalTest(CliTest):
    """On `local:`, in a folder of the test's own."""

    def setUp(self):
        super().setUp()
        self.store = f"local:{self.folder}/store"
        self.environment["SALLYPORT_STORE"] = self.store


class Screen:
    """A pseudo-terminal with a program in its foreground."""

    def __init__(self, arguments, environment):
        import pty

        self.output = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.execve(arguments[0], arguments, environment)
            finally:
                os._exit(127)
        self.code = None

    def type(self, text):
        os.write(self.master, text.encode())

    def read_some(self):
        if select.select([self.master], [], [], 0.05)[0]:
            try:
                self.output += os.read(self.master, 4096).decode(errors="replace")
            except OSError as error:
                if error.errno != errno.EIO:  # the other side is closed
                    raise

    def expect(self, text, after=0):
        """Waits for text on the screen; returns the position behind it."""

        def found():
            self.read_some()
            return self.output.find(text, after) + 1

        try:
            return wait_until(found, f"'{text}' on the terminal") - 1 + len(text)
        except AssertionError as error:
            raise AssertionError(f"{error}; there was: {self.output!r}") from None

    def foreground(self):
        return os.tcgetpgrp(self.master)

    def end(self):
        """The exit code, 128 + n for signals."""

        def ended():
            self.read_some()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            return pid

        if self.code is None:
            wait_until(ended, "the end of the program on the terminal")
        return self.code if self.code >= 0 else 128 - self.code

    def close(self):
        if self.code is None and os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
