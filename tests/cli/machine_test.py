"""`local:machine`: one store for all users of a machine. Runs as root in a mount namespace of its own, where /var/lib is empty,
and as two users that have no account."""

import grp
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from kit import COMMAND, CliTest, guard_of

ANN, BOB = 65534, 54321
# Whatever this machine calls a group that is neither root's nor theirs.
GROUP = next(each.gr_name for each in grp.getgrall() if each.gr_gid not in (0, ANN, BOB))
STORE = "local:machine"
FOLDER = "/var/lib/sallyport/machine"


def user(number):
    """What makes a process this user's."""
    return {"user": number, "group": number, "extra_groups": []} if number else {}


class Machine(CliTest):
    STORE = STORE

    def setUp(self):
        super().setUp()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=100M", "none", "/var/lib"], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", "/var/lib"], check=True)

    def init(self, *options, store=STORE + "?size=1M", **how):
        return self.sallyport("init", store, *options, **how)

    def test_is_made_by_root_once(self):
        before = self.sallyport("run", "x", "--", "true", **user(ANN))
        self.assertEqual(before.returncode, 69)
        self.assertIn("sudo sallyport init local:machine", before.stderr)
        refused = self.init(**user(ANN))
        self.assertEqual(refused.returncode, 69)
        self.assertIn("is made by root", refused.stderr)

        for _ in range(2):
            done = self.init()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"^ready: /var/lib/sallyport/machine\. The processes of all users on this machine")
            self.assertIn("the rights of everybody who uses it, root included", done.stdout)

        for number in (ANN, BOB, 0):
            ran = self.sallyport("run", "x", "--", "true", **user(number))
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_takes_a_group_and_nothing_that_is_redlocks(self):
        done = self.init("--group", GROUP)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"root and the users of group '{GROUP}'", done.stdout)
        self.assertNotIn("rights", done.stdout)
        stranger = self.sallyport("run", "x", "--", "true", **user(BOB))
        self.assertEqual(stranger.returncode, 69)
        self.assertIn(f"is for root and the users of group '{GROUP}'", stranger.stderr)
        for wrong in (["--group", "a&initialise=yes"], ["--group", ""], ["--force"], ["--max-lease", "9"]):
            self.assertEqual(self.init(*wrong).returncode, 64, wrong)
        self.assertEqual(self.init("--group", "x", store="redlock://a,b,c").returncode, 64)

    def test_users_meet_see_each_other_and_say_where(self):
        self.init()
        holder = self.start("run", "--label", "the work of ann", "deploy", "--", "sleep", "60", **user(ANN))
        self.wait_for_holder("deploy")

        refused = self.sallyport("run", "-v", "-n", "deploy", "--", "true", **user(BOB))
        self.assertEqual(refused.returncode, 75)
        self.assertIn("the work of ann", refused.stderr)
        self.assertIn("store local:machine (this machine's)", refused.stderr)
        for asked in (["who", "deploy"], ["ls"]):
            self.assertIn("the work of ann", self.sallyport(*asked, **user(BOB)).stdout)
        named = self.sallyport("run", "--store", STORE, "-v", "another", "--", "true", **user(BOB))
        self.assertIn("local:machine (this machine's)", named.stderr)

        waiting = self.start("run", "deploy", "--", "true", **user(BOB))
        self.wait_for_waiters("deploy", 1)
        os.kill(guard_of(holder.pid), signal.SIGKILL)
        os.kill(holder.pid, signal.SIGKILL)
        self.assertEqual(self.end_of(waiting), (0, ""))

    def traced(self, calls, *arguments, **how):
        """The lines of strace about the command's calls."""
        traced = subprocess.run(
            ["strace", "-f", "-qq", "-y", "-e", f"trace={calls}", COMMAND, *arguments],
            env=self.environment, capture_output=True, text=True, check=False, timeout=60, **how,
        )
        self.assertEqual(traced.returncode, 0, traced.stderr)
        return traced.stderr.splitlines()

    def pass_a_boot(self):
        """As after a reboot: the gate names another one, and the records may hold anything."""
        for name, at, size in (("gate", 16, 36), ("state.mdb", 0, 1 << 20)):
            with open(f"{FOLDER}/{name}", "r+b") as file:
                file.seek(at)
                file.write(b"#" * size)

    def test_users_make_remove_and_rename_nothing(self):
        self.init()
        self.assertEqual(self.sallyport("run", "x", "--", "true", **user(ANN)).returncode, 0)
        self.assert_only_opened_by(BOB)

    def test_users_make_remove_and_rename_nothing_when_they_begin_it_anew(self):
        self.init()
        self.assertEqual(self.sallyport("run", "x", "--", "true", **user(ANN)).returncode, 0)
        self.pass_a_boot()
        lines = self.assert_only_opened_by(BOB)
        self.assertTrue([line for line in lines if "pwrite64" in line and "state.mdb" in line], "it was begun anew")

    def assert_only_opened_by(self, number):
        calls = (
            "openat,open,creat,mknod,mknodat,mkdir,mkdirat,unlink,unlinkat,rmdir,rename,renameat,renameat2,link,linkat,"
            "symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,lchown"
        )
        lines = self.traced(calls + ",pwrite64", "run", "x", "--", "/bin/true", **user(number))
        written = [line for line in lines if "pwrite64(" in line]
        lines = [line for line in lines if line not in written]
        touched = [line for line in lines if "/var/lib/sallyport" in line]
        self.assertTrue([line for line in touched if "state.mdb" in line], "the trace sees the store")
        for line in touched:
            self.assertRegex(line, r"openat\(", "nothing else is done there")
            # LMDB opens what was opened before, by its number: there is nothing that it could make.
            if not re.search(r'"/proc/self/fd/\d+"', line):
                self.assertNotIn("O_CREAT", line)
        return written

    def test_init_that_was_killed_is_run_again(self):
        """Dies at the first, second or a later call of a kind; on a new store, and on one that is there."""
        moments = ["mkdir:2", "mkdirat:1", "mknodat:1", "mknodat:2000", "fallocate:1", "fallocate:2", "renameat:1"]
        moments += ["fsync:1", "fchownat:1", "fchownat:4099", "fchown:1", "pwrite64:1", "pwrite64:3"]
        for was_there in (False, True):
            for moment in moments:
                with self.subTest(moment=moment, was_there=was_there):
                    shutil.rmtree("/var/lib/sallyport", ignore_errors=True)
                    if was_there:
                        self.init()
                        self.assertEqual(self.sallyport("run", "x", "--", "true", **user(ANN)).returncode, 0)
                    call, count = moment.split(":")
                    subprocess.run(
                        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={count}"]
                        + ["-e", f"trace={call}", COMMAND, "init", STORE + "?size=2M"],
                        env=self.environment, capture_output=True, check=False, timeout=60,
                    )
                    done = self.init(store=STORE + "?size=2M")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(os.path.getsize(f"{FOLDER}/state.mdb"), 2 << 20)
                    for number in (ANN, BOB, 0):
                        ran = self.sallyport("run", "x", "--", "true", **user(number))
                        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_in_a_folder_for_all_no_file_that_exists_is_opened_as_if_to_make_it(self):
        """Where fs.protected_regular is set the kernel refuses that for other users' files."""
        folder = "/var/lib/all"
        os.mkdir(folder)
        os.chmod(folder, 0o3777)
        store = ["--store", f"local:{folder}?size=1M"]
        self.assertEqual(self.sallyport("run", *store, "x", "--", "true", **user(ANN)).returncode, 0)

        lines = self.traced("openat,creat", "run", *store, "x", "--", "/bin/true", **user(BOB))

        touched = [line for line in lines if folder in line]
        self.assertTrue([line for line in touched if "state-" in line], "the trace sees the store")
        for line in touched:
            # LMDB opens by number, which is no name in the folder.
            if "O_CREAT" in line and not re.search(r'"/proc/self/fd/\d+"', line):
                self.assertIn("O_EXCL", line)


def mounts_of(process):
    """Names the mount namespace of a process."""
    return os.readlink(f"/proc/{process}/ns/mnt")


if __name__ == "__main__":
    # The only proof that /var/lib may be mounted over is another namespace than that of whoever started this.
    if mounts_of("self") == mounts_of(os.getppid()):
        again = [sys.executable, "-B", *sys.argv]
        sys.exit(subprocess.run(["unshare", "-m", "--propagation", "private", *again], check=False).returncode)
    unittest.main()
