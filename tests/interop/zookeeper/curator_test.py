"""Curator's locks and Sallyport's on one path; and all three on one, as docs/zookeeper.md shows it."""

import os
import subprocess
import sys
import unittest

import page
from kit import COMMAND, LIMIT, die_with_parent
from meetings import Meetings, ReadersAndWriters
from zookeeper_kit import CURATOR_JARS, HERE, JAVA, ROOT

CLASSES = [*JAVA, "-cp", CURATOR_JARS + ":" + os.environ["SALLYPORT_JAVA_CLASSES"]]


class Curator(Meetings, ReadersAndWriters):
    COMMAND = [*CLASSES, "CuratorPeer"]

    def test_a_semaphore_counts_the_permits_of_both(self):
        permit = self.hold_name("pool", "--permits", "2")
        self.take("b", "permit", f"{ROOT}/pool")
        self.assertFalse(self.runs("pool", "--permits", "2"))
        self.refused("c", "permit", f"{ROOT}/pool")
        self.give("b")
        self.assertTrue(self.runs("pool", "--permits", "2"))
        self.take("d", "permit", f"{ROOT}/pool")
        self.let_go(permit)
        self.take("e", "permit", f"{ROOT}/pool")
        self.assertFalse(self.runs("pool", "--permits", "2"))
        self.give("d")
        self.give("e")

    def test_a_name_with_a_slash_is_one_node_or_a_path(self):
        for name, options, path in (
            ("a/b", "", f"{ROOT}/a%2Fb"),
            ("c/d", "&names=path", f"{ROOT}/c/d"),
        ):
            with self.subTest(name=name):
                self.environment["SALLYPORT_STORE"] = self.server.store(options)
                holder = self.hold_name(name)
                self.refused("b", "mutex", path)
                self.let_go(holder)
                self.take("c", "mutex", path)
                self.assertFalse(self.runs(name))
                self.give("c")

    def test_the_examples_of_the_page_are_these_programs_and_take_one_lock(self):
        shown = page.examples()
        self.assertEqual([language for language, _ in shown], ["sh", "sh", "java", "python"])
        (_, first), (_, second), (_, java), (_, python) = shown
        self.assertEqual(java, page.shown_part("Orders.java"))
        self.assertEqual(python, page.shown_part("orders.py"))
        self.assertIn(page.HOSTS, first)

        environment = dict(self.environment, PATH=os.path.dirname(COMMAND) + ":" + os.environ["PATH"])
        deploy = self.folder / "deploy.sh"
        deploy.write_text("#!/bin/sh\ntouch deployed\n")
        deploy.chmod(0o755)
        file = self.folder / "orders.txt"
        file.write_text("0\n")
        shell = first.replace(page.HOSTS, self.server.store()) + "for i in 1 2 3\ndo\n" + second + "done\n"
        running = [
            subprocess.Popen(each, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
            for each in (
                [*CLASSES, "Orders", self.server.hosts, str(file), "15"],
                [sys.executable, "-B", str(HERE / "orders.py"), self.server.hosts, str(file), "15"],
                ["sh", "-ec", shell],
                ["sh", "-ec", shell],
            )
        ]
        self.started += running
        for process in running:
            self.assertEqual(process.wait(2 * LIMIT), 0)
        self.assertTrue((self.folder / "deployed").exists())
        self.assertEqual(file.read_text(), "36\n")


del Meetings, ReadersAndWriters  # abstract: they are not to be run by themselves

if __name__ == "__main__":
    unittest.main()
