"""A fencing gate in etcd between a holder of Sallyport that stood still and a Go program that came after it."""

import os
import signal
import unittest

from etcd_kit import GO_PEER, KEY, TTL, EtcdInteropTest, Told

WRITER = os.environ["SALLYPORT_WRITER"]


class Gate(EtcdInteropTest):
    def setUp(self):
        super().setUp()
        self.server.ctl("put", "balance", "100")
        self.first = Told(WRITER, self.server.endpoint.split(":")[1], KEY, str(TTL))
        self.addCleanup(self.first.close)
        self.addCleanup(self.first.process.send_signal, signal.SIGCONT)
        self.second = Told(GO_PEER, self.server.endpoint, str(TTL))
        self.addCleanup(self.second.close)

    def stop_first_until_second_holds(self):
        """The first holds, is stopped for longer than its lease, and goes on when the second holds."""
        self.assertEqual(self.first.ask("hold")[0], "holding")
        self.lock = self.first.ask("lock")[1]
        self.first.process.send_signal(signal.SIGSTOP)
        word, _, self.token = self.second.ask("lock", KEY)
        self.assertEqual(word, "locked")

    def go_on(self):
        self.first.process.send_signal(signal.SIGCONT)

    def test_without_a_gate_the_late_write_goes_through(self):
        self.stop_first_until_second_holds()
        self.server.ctl("put", "balance", "150")  # the second's, rightly
        self.go_on()
        self.assertEqual(self.first.ask("bare", "balance", "70"), ["written"])
        self.assertEqual(self.server.get("balance"), "70")

    def test_a_gate_refuses_the_late_write(self):
        self.stop_first_until_second_holds()
        self.assertEqual(self.second.ask("write", "fence", "balance", "150", self.lock, self.token), ["passed"])
        self.go_on()
        self.assertEqual(self.first.ask("gate", "fence", "balance", "70"), ["stale"])
        self.assertEqual(self.server.get("balance"), "150")
        self.assertEqual(self.second.ask("write", "fence", "balance", "160", self.lock, self.token), ["passed"])

    def test_a_condition_on_the_own_key_refuses_the_late_write(self):
        self.stop_first_until_second_holds()
        self.go_on()
        self.assertEqual(self.first.ask("owner", "balance", "70"), ["refused"])
        self.assertEqual(self.server.get("balance"), "100")

    def test_who_holds_passes_by_either_check_and_go_is_the_late_one(self):
        self.assertEqual(self.first.ask("hold")[0], "holding")
        lock = self.first.ask("lock")[1]
        self.assertEqual(self.first.ask("owner", "balance", "110"), ["written"])
        self.assertEqual(self.first.ask("gate", "fence", "balance", "120"), ["passed"])
        self.assertEqual(self.first.ask("gate", "fence", "balance", "130"), ["passed"])
        self.assertEqual(self.second.ask("write", "fence", "balance", "0", lock, "1"), ["stale"])
        self.assertEqual(self.second.ask("write", "fence", "balance", "0", "another", "99999"), ["wrong_lock"])
        self.assertEqual(self.server.get("balance"), "130")
        self.assertEqual(self.first.ask("leave"), ["released"])
        self.assertEqual(self.first.ask("owner", "balance", "0"), ["refused"])

    def test_the_message_is_what_etcd_reads(self):
        self.assertEqual(self.first.ask("hold")[0], "holding")
        lock = self.first.ask("lock")[1]
        words = self.first.ask("words", "fence", "balance", "140")[1]
        self.assertEqual(self.second.ask("txn", words), ["succeeded", "false", "true"])
        self.assertEqual(self.second.ask("txn", words), ["succeeded", "true"])
        self.assertEqual(self.server.get("balance"), "140")
        self.assertEqual(self.second.ask("write", "fence", "balance", "150", lock, "99999"), ["passed"])
        self.assertEqual(self.second.ask("txn", words), ["succeeded", "false", "false", "true"])
        self.assertEqual(self.server.get("balance"), "150")


if __name__ == "__main__":
    unittest.main()
