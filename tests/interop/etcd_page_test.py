"""What docs/etcd.md tells people to type is typed here, block by block, with another address."""

import os
import pathlib
import re
import subprocess
import unittest

from etcd_kit import COMMAND, ETCDCTL, LIMIT, EtcdInteropTest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "etcd.md"
ADDRESS = "etcd://etcd1,etcd2,etcd3"  # the page's
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


class Page(EtcdInteropTest):
    def setUp(self):
        super().setUp()
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "sallyport").symlink_to(COMMAND)
        (programs / "etcdctl").symlink_to(ETCDCTL)
        deploy = self.folder / "deploy.sh"
        deploy.write_text('#!/bin/sh\necho "deployed at $ETCD_LOCK_REV"\n')
        deploy.chmod(0o700)
        self.environment.update(
            {name: value for name, value in self.server.environment().items() if name.startswith("ETCDCTL_")},
            PATH=f"{programs}:{os.environ['PATH']}",
        )

    def type(self, block):
        return subprocess.run(
            ["sh", "-e", "-c", block.replace(ADDRESS, self.server.store())], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * LIMIT, check=False,
        )

    def test_every_block_works(self):
        self.assertGreaterEqual(len(BLOCKS), 3)
        for block in BLOCKS:
            with self.subTest(block):
                done = self.type(block)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_first_block_deploys_twice_with_growing_revisions(self):
        said = self.type(BLOCKS[0]).stdout
        first, second = map(int, re.findall(r"deployed at (\d+)", said))
        self.assertGreater(second, first)

    def test_a_command_sees_key_and_revision(self):
        block = next(each for each in BLOCKS if "ETCD_LOCK_KEY" in each)
        said = re.findall(r"(deploy/\S+) at (\d+)(?:, token (\d+))?", self.type(block).stdout)
        self.assertEqual(len(said), 2, said)
        self.assertEqual(said[0][1], said[0][2])
        self.assertGreater(int(said[1][1]), int(said[0][1]))


if __name__ == "__main__":
    unittest.main()
