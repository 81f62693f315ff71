"""What COMMAND sees of the store, and `sallyport` inside `sallyport run`: the same store, or none."""

import unittest

from kit import COMMAND, LocalTest

# Holds `inner` inside `outer`, and says on which store anybody sees that it is held.
NESTED = '"$0" run inner -- sh -c \'"$0" who inner --store "$1" > /dev/null && echo same\' "$0" "$1"'


class Nested(LocalTest):
    def nested(self, store, plain=None, **environment):
        """`plain`: how somebody else reaches the same store."""
        self.environment.update(environment, SALLYPORT_STORE=store)
        return self.sallyport("run", "outer", "--", "sh", "-c", NESTED, COMMAND, plain or store)

    def variables(self, store, **environment):
        self.environment.update(environment, SALLYPORT_STORE=store)
        told = self.sallyport("run", "x", "--", "env")
        self.assertEqual(told.returncode, 0, told.stderr)
        return dict(line.split("=", 1) for line in told.stdout.splitlines())

    def assert_withheld(self, told, *secrets):
        self.assertEqual((told.returncode, told.stdout), (64, ""), told.stderr)
        self.assertRegex(told.stderr, r"^sallyport: the store's address \(.*\) was withheld from this command")
        for secret in secrets:
            self.assertNotIn(secret, told.stderr)

    def test_options_that_are_no_secrets_lead_to_the_same_store(self):
        port = self.redis_server().port
        for store in (f"local:{self.folder}/other?size=2M", f"redis://127.0.0.1:{port}/3?prefix=app:"):
            told = self.nested(store)
            self.assertEqual((told.returncode, told.stdout), (0, "same\n"), told.stderr)
            self.assertEqual(self.variables(store)["SALLYPORT_STORE"], store)

    def test_a_password_file_is_passed_on(self):
        port = self.redis_server("--requirepass", "s3cret").port
        file = self.folder / "password"
        file.write_text("s3cret\n")
        told = self.nested(f"redis://127.0.0.1:{port}?password_file={file}")
        self.assertEqual((told.returncode, told.stdout), (0, "same\n"), told.stderr)

    def test_a_password_in_the_address_withholds_it(self):
        port = self.redis_server("--requirepass", "s3cret").port
        store = f"redis://:s3cret@127.0.0.1:{port}/3?prefix=app:"
        self.assert_withheld(self.nested(store), "s3cret")
        seen = self.variables(store)
        self.assertEqual(seen["SALLYPORT_STORE"], f"withheld:redis://127.0.0.1:{port}/3?prefix=app:")
        self.assertNotIn("s3cret", str(seen))

    def test_a_password_in_a_variable_is_removed_with_it(self):
        port = self.redis_server("--requirepass", "s3cret").port
        store = f"redis://127.0.0.1:{port}?password_env=LOCKPW"
        self.assert_withheld(self.nested(store, LOCKPW="s3cret"), "s3cret")
        seen = self.variables(store, LOCKPW="s3cret", PGPASSWORD="for psql")
        self.assertNotIn("LOCKPW", seen)
        self.assertNotIn("s3cret", str(seen))
        self.assertEqual(seen["PGPASSWORD"], "for psql")

    def test_a_command_that_names_the_store_itself_gets_it(self):
        port = self.redis_server("--requirepass", "s3cret").port
        file = self.folder / "password"
        file.write_text("s3cret\n")
        plain = f"redis://127.0.0.1:{port}?password_file={file}"
        self.environment["SALLYPORT_STORE"] = f"redis://:s3cret@127.0.0.1:{port}"
        told = self.sallyport("run", "outer", "--", "env", f"SALLYPORT_STORE={plain}", "sh", "-c", NESTED, COMMAND, plain)
        self.assertEqual((told.returncode, told.stdout), (0, "same\n"), told.stderr)

    def test_every_command_refuses_a_store_that_was_withheld(self):
        self.environment["SALLYPORT_STORE"] = "withheld:redis://db"
        for command in (["ls"], ["who", "x"], ["schema"], ["run", "x", "--", "true"], ["break", "x", "--yes"]):
            self.assert_withheld(self.sallyport(*command))


if __name__ == "__main__":
    unittest.main()
