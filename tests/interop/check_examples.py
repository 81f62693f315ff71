"""Fails when a page shows code that no test runs.

usage: check_examples.py ROOT PAGE...

A block of code after a line `<!-- from PATH -->` has to be in that file, line by line, but for indentation. With
`--all` before a page, every block of C++ and Go on it needs such a line.
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^(?:<!-- from (?P<source>\S+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


def stripped(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def contains(lines, wanted):
    return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines) - len(wanted) + 1))


def complaints(root, page, needs_all):
    text = (root / page).read_text(encoding="utf-8")
    named = 0
    for block in BLOCK.finditer(text):
        where = f"{page}:{text[: block.start()].count(chr(10)) + 1}"
        source = block["source"]
        if source is None:
            if needs_all and block["language"] in ("cpp", "go"):
                yield f"{where}: which test runs this?"
            continue
        named += 1
        wanted = stripped(block["code"])
        if not wanted or not contains(stripped((root / source).read_text(encoding="utf-8")), wanted):
            yield f"{where}: this is not in {source}"
    if named == 0:
        yield f"{page}: shows no code of a test"


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 64
    root = pathlib.Path(arguments[0])
    needs_all = False
    found = []
    for each in arguments[1:]:
        if each == "--all":
            needs_all = True
            continue
        found += complaints(root, each, needs_all)
        needs_all = False
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
