"""Fails when docs/why-not.md and its tests are not about the same: a test that is named is there, and the other way round.

usage: check_why_not.py ROOT
"""

import pathlib
import re
import sys


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    root = pathlib.Path(arguments[0])
    source = (root / "tests" / "interop" / "why_not_live_test.cpp").read_text(encoding="utf-8")
    tests = {f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_F)?\(\s*(\w+),\s*(\w+)\)", source)}
    named = set(re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", (root / "docs" / "why-not.md").read_text(encoding="utf-8")))
    for name in sorted(named - tests):
        print(f"docs/why-not.md names {name}, which is no test")
    for name in sorted(tests - named):
        print(f"docs/why-not.md does not name {name}")
    return 0 if tests and named == tests else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
