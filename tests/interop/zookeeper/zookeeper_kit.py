"""What the tests of interoperation on ZooKeeper share: a server of their own, and other people's clients.

A peer is a process with several contenders in it. It is told, by lines on its standard input:
  take WHO KIND PATH MS   takes the lock (MS: within that time; -1: however long that takes) and keeps it
  give WHO                gives it back
  turns WHO KIND PATH N   N times: takes it, adds one to the number in the file `count`, gives it back
  note WHO KIND PATH      takes it, adds its own name to the file `order`, gives it back
  wish WHO NODE           asks the contender of that node to release, as Curator does
and says `WHO taken`, `WHO refused`, `WHO given`, `WHO done`, `WHO wished`.
"""

import os
import pathlib
import queue
import socket
import subprocess
import tempfile
import threading

from kazoo.client import KazooClient

from kit import LIMIT, InteropTest, die_with_parent, free_port, wait_until

HERE = pathlib.Path(__file__).parent
TICK = 200  # ms
ROOT = "/locks"
JAVA = ["java", "-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]


def jars(*names):
    return ":".join(f"/usr/share/java/{each}.jar" for each in names)


SERVER_JARS = jars("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "netty-all",
                   "commons-cli", "snappy-java")
CURATOR_JARS = jars("curator-recipes", "curator-framework", "curator-client", "guava", "zookeeper", "zookeeper-jute",
                    "slf4j-api", "slf4j-simple", "netty-all")


class ZooKeeperServer:
    """One server, whose data goes with the folder."""

    ATTEMPTS = 5
    SWEEP = 3_600_000  # ms between two looks for containers that are empty

    def __init__(self, folder):
        for attempt in range(self.ATTEMPTS):
            own = folder / str(attempt)
            own.mkdir()
            self.start(own)
            try:
                wait_until(lambda: self.process.poll() is not None or self.serves(), "the server serves", 3 * LIMIT)
            except AssertionError:
                self.end()
                raise
            if self.process.poll() is None:
                break
            if attempt + 1 == self.ATTEMPTS:
                raise AssertionError((own / "log").read_text())
        self.hosts = f"127.0.0.1:{self.port}"
        self.client = KazooClient(hosts=self.hosts)
        self.client.start(LIMIT)

    def start(self, folder):
        self.port = free_port()  # if another program is faster, the server ends, and the next one is tried
        settings = {
            "tickTime": TICK, "maxSessionTimeout": 60_000, "dataDir": folder, "clientPort": self.port, "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false", "4lw.commands.whitelist": "*", "maxClientCnxns": 0,
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*JAVA, "-Dzookeeper.forceSync=no", f"-Dznode.container.checkIntervalMs={self.SWEEP}", "-cp", SERVER_JARS,
                 "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )

    def serves(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), LIMIT) as asking:
                asking.settimeout(LIMIT)
                asking.sendall(b"srvr")
                return b"Mode: " in asking.recv(65536)
        except OSError:
            return False

    def store(self, options=""):
        return f"zookeeper://{self.hosts}{ROOT}?tick={TICK}{options}"

    def empty(self):
        self.client.delete(ROOT, recursive=True)

    def end(self):
        self.process.kill()
        self.process.wait(LIMIT)

    def stop(self):
        self.client.stop()
        self.client.close()
        self.end()


class Peer:
    """Somebody else's client, in a process of its own."""

    def __init__(self, command, hosts, folder):
        self.process = subprocess.Popen(
            [*command, hosts, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent,
        )
        self.words = queue.Queue()
        self.heard = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.expect("peer", "ready")

    def read(self):
        for line in self.process.stdout:
            self.words.put(tuple(line.split()))
        self.words.put(("peer", "ended"))

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(each) for each in words) + "\n")
        self.process.stdin.flush()

    def expect(self, who, word):
        """Waits for what `who` says next, which has to be this."""
        said = self.hear(who)
        if said != word:
            raise AssertionError(f"{who} says {said}, not {word}")

    def hear(self, who):
        while True:
            for each in self.heard:
                if each[0] in (who, "peer"):
                    self.heard.remove(each)
                    return each[1]
            try:
                self.heard.append(self.words.get(timeout=2 * LIMIT))
            except queue.Empty:
                raise AssertionError(f"nothing is heard of {who}; heard: {self.heard}") from None

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        self.process.stdout.close()


class OnZooKeeper(InteropTest):
    """One server for the class, and one peer, which is started again when a test has killed it."""

    SERVER = ZooKeeperServer
    COMMAND = None  # what starts the peer
    OPTIONS = ""  # of the store's address

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="sallyport-interop-")
        cls.addClassCleanup(folder.cleanup)
        cls.shared_folder = pathlib.Path(folder.name)
        cls.peer = None
        cls.addClassCleanup(lambda: cls.peer and cls.peer.alive() and cls.peer.close())

    def setUp(self):
        super().setUp()
        cls = type(self)
        if cls.peer is None or not cls.peer.alive():
            cls.peer = Peer(cls.COMMAND, cls.server.hosts, cls.shared_folder)
        # The peer knows one folder, for all tests.
        for each in self.shared_folder.iterdir():
            each.rmdir() if each.is_dir() else each.unlink()
        self.folder = self.shared_folder
        self.environment["DIR"] = str(self.folder)
        self.environment["SALLYPORT_STORE"] = self.server.store(self.OPTIONS)
        self.zookeeper = self.server.client

    def contenders(self, path):
        return self.zookeeper.get_children(path) if self.zookeeper.exists(path) else []

    def wait_for_contenders(self, path, count):
        wait_until(lambda: len(self.contenders(path)) == count, f"{count} contenders on {path}")

    def take(self, who, kind, path):
        self.peer.ask("take", who, kind, path, -1)
        self.peer.expect(who, "taken")

    def refused(self, who, kind, path, ms=50):
        self.peer.ask("take", who, kind, path, ms)
        self.peer.expect(who, "refused")

    def give(self, who):
        self.peer.ask("give", who)
        self.peer.expect(who, "given")

    def runs(self, name, *options):
        """Whether a run that does not wait gets in."""
        code = self.sallyport("run", "-n", *options, name, "--", "true").returncode
        self.assertIn(code, (0, 75))
        return code == 0

    def hold_name(self, name, *options):
        process = self.start(*options, name, "--", "sh", "-c", "touch $DIR/held; read line; exit 3")
        self.wait_for_held()
        return process
