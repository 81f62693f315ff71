"""The examples of docs/zookeeper.md."""

import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).parents[3]
HOSTS = "zookeeper://zk1,zk2,zk3/locks"


def examples():
    """(language, text) of every block of code, in their order."""
    text = (ROOT / "docs" / "zookeeper.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown_part(program):
    """What lies between `docs: begin` and `docs: end` of a program beside this file."""
    text = (pathlib.Path(__file__).parent / program).read_text(encoding="utf-8")
    part = re.search(r"^.*docs: begin\n(.*)^.*docs: end$", text, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(part.group(1))
