"""What the command says about itself, and how it refuses what it does not understand."""

import subprocess
import unittest

from kit import COMMAND, CliTest


class Help(CliTest):
    def test_every_command_teaches_by_example(self):
        for topic in ("run", "ls", "who", "break", "fence", "init", "schema"):
            page = self.sallyport("help", topic)
            self.assertEqual((page.returncode, page.stderr), (0, ""))
            self.assertIn("examples:", page.stdout)
            self.assertIn("exit codes:", page.stdout)
            self.assertEqual(self.sallyport(topic, "--help").stdout, page.stdout)
            self.assertEqual(self.sallyport(topic, "-h").stdout, page.stdout)
            self.assertLessEqual(max(map(len, page.stdout.splitlines())), 105)

    def test_the_overview_names_every_command(self):
        for asked in (["help"], ["--help"], ["-h"]):
            page = self.sallyport(*asked)
            self.assertEqual(page.returncode, 0)
            for word in ("run", "ls", "who", "break", "fence", "init", "schema", "examples:"):
                self.assertIn(word, page.stdout)

    def test_run_explains_cron_deploys_fencing_and_exit_codes(self):
        page = self.sallyport("help", "run").stdout
        for word in ("cron", "deploy", "migration", "timeout", "fencing", "SALLYPORT_TOKEN", "75", "76", "128+n"):
            self.assertIn(word, page)

    def test_version(self):
        told = self.sallyport("--version")
        self.assertEqual(told.returncode, 0)
        self.assertRegex(told.stdout, r"^sallyport \d+\.\d+\.\d+\n$")

    def test_schema_prints_what_an_administrator_runs_and_asks_nobody(self):
        told = self.sallyport("schema", "postgres://app:secret@127.0.0.1:1/db?schema=our%20locks")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertTrue(told.stdout.startswith("BEGIN;"))
        self.assertIn('CREATE TABLE IF NOT EXISTS "our locks".lock', told.stdout)
        self.assertIn('TO "app";', told.stdout)
        self.assertNotIn("secret", told.stdout)
        told = self.sallyport("schema", "mariadb://app:secret@127.0.0.1:1/shop?prefix=our_")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertTrue(told.stdout.startswith("USE `shop`;"))
        self.assertIn("CREATE TABLE IF NOT EXISTS `our_lock`", told.stdout)
        self.assertIn("TO 'app'@'%';", told.stdout)
        self.assertNotIn("secret", told.stdout)

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            told = subprocess.run([COMMAND, "help"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=20)
        self.assertEqual(told.returncode, 74)
        self.assertIn(b"sallyport: could not write", told.stderr)


class LeadingOptions(CliTest):
    def test_the_store_and_json_may_come_before_the_command(self):
        store = f"local:{self.folder / 'other'}"
        for leading in (("--store", store), (f"--store={store}",)):
            told = self.sallyport(*leading, "--json", "ls")
            self.assertEqual((told.returncode, told.stdout), (0, '{"locks":[]}\n'), told.stderr)
            told = self.sallyport(*leading, "run", "x", "--", "sh", "-c", 'echo "$SALLYPORT_STORE"; echo "$@"', "sh", "--json")
            self.assertEqual((told.returncode, told.stdout), (0, f"{store}\n--json\n"), told.stderr)
        self.assertTrue((self.folder / "other").is_dir(), "that store was used")


class Refusals(CliTest):
    def refused(self, *arguments):
        told = self.sallyport(*arguments)
        self.assertEqual(told.returncode, 64, told.stderr)
        self.assertEqual(told.stdout, "")
        self.assertTrue(told.stderr.startswith("sallyport: "), told.stderr)
        self.assertEqual(told.stderr.count("\n"), 1, told.stderr)
        return told.stderr

    def test_schema_of_a_store_that_needs_none(self):
        self.assertIn("no tables", self.refused("schema", "memory:"))
        self.assertIn("one URI at a time", self.refused("schema", "memory:", "memory:"))

    def test_an_option_before_the_command_is_explained(self):
        self.assertIn("come behind it", self.refused("-n", "run", "x", "--", "true"))
        self.assertIn("did you mean '--version'?", self.refused("--versoin"))
        self.assertIn("'--json' is no option of 'fence'", self.refused("--json", "fence", "check", "/tmp/gate"))
        self.assertIn("--store needs a value", self.refused("--store"))

    def test_an_address_in_a_wrong_place_keeps_its_password(self):
        secret = "redis://:s3cret@db"
        for words in (
            (f"--store={secret}", "fence", "check", "/tmp/gate"),
            (f"--store={secret}", "init"),
            ("schema", "memory:", secret),
            ("init", "redlock://a,b,c", secret),
        ):
            self.assertNotIn("s3cret", self.refused(*words))

    def test_a_store_without_a_command_is_explained(self):
        self.assertIn("sallyport help", self.refused("--store", "memory:"))

    def test_nothing_to_do(self):
        self.assertIn("sallyport help", self.refused())

    def test_unknown_command_names_the_nearest(self):
        self.assertIn("did you mean 'run'?", self.refused("rnu"))
        self.assertIn("did you mean 'who'?", self.refused("help", "whoo"))

    def test_unknown_option_names_the_nearest(self):
        self.assertIn("did you mean --nonblock?", self.refused("run", "--nonblok", "x", "--", "true"))
        self.assertIn("did you mean --json?", self.refused("ls", "--jsno"))
        self.assertIn("sh -c", self.refused("run", "x", "-c", "true"))

    def test_names_are_checked_before_anything_happens(self):
        self.refused("run", "", "--", "true")
        self.refused("run", "a\nb", "--", "true")
        self.refused("run", "x" * 256, "--", "true")
        self.refused("run", b"\xff", "--", "true")
        self.refused("who", "")
        self.refused("break", "a\tb", "--yes")

    def test_missing_parts(self):
        self.refused("run")
        self.refused("run", "x")
        self.refused("run", "x", "--")
        self.refused("run", "--", "true")
        self.refused("who")
        self.refused("who", "a", "b")
        self.refused("break")

    def test_bad_values(self):
        self.refused("run", "-w", "soon", "x", "--", "true")
        self.refused("run", "-w", "-1", "x", "--", "true")
        self.refused("run", "-E", "300", "x", "--", "true")
        self.refused("run", "--lease", "1ms", "x", "--", "true")
        self.refused("run", "--lease", "25h", "x", "--", "true")
        self.refused("run", "--permits", "none", "x", "--", "true")
        self.refused("break", "x", "--token", "abc")

    def test_unknown_store(self):
        self.assertIn("carrier-pigeon", self.refused("run", "--store", "carrier-pigeon:", "x", "--", "true"))

    def test_the_command_is_not_run_when_usage_is_wrong(self):
        self.refused("run", "--lease", "1ms", "x", "--", "touch", str(self.folder / "ran"))
        self.assertFalse((self.folder / "ran").exists())


if __name__ == "__main__":
    unittest.main()
