"""The schedules on which Sallyport meets another library's contenders on one lock of ZooKeeper."""

import subprocess

from kit import COMMAND, KEY, LIMIT, die_with_parent, wait_until
from zookeeper_kit import ROOT, OnZooKeeper

PATH = f"{ROOT}/{KEY}"


class Meetings(OnZooKeeper):
    """What has to hold with every library. A subclass says which: COMMAND, KIND and OPTIONS."""

    KIND = "mutex"

    def token_of_a_run(self):
        done = self.sallyport("run", KEY, "--", "sh", "-c", "echo $SALLYPORT_TOKEN")
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(done.stdout)

    def test_each_is_kept_out_while_the_other_holds(self):
        holder = self.hold()
        self.refused("b", self.KIND, PATH)
        self.let_go(holder)
        self.take("c", self.KIND, PATH)
        self.assertFalse(self.runs(KEY))
        self.give("c")
        self.assertTrue(self.runs(KEY))

    def test_nobody_is_inside_together_and_no_turn_is_lost(self):
        rounds = 6
        turn = (
            'mkdir "$DIR/inside" || touch "$DIR/overlap"; read count < "$DIR/count"; echo $((count + 1)) > "$DIR/count"; '
            'rmdir "$DIR/inside"; echo $SALLYPORT_TOKEN >> "$DIR/tokens"'
        )
        loop = f"for i in {' '.join(map(str, range(rounds)))}; do \"$0\" run {KEY} -- sh -c '{turn}' || exit 1; done"
        (self.folder / "count").write_text("0\n")
        for who in "ab":
            self.peer.ask("turns", who, self.KIND, PATH, 4 * rounds)
        loops = [
            subprocess.Popen(["sh", "-c", loop, COMMAND], env=self.environment, stdin=subprocess.DEVNULL,
                             preexec_fn=die_with_parent)
            for _ in range(2)
        ]
        self.started += loops
        for process in loops:
            self.assertEqual(process.wait(2 * LIMIT), 0)
        for who in "ab":
            self.peer.expect(who, "done")
        self.assertFalse((self.folder / "overlap").exists())
        self.assertEqual(int((self.folder / "count").read_text()), 10 * rounds)
        tokens = [int(each) for each in (self.folder / "tokens").read_text().split()]
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertEqual(len(tokens), 2 * rounds)

    def test_they_enter_in_the_order_in_which_they_came(self):
        script = 'test "$0" = A && { touch "$DIR/held"; read line; }; echo $0 >> "$DIR/order"'
        first = self.start(KEY, "--", "sh", "-c", script, "A")
        self.wait_for_held()
        self.peer.ask("note", "B", self.KIND, PATH)
        self.wait_for_contenders(PATH, 2)
        third = self.start(KEY, "--", "sh", "-c", script, "C")
        self.wait_for_contenders(PATH, 3)
        self.peer.ask("note", "D", self.KIND, PATH)
        self.wait_for_contenders(PATH, 4)
        first.stdin.write("\n")
        first.stdin.flush()
        self.peer.expect("D", "done")
        for process in (first, third):
            self.assertEqual(process.wait(LIMIT), 0)
        self.assertEqual((self.folder / "order").read_text().split(), ["A", "B", "C", "D"])

    def test_our_tokens_grow_over_their_holds(self):
        first = self.token_of_a_run()
        self.take("b", self.KIND, PATH)
        self.give("b")
        self.assertGreater(self.token_of_a_run(), first)

    def test_a_killed_holder_of_ours_is_followed_by_them(self):
        holder = self.hold("--lease", "1s")
        self.peer.ask("take", "b", self.KIND, PATH, -1)
        self.wait_for_contenders(PATH, 2)
        holder.kill()
        self.peer.expect("b", "taken")
        self.give("b")

    def test_a_killed_holder_of_theirs_is_followed_by_us(self):
        self.take("b", self.KIND, PATH)
        waiter = self.start_holder()
        self.wait_for_contenders(PATH, 2)
        self.peer.kill()
        self.wait_for_held()
        self.let_go(waiter)

    def test_a_wish_for_release_is_told_and_nothing_else_happens(self):
        holder = self.hold("--lease", "1s")
        [node] = self.contenders(PATH)
        self.peer.ask("wish", "b", f"{PATH}/{node}")
        self.peer.expect("b", "wished")
        said = holder.stderr.readline()
        self.assertIn("asks for 'orders' to be released", said)
        # It says again whose it is, so that the next wish is seen.
        wait_until(lambda: self.zookeeper.get(f"{PATH}/{node}")[0].startswith(b"{"), "the node tells of its owner")
        self.refused("c", self.KIND, PATH)
        self.let_go(holder)


class ReadersAndWriters(OnZooKeeper):
    """The same for kinds `read` and `write`."""

    def test_readers_share_and_writers_do_not(self):
        reader = self.hold("-s")
        self.take("b", "read", PATH)
        self.assertTrue(self.runs(KEY, "-s"))
        self.assertFalse(self.runs(KEY, "-x"))
        self.refused("c", "write", PATH)
        self.give("b")
        self.let_go(reader)

        writer = self.hold("-x")
        self.refused("d", "read", PATH)
        self.refused("e", "write", PATH)
        self.let_go(writer)

        self.take("f", "write", PATH)
        self.assertFalse(self.runs(KEY, "-s"))
        self.assertFalse(self.runs(KEY, "-x"))
        self.give("f")

    def test_a_waiting_writer_of_either_is_not_overtaken_by_readers(self):
        reader = self.hold("-s")
        self.peer.ask("note", "W", "write", PATH)
        self.wait_for_contenders(PATH, 2)
        late = self.start("-s", KEY, "--", "sh", "-c", 'echo R >> "$DIR/order"')
        self.wait_for_contenders(PATH, 3)
        self.let_go(reader)
        self.peer.expect("W", "done")
        self.assertEqual(late.wait(LIMIT), 0)
        self.assertEqual((self.folder / "order").read_text().split(), ["W", "R"])

        self.take("r", "read", PATH)
        writer = self.start("-x", KEY, "--", "sh", "-c", 'echo W >> "$DIR/order"')
        self.wait_for_contenders(PATH, 2)
        self.peer.ask("note", "R", "read", PATH)
        self.wait_for_contenders(PATH, 3)
        self.give("r")
        self.peer.expect("R", "done")
        self.assertEqual(writer.wait(LIMIT), 0)
        self.assertEqual((self.folder / "order").read_text().split(), ["W", "R", "W", "R"])
