"""redis-py's Lock and Sallyport on one key."""

import unittest

import redis

from kit import KEY, RedisPyLock
from schedules import Schedules


class AgainstRedisPyLock(Schedules):
    LOCK = RedisPyLock

    def test_a_lock_without_a_time_to_live_keeps_us_out_until_it_is_released(self):
        self.assertTrue(self.other.acquire(None))
        self.assertEqual(self.redis.pttl(KEY), -1)
        self.assertEqual(self.try_once(), 75)
        self.assertEqual(self.sallyport("run", "-w", "0.5", KEY, "--", "true").returncode, 75)
        waiter = self.start_holder()
        self.wait_for_waiters(1)
        self.assertEqual(self.redis.pttl(KEY), -1)
        self.assertTrue(self.other.release())
        self.wait_for_held()
        self.let_go(waiter)

    def test_they_extend_only_what_is_theirs(self):
        self.assertTrue(self.other.acquire(0.3))
        holder = self.hold()
        left = self.redis.pttl(KEY)
        with self.assertRaises(redis.exceptions.LockNotOwnedError):
            self.other.lock.extend(1000)
        self.assertLessEqual(self.redis.pttl(KEY), max(left, 30_000))
        self.let_go(holder)


del Schedules  # abstract: it is not to be run by itself

if __name__ == "__main__":
    unittest.main()
