"""Fails when docs/guarantees.md names a test that does not exist.

usage: check_guarantees.py ROOT
"""

import pathlib
import re
import sys


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    root = pathlib.Path(arguments[0])
    tests = set()
    # Most are of the contract suite; what only one store can get wrong is proven beside its backend.
    for folder in ("src", "tests"):
        for source in (root / folder).rglob("*_test.cpp"):
            for suite, name in re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", source.read_text(encoding="utf-8")):
                tests.add(f"{suite}.{name}")
    page = (root / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", page)
    missing = sorted(set(named) - tests)
    for name in missing:
        print(f"docs/guarantees.md names {name}, which is no test")
    print(f"{len(set(named))} tests named, {len(missing)} missing, {len(tests)} in the tree")
    # A page that names nothing proves nothing.
    return 1 if missing or not named else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
