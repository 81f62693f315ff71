"""What the interop tests on etcd share: a member of their own, and other people's clients: Go's and etcdctl."""

import os
import pathlib
import select
import subprocess
import tempfile

from kit import COMMAND, KEY, LIMIT, InteropTest, die_with_parent, free_port, wait_until

ETCD = os.environ["SALLYPORT_ETCD"]
ETCDCTL = os.environ["SALLYPORT_ETCDCTL"]
GO_PEER = os.environ["SALLYPORT_GO_PEER"]
CANDIDATE = os.environ["SALLYPORT_CANDIDATE"]
TTL = 2  # seconds; the shortest that etcd gives


class Member:
    """One etcd, in memory where the machine has a folder for that."""

    ATTEMPTS = 5  # its ports were free when they were looked for; another program may be faster

    def __init__(self, _folder):
        parent = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = tempfile.TemporaryDirectory(prefix="sallyport-interop-etcd-", dir=parent)
        for attempt in range(self.ATTEMPTS):
            try:
                self.start(pathlib.Path(self.folder.name) / str(attempt))
                return
            except AssertionError:
                self.end_process()
                if attempt + 1 == self.ATTEMPTS:
                    self.folder.cleanup()
                    raise

    def start(self, folder):
        folder.mkdir()
        self.endpoint = f"127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        client = f"http://{self.endpoint}"
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [ETCD, "--name=m", f"--data-dir={folder}/data", f"--listen-client-urls={client}",
                 f"--advertise-client-urls={client}", f"--listen-peer-urls={peers}",
                 f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=m={peers}", "--logger=zap",
                 "--log-level=warn"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, preexec_fn=die_with_parent,
                env=dict(os.environ, GOMAXPROCS="2"),
            )
        wait_until(self.answers, f"etcd answers: {(folder / 'log').read_text()[-2000:]}")

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError("etcd has ended")
        return self.ctl("get", "anybody", check=False).returncode == 0

    def environment(self):
        return dict(os.environ, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=self.endpoint)

    def ctl(self, *arguments, check=True):
        return subprocess.run(
            [ETCDCTL, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
            check=check, env=self.environment(),
        )

    def keys(self, prefix):
        return self.ctl("get", prefix, "--prefix", "--keys-only").stdout.split()

    def get(self, key):
        return self.ctl("get", key, "--print-value-only").stdout.rstrip("\n")

    # What InteropTest asks of a server.
    client = None

    def store(self):
        return f"etcd://{self.endpoint}"

    def empty(self):
        self.ctl("del", "", "--from-key=true")

    def end_process(self):
        self.process.kill()
        self.process.wait(LIMIT)

    def stop(self):
        self.end_process()
        self.folder.cleanup()


class Told:
    """A process that is told what to do: one command a line, one answer a line."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
        )

    def tell(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def answer(self):
        if not select.select([self.process.stdout], [], [], 2 * LIMIT)[0]:
            raise AssertionError("no answer")
        return self.process.stdout.readline().split()

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait(LIMIT)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


class GoLock:
    """concurrency.Mutex, in a session of its own."""

    def __init__(self, test):
        self.told = Told(GO_PEER, test.server.endpoint, str(TTL))
        test.addCleanup(self.told.close)
        self.key, self.token = None, None

    def want(self):
        self.told.tell("lock", KEY)

    def wait(self):
        word, self.key, token = self.told.answer()
        assert word == "locked", word
        self.token = int(token)

    def release(self):
        assert self.told.ask("unlock") == ["unlocked"]

    def kill(self):
        self.told.kill()


class EtcdctlLock:
    """`etcdctl lock NAME COMMAND`. It does not pass its standard input on: the command waits for a file to go."""

    COUNT = 0

    def __init__(self, test):
        EtcdctlLock.COUNT += 1
        self.test = test
        self.inside = test.folder / f"etcdctl-{EtcdctlLock.COUNT}"
        self.process = None
        self.key, self.token = None, None

    def want(self):
        inside = 'echo $ETCD_LOCK_KEY $ETCD_LOCK_REV > "$0.new"; mv "$0.new" "$0"; while test -e "$0"; do sleep 0.02; done'
        # Its own group: a kill takes the command along.
        self.process = subprocess.Popen(
            [ETCDCTL, "lock", f"--ttl={TTL}", KEY, "--", "sh", "-c", inside, str(self.inside)],
            stdin=subprocess.DEVNULL, env=self.test.server.environment(), preexec_fn=die_with_parent,
            start_new_session=True,
        )
        self.test.addCleanup(self.end)

    def wait(self):
        wait_until(self.inside.exists, "etcdctl holds")
        self.key, token = self.inside.read_text().split()
        self.token = int(token)

    def release(self):
        self.inside.unlink()
        assert self.process.wait(LIMIT) == 0

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait(LIMIT)

    end = kill


class OurLock:
    """`sallyport run`."""

    COUNT = 0

    def __init__(self, test):
        OurLock.COUNT += 1
        self.test = test
        self.inside = test.folder / f"ours-{OurLock.COUNT}"
        self.process = None
        self.key, self.token = None, None

    def want(self):
        inside = 'echo $ETCD_LOCK_KEY $SALLYPORT_TOKEN $ETCD_LOCK_REV > "$0.new"; mv "$0.new" "$0"; read line'
        self.process = self.test.start("--lease", f"{TTL}s", KEY, "--", "sh", "-c", inside, str(self.inside))

    def wait(self):
        wait_until(self.inside.exists, "sallyport holds")
        self.key, token, revision = self.inside.read_text().split()
        assert token == revision, (token, revision)
        self.token = int(token)

    def release(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = self.process.wait(LIMIT), self.process.stderr.read()
        assert said == (0, ""), said

    def kill(self):
        self.process.kill()
        self.process.wait(LIMIT)


class EtcdInteropTest(InteropTest):
    SERVER = Member

    def wait_for_contenders(self, count):
        wait_until(lambda: len(self.server.keys(f"{KEY}/")) == count, f"{count} contenders")
