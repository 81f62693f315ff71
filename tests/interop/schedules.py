"""The schedules on which Sallyport meets another client's lock on the same key."""

import os
import subprocess
import threading
import time

from kit import COMMAND, KEY, LIMIT, InteropTest, die_with_parent, wait_until


class Schedules(InteropTest):
    """What has to hold with every client. A subclass says which: LOCK."""

    LOCK = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.LOCK(cls.server)
        cls.addClassCleanup(cls.other.close)

    def ours(self):
        return (self.redis.get(KEY) or b"").startswith(b"sp1 ")

    def test_they_are_kept_out_while_we_hold(self):
        holder = self.hold()
        self.assertFalse(self.other.acquire(30))
        self.assertTrue(self.ours())
        self.let_go(holder)
        self.assertTrue(self.other.acquire(30))

    def test_we_are_kept_out_while_they_hold(self):
        self.assertTrue(self.other.acquire(30))
        value = self.redis.get(KEY)
        self.assertEqual(self.try_once(), 75)
        self.assertEqual(self.redis.get(KEY), value)
        self.assertTrue(self.other.release())
        self.assertEqual(self.try_once(), 0)

    def test_a_renewed_lease_keeps_them_out_for_longer_than_its_length(self):
        holder = self.hold("--lease", "1s")
        self.assertFalse(self.other.acquire(30, patience=2.5))
        self.let_go(holder)

    def test_we_enter_soon_after_their_release(self):
        took = []
        for _ in range(4):
            self.assertTrue(self.other.acquire(30))
            waiter = self.start_holder()
            self.wait_for_waiters(1)
            self.assertTrue(self.other.release())
            released = time.monotonic()
            self.wait_for_held()
            took.append(time.monotonic() - released)
            self.let_go(waiter)
        # A busy machine adds to a turn, and takes nothing away: the best is what the waiter needs.
        self.assertLess(min(took), 0.3, took)

    def test_we_enter_when_their_lock_expires(self):
        began = time.monotonic()
        self.assertTrue(self.other.acquire(1.0))
        waiter = self.start_holder()
        self.wait_for_held()
        self.assertGreaterEqual(time.monotonic() - began, 0.99)
        self.assertTrue(self.ours())
        self.let_go(waiter)

    def test_they_enter_after_our_release(self):
        holder = self.hold()
        entered = []
        waiting = threading.Thread(target=lambda: entered.append(self.other.acquire(30, patience=LIMIT)))
        waiting.start()
        self.let_go(holder)
        waiting.join(2 * LIMIT)
        self.assertEqual(entered, [True])
        self.assertEqual(self.try_once(), 75)
        self.assertTrue(self.other.release())

    def test_their_late_release_leaves_our_lock_alone(self):
        self.assertTrue(self.other.acquire(0.3))
        holder = self.hold()
        value = self.redis.get(KEY)
        self.assertFalse(self.other.release())
        self.assertEqual(self.redis.get(KEY), value)
        self.assertEqual(self.try_once(), 75)
        self.let_go(holder)

    def test_our_late_release_leaves_their_lock_alone(self):
        holder = self.hold()
        self.server.delete(KEY)  # an operator's: we still believe that it is ours
        self.assertTrue(self.other.acquire(30))
        value = self.redis.get(KEY)
        holder.stdin.write("\n")
        holder.stdin.flush()
        holder.wait(LIMIT)
        self.assertEqual(self.redis.get(KEY), value)
        self.assertTrue(self.other.release())

    def test_a_killed_holder_of_ours_delays_them_by_its_lease_at_most(self):
        holder = self.hold("--lease", "1s")
        holder.kill()
        self.assertTrue(self.other.acquire(30, patience=LIMIT))
        self.assertTrue(self.other.release())

    def test_two_are_never_inside_together(self):
        inside = 'mkdir "$DIR/inside" || touch "$DIR/overlap"; rmdir "$DIR/inside"; echo in >> "$DIR/turns"'
        # Without a pause the two would hand the lock to each other for ever, and it would never be free for who only polls.
        loop = f"until test -e \"$DIR/enough\"; do \"$0\" run {KEY} -- sh -c '{inside}' || exit 1; sleep 0.05; done"
        loops = []
        for _ in range(2):
            process = subprocess.Popen(
                ["sh", "-c", loop, COMMAND], env=self.environment, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
            self.started.append(process)
            loops.append(process)
        wait_until((self.folder / "turns").exists, "Sallyport's first turn")
        for _ in range(10):
            self.assertTrue(self.other.acquire(30, patience=LIMIT))
            os.mkdir(self.folder / "inside")
            os.rmdir(self.folder / "inside")
            self.assertTrue(self.other.release())
        (self.folder / "enough").touch()
        for process in loops:
            self.assertEqual(process.wait(LIMIT), 0)
        self.assertFalse((self.folder / "overlap").exists())
