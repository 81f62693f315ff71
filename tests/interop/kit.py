"""What the interop tests share: a Redis server of their own, the command `sallyport`, and other people's locks.

Every wait has a limit, every class has its own server on a unix socket in its own folder, and only processes that a test
started are ever signalled.
"""

import ctypes
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

import redis

COMMAND = os.environ["SALLYPORT_COMMAND"]
# Debian's package redis-tools holds the server; the binary becomes what it is called.
SERVER_BINARY = "/usr/bin/redis-check-rdb"
LIMIT = 20.0  # seconds that any one thing may take on a busy machine
KEY = "orders"
LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a test that is killed leaves nothing behind


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


class Server:
    """A redis-server that keeps nothing."""

    def __init__(self, folder, port=0):
        self.socket = str(folder / "redis.sock")
        self.port = port
        binary = folder / "redis-server"
        binary.symlink_to(SERVER_BINARY)
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket]
        arguments += ["--save", "", "--dir", str(folder)]
        with open(folder / "redis.log", "wb") as log:
            self.process = subprocess.Popen(
                [str(binary), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        self.client = redis.Redis(unix_socket_path=self.socket)
        try:
            wait_until(lambda: pathlib.Path(self.socket).exists() and self.answers(), "the server answers")
        except AssertionError:
            self.stop()
            raise

    def answers(self):
        try:
            return self.client.ping()
        except redis.exceptions.ConnectionError:
            return False

    def sockets(self):
        return [self.socket]

    def store(self):
        return f"redis+unix://{self.socket}"

    def empty(self):
        self.client.flushall()

    def delete(self, key):
        self.client.delete(key)

    def stop(self):
        self.client.close()
        self.process.kill()
        self.process.wait(LIMIT)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes:
    """Three independent servers, for redlock on both sides. Their ports are free when they are looked for; if another
    program was faster, the server does not start, and the next port is tried."""

    ATTEMPTS = 5

    def __init__(self, folder):
        self.all = []
        try:
            for number in range(3):
                self.all.append(self.start(folder / str(number)))
        except BaseException:
            self.stop()
            raise

    def start(self, folder):
        for attempt in range(self.ATTEMPTS):
            own = folder / str(attempt)
            own.mkdir(parents=True)
            try:
                return Server(own, free_port())
            except AssertionError:
                if attempt + 1 == self.ATTEMPTS:
                    raise
        return None

    @property
    def client(self):
        return self.all[0].client

    def sockets(self):
        return [each.socket for each in self.all]

    def store(self):
        return "redlock://" + ",".join(f"127.0.0.1:{each.port}" for each in self.all)

    def empty(self):
        """All but who is a member, and which tokens were given out."""
        for each in self.all:
            for key in each.client.keys():
                if not key.startswith(b"\x01quorum-"):
                    each.client.delete(key)

    def delete(self, key):
        for each in self.all:
            each.client.delete(key)

    def stop(self):
        for each in self.all:
            each.stop()


class RawLock:
    """What the page on distributed locks at redis.io describes: SET NX PX, and compare before deleting."""

    RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

    def __init__(self, server):
        self.client = redis.Redis(unix_socket_path=server.socket)
        self.value = os.urandom(20)

    def acquire(self, ttl, patience=0.0):
        end = time.monotonic() + patience
        while not self.client.set(KEY, self.value, nx=True, px=int(ttl * 1000)):
            if time.monotonic() >= end:
                return False
            select.select([], [], [], 0.02)
        return True

    def release(self):
        """Whether it was still ours."""
        return self.client.eval(self.RELEASE, 1, KEY, self.value) == 1

    def close(self):
        self.client.close()


class RedisPyLock:
    """The lock of redis-py."""

    def __init__(self, server):
        self.client = redis.Redis(unix_socket_path=server.socket)
        self.lock = None

    def acquire(self, ttl, patience=0.0):
        # Not bound to the thread: tests wait in one and release in another.
        self.lock = self.client.lock(KEY, timeout=ttl, sleep=0.02, thread_local=False)
        return self.lock.acquire(blocking=patience > 0, blocking_timeout=patience)

    def release(self):
        try:
            self.lock.release()
        except redis.exceptions.LockNotOwnedError:
            return False
        return True

    def close(self):
        self.client.close()


class NodeRedlock:
    """node-redlock on ioredis, in a process of its own."""

    def __init__(self, server):
        environment = dict(os.environ, NODE_PATH=os.environ["SALLYPORT_NODE_MODULES"])
        program = pathlib.Path(__file__).parent / "node_redlock.js"
        self.process = subprocess.Popen(
            [os.environ["SALLYPORT_NODE"], str(program), KEY, *server.sockets()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=die_with_parent,
        )

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], 2 * LIMIT)[0]:
            raise AssertionError("node does not answer")
        return json.loads(self.process.stdout.readline())["ok"]

    def acquire(self, ttl, patience=0.0):
        return self.ask(do="acquire", ttl=int(ttl * 1000), patience=int(patience * 1000))

    def release(self):
        return self.ask(do="release")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(LIMIT)


class InteropTest(unittest.TestCase):
    """One server for the class, or several, emptied for each test."""

    SERVER = Server

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sallyport-interop-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = cls.SERVER(pathlib.Path(folder.name))
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sallyport-interop-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.redis = self.server.client
        self.server.empty()
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SALLYPORT_")
        }
        self.environment["SALLYPORT_STORE"] = self.server.store()
        self.environment["DIR"] = str(self.folder)
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(LIMIT)
            for stream in (process.stdin, process.stderr):
                if stream:
                    stream.close()

    def sallyport(self, *arguments):
        """Runs to the end."""
        return subprocess.run(
            [COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * LIMIT,
            check=False, env=self.environment,
        )

    def try_once(self):
        """The exit code of a run that does not wait: 0, or 75 when it is kept out."""
        return self.sallyport("run", "-n", KEY, "--", "true").returncode

    def start(self, *arguments):
        """Starts a run and returns at once."""
        process = subprocess.Popen(
            [COMMAND, "run", *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment, preexec_fn=die_with_parent,
        )
        self.started.append(process)
        return process

    def start_holder(self, *options):
        """A run that holds from when the file `held` is there until let_go()."""
        return self.start(*options, KEY, "--", "sh", "-c", "touch $DIR/held; read line; exit 3")

    def hold(self, *options):
        process = self.start_holder(*options)
        self.wait_for_held()
        return process

    def wait_for_held(self):
        wait_until((self.folder / "held").exists, "sallyport holds")

    def let_go(self, process):
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual((process.wait(LIMIT), process.stderr.read()), (3, ""))
        (self.folder / "held").unlink()

    def wait_for_waiters(self, count):
        def waiters():
            told = self.sallyport("who", KEY, "--json")
            self.assertIn(told.returncode, (0, 1), told.stderr)
            return len(json.loads(told.stdout)["waiters"]) == count

        wait_until(waiters, f"{count} waiters")
