"""`sallyport run` and a store that is away when it starts."""

import ctypes
import mmap
import os
import pathlib
import signal
import time
import unittest

from kit import COMMAND, CliTest, LocalTest, Screen, wait_until


class StoreAway(CliTest):
    def setUp(self):
        super().setUp()
        self.server = self.redis_server(started=False)
        self.environment["SALLYPORT_STORE"] = f"redis://127.0.0.1:{self.server.port}"

    def timed(self, *arguments):
        """What was told, and how many seconds it took."""
        began = time.monotonic()
        told = self.sallyport(*arguments)
        return told, time.monotonic() - began

    def test_is_waited_for(self):
        for options in ([], ["-w", "20"], ["--store-wait", "20"], ["-w", "1.9"]):
            process = self.start("run", "-v", *options, "x", "--", "sh", "-c", "exit 3")
            if options != ["-w", "1.9"]:  # too short for a look of its own
                self.assertIn("waiting for the store, for at most", process.stderr.readline())
            self.server.start()
            code, said = self.end_of(process)
            self.assertEqual(code, 3, said)
            self.assertNotIn("waiting for the store", said, "said once")
            self.server.stop()

    def test_is_waited_for_in_silence_where_nobody_reads(self):
        process = self.start("run", "x", "--", "sh", "-c", "exit 3")
        select_a_moment()
        self.server.start()
        self.assertEqual(self.end_of(process), (3, ""))

    def test_is_told_on_a_terminal(self):
        screen = Screen([COMMAND, "run", "x", "--", "true"], self.environment)
        self.addCleanup(screen.close)
        screen.expect("waiting for the store, for at most ")
        screen.type("\x03")
        self.assertEqual(screen.end(), 130)

    def test_is_not_waited_for_with_nonblock(self):
        for options in (["-n"], ["-n", "--store-wait", "20"], ["-w", "0"], ["-w", "10", "--store-wait", "0"]):
            told, took = self.timed("run", *options, "x", "--", "touch", str(self.folder / "ran"))
            self.assertEqual(told.returncode, 69, told.stderr)
            self.assertIn("Connection refused", told.stderr)
            self.assertLess(took, 5)
        self.assertFalse((self.folder / "ran").exists())

    def test_ends_the_wait_when_its_time_is_up(self):
        for options, limit in ((["-w", "0.6"], 0.6), (["-w", "2.3"], 2.3), (["--store-wait", "0.6"], 0.6)):
            told, took = self.timed("run", *options, "x", "--", "touch", str(self.folder / "ran"))
            self.assertEqual(told.returncode, 69, told.stderr)
            self.assertIn("Connection refused", told.stderr)
            self.assertGreaterEqual(took, limit)
            self.assertLess(took, limit + 3)
        self.assertFalse((self.folder / "ran").exists())

    def test_that_hangs_is_not_taken_for_a_held_lock(self):
        self.server.start()
        self.server.process.send_signal(signal.SIGSTOP)
        for limit in ("0.6", "4"):
            told, took = self.timed("run", "-w", limit, "x", "--", "touch", str(self.folder / "ran"))
            self.assertEqual(told.returncode, 69, told.stderr)
            # A second for saying good-bye, and 2 s for the first connection where the wait is shorter.
            self.assertLess(took, max(float(limit), 2.6) + 3)
        self.server.process.send_signal(signal.SIGCONT)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_signal_ends_the_wait_for_it(self):
        process = self.start("run", "-v", "x", "--", "touch", str(self.folder / "ran"))
        self.assertIn("waiting for the store", process.stderr.readline())
        process.terminate()
        self.assertEqual(self.end_of(process), (128 + signal.SIGTERM, ""))
        self.assertFalse((self.folder / "ran").exists())

    def test_what_waiting_does_not_mend_fails_at_once(self):
        guarded = self.redis_server("--requirepass", "secret")
        for store, code in (
            (f"redis://:wrong@127.0.0.1:{guarded.port}", 69),
            (f"redis://127.0.0.1:{guarded.port}?prefixes=x", 64),
            ("local:/proc/no-such-folder", 69),
            (f"local:{self.folder}/no/such/folder", 69),
        ):
            told, took = self.timed("run", "--store", store, "x", "--", "true")
            self.assertEqual(told.returncode, code, told.stderr)
            self.assertLess(took, 8, store)


def select_a_moment():
    """For what cannot be seen from outside: that somebody waits in silence."""
    end = time.monotonic() + 0.5
    wait_until(lambda: time.monotonic() > end, "half a second")


class StoreBusy(LocalTest):
    """Somebody was stopped inside the gate of `local:`, and keeps all others out."""

    # gate_region of src/backends/local/gate.cpp; what stands before its mutex.
    MUTEX_AT = 16 + 64 + 3 * 8 + 4 * 4

    def enter_gate(self):
        libc = ctypes.CDLL(None)
        gate = next(pathlib.Path(self.folder / "store").glob("gate-*"))
        descriptor = os.open(gate, os.O_RDWR)
        mapped = mmap.mmap(descriptor, 4096)
        os.close(descriptor)
        mutex = ctypes.byref(ctypes.c_char.from_buffer(mapped, self.MUTEX_AT))
        self.assertEqual(libc.pthread_mutex_lock(mutex), 0)
        return lambda: libc.pthread_mutex_unlock(mutex)

    def test_is_waited_for(self):
        self.assertEqual(self.sallyport("run", "x", "--", "true").returncode, 0)
        leave_gate = self.enter_gate()
        process = self.start("run", "-v", "x", "--", "sh", "-c", "exit 3")
        try:
            self.assertIn("waiting for the store, for at most", process.stderr.readline())
        finally:
            leave_gate()
        self.assertEqual(process.wait(20), 3)


if __name__ == "__main__":
    unittest.main()
