"""Go's clientv3/concurrency, etcdctl and Sallyport on the same locks and elections of etcd."""

import subprocess
import unittest

from etcd_kit import (
    CANDIDATE, COMMAND, ETCDCTL, GO_PEER, KEY, LIMIT, TTL, EtcdctlLock, EtcdInteropTest, GoLock, OurLock, Told,
    die_with_parent, wait_until,
)

TURNS = 8  # of each contender, with the counter
# Loses updates unless the lock keeps everybody else out; the token is noted inside, too.
COUNT = 'n=$(cat "$1"); sleep 0.002; echo $((n + 1)) > "$1"; echo $ETCD_LOCK_REV >> "$1.tokens"'


class Locks(EtcdInteropTest):
    OTHERS = (GoLock, EtcdctlLock)

    def hold(self, what):
        lock = what(self)
        lock.want()
        lock.wait()
        return lock

    def test_they_wait_while_we_hold(self):
        for other in self.OTHERS:
            with self.subTest(other.__name__):
                ours = self.hold(OurLock)
                theirs = other(self)
                theirs.want()
                self.wait_for_contenders(2)
                self.assertTrue(ours.key in self.server.keys(f"{KEY}/"), "the key that the command was told")
                ours.release()
                theirs.wait()
                self.assertGreater(theirs.token, ours.token)
                theirs.release()

    def test_we_wait_while_they_hold(self):
        for other in self.OTHERS:
            with self.subTest(other.__name__):
                theirs = self.hold(other)
                self.assertEqual(self.try_once(), 75)
                self.assertEqual(self.server.keys(f"{KEY}/"), [theirs.key])
                ours = OurLock(self)
                ours.want()
                self.wait_for_contenders(2)
                theirs.release()
                ours.wait()
                self.assertGreater(ours.token, theirs.token)
                ours.release()

    def test_all_enter_in_the_order_of_their_arrival(self):
        line = [OurLock, GoLock, OurLock, EtcdctlLock, GoLock, OurLock]
        contenders = [what(self) for what in line]
        for place, each in enumerate(contenders):
            each.want()
            self.wait_for_contenders(place + 1)
        tokens = []
        for place, each in enumerate(contenders):
            each.wait()  # nobody else could be in: all others wait, or have left
            self.assertEqual(len(self.server.keys(f"{KEY}/")), len(line) - place)
            tokens.append(each.token)
            each.release()
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_who_was_killed_is_followed_after_its_lease(self):
        for killed, next_one in ((OurLock, GoLock), (GoLock, OurLock), (EtcdctlLock, OurLock)):
            with self.subTest(killed=killed.__name__):
                first = self.hold(killed)
                second = next_one(self)
                second.want()
                self.wait_for_contenders(2)
                first.kill()
                second.wait()
                self.assertGreater(second.token, first.token)
                second.release()

    def start_loop(self, *command):
        process = subprocess.Popen(
            ["sh", "-c", 'for i in $(seq "$0"); do "$@" || exit 1; done', str(TURNS), *command], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, env=dict(self.server.environment(), **self.environment),
            preexec_fn=die_with_parent,
        )
        self.started.append(process)
        return process

    def test_no_update_is_lost_and_tokens_grow(self):
        counter = self.folder / "counter"
        counter.write_text("0")
        work = ("sh", "-c", COUNT, "sh", str(counter))
        loops = [self.start_loop(COMMAND, "run", KEY, "--", *work) for _ in range(2)]
        loops.append(self.start_loop(ETCDCTL, "lock", f"--ttl={TTL}", KEY, "--", *work))
        peers = [Told(GO_PEER, self.server.endpoint, str(TTL)) for _ in range(2)]
        for each in peers:
            self.addCleanup(each.close)
            each.tell("count", KEY, str(counter), str(TURNS))
        for each in peers:
            self.assertEqual(each.answer()[0], "counted")
        for each in loops:
            self.assertEqual(each.wait(2 * LIMIT), 0)

        self.assertEqual(int(counter.read_text()), 5 * TURNS)
        tokens = [int(each) for each in (self.folder / "counter.tokens").read_text().split()]
        self.assertEqual(len(tokens), 5 * TURNS)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_command_sees_its_own_lock_inside_of_an_outer_one(self):
        inner = ("sh", "-c", 'echo $ETCD_LOCK_KEY $ETCD_LOCK_REV $SALLYPORT_TOKEN')
        said = subprocess.run(
            [ETCDCTL, "lock", "outer", "--", COMMAND, "run", "inner", "--", *inner], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=2 * LIMIT, check=True,
            env=dict(self.server.environment(), **self.environment),
        )
        key, revision, token = said.stdout.split()
        self.assertTrue(key.startswith("inner/"), key)
        self.assertEqual(revision, token)


class Elections(EtcdInteropTest):
    def candidate(self):
        made = Told(CANDIDATE, self.server.store(), KEY, str(TTL))
        self.addCleanup(made.close)
        return made

    def go(self):
        made = Told(GO_PEER, self.server.endpoint, str(TTL))
        self.addCleanup(made.close)
        return made

    def etcdctl(self, *arguments):
        process = subprocess.Popen(
            [ETCDCTL, "elect", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            env=self.server.environment(), preexec_fn=die_with_parent,
        )
        self.started.append(process)
        self.addCleanup(process.stdout.close)
        return process

    def test_they_see_our_leader_and_what_it_says(self):
        ours = self.candidate()
        go = self.go()
        self.assertEqual(go.ask("leader", KEY), ["leader"])
        self.assertEqual(ours.ask("campaign", "alpha")[0], "leads")
        self.assertEqual(go.ask("leader", KEY), ["leader", "alpha"])
        listener = self.etcdctl("--listen", KEY)
        self.assertTrue(listener.stdout.readline().startswith(f"{KEY}/"))
        self.assertEqual(listener.stdout.readline(), "alpha\n")

        go.tell("observe", KEY, "alpha2")
        self.assertEqual(ours.ask("proclaim", "alpha2"), ["proclaimed"])
        self.assertEqual(go.answer(), ["observed", "alpha2"])
        listener.stdout.readline()
        self.assertEqual(listener.stdout.readline(), "alpha2\n")

    def test_we_see_their_leaders(self):
        ours = self.candidate()
        self.assertEqual(ours.ask("leader"), ["nobody"])
        go = self.go()
        self.assertEqual(go.ask("campaign", KEY, "beta")[0], "leads")
        self.assertEqual(ours.ask("follow", "beta"), ["followed", "beta"])
        self.assertEqual(ours.ask("leader"), ["leader", "beta"])
        theirs = self.etcdctl(KEY, "gamma")
        self.wait_for_contenders(2)
        self.assertEqual(go.ask("resign"), ["resigned"])
        self.assertEqual(ours.ask("follow", "gamma"), ["followed", "gamma"])
        # We may see it lead before it knows that itself. Until it has said so, a signal makes it leave without
        # resigning, and its key stays for the minute that its session lasts.
        self.assertTrue(theirs.stdout.readline().startswith(f"{KEY}/"))
        self.assertEqual(theirs.stdout.readline(), "gamma\n")
        theirs.terminate()
        self.assertEqual(ours.ask("campaign", "alpha")[0], "leads")

    def test_one_leads_at_a_time_and_terms_grow(self):
        ours = self.candidate()
        go = self.go()
        first = int(ours.ask("campaign", "alpha")[1])
        go.tell("campaign", KEY, "beta")
        self.wait_for_contenders(2)
        self.assertEqual(ours.ask("resign"), ["released"])
        word, _, second = go.answer()
        self.assertEqual(word, "leads")
        self.assertGreater(int(second), first)
        ours.tell("campaign", "alpha")
        self.wait_for_contenders(2)
        go.kill()
        word, third = ours.answer()
        self.assertEqual(word, "leads")
        self.assertGreater(int(third), int(second))

    def test_they_follow_our_leader_that_was_killed(self):
        ours = self.candidate()
        go = self.go()
        first = int(ours.ask("campaign", "alpha")[1])
        go.tell("campaign", KEY, "beta")
        self.wait_for_contenders(2)
        ours.kill()
        word, _, second = go.answer()
        self.assertEqual(word, "leads")
        self.assertGreater(int(second), first)


if __name__ == "__main__":
    unittest.main()
