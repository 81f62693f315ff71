"""Compares our messages with etcd's own.

usage: check_wire.py OURS.proto THEIRS.proto...

Every message, enum value and field of ours has to be in one of theirs, with the same number and type. Exit 1, and one
line for each difference.
"""

import re
import sys

FIELD = re.compile(r"(?:(?P<label>repeated)\s+)?(?P<type>[\w.]+)\s+(?P<name>\w+)\s*=\s*(?P<number>\d+)\s*(?:\[[^\]]*\])?;")
VALUE = re.compile(r"(?P<name>\w+)\s*=\s*(?P<number>\d+)\s*(?:\[[^\]]*\])?;")


def read(path):
    """{message or message.enum: {name: (label, type, number)}}"""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    found = {}
    stack = []
    for line in re.split(r"(?<=[{};])", text):
        line = " ".join(line.split())
        if opened := re.search(r"\b(message|enum|oneof|service|rpc)\s+(\w+)[^{;]*\{$", line):
            stack.append((opened[1], opened[2]))
        elif line.endswith("{"):
            stack.append(("other", ""))
        elif line.endswith("}"):
            if stack:
                stack.pop()
        elif stack and stack[-1][0] in ("message", "oneof", "enum"):
            scope = ".".join(name for kind, name in stack if kind in ("message", "enum"))
            fields = found.setdefault(scope, {})
            if stack[-1][0] == "enum":
                if value := VALUE.fullmatch(line):
                    fields[value["name"]] = ("", "", int(value["number"]))
            elif field := FIELD.fullmatch(line):
                kind = field["type"].rsplit(".", 1)[-1]
                fields[field["name"]] = (field["label"] or "", kind, int(field["number"]))
    return found


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 64
    ours = read(arguments[0])
    theirs = {}
    for path in arguments[1:]:
        theirs.update(read(path))
    wrong = 0
    compared = 0
    for scope, fields in ours.items():
        for name, field in fields.items():
            compared += 1
            other = theirs.get(scope, {}).get(name)
            if other != field:
                wrong += 1
                print(f"{scope}.{name} is {field} here and {other} in etcd")
    print(f"{compared} fields and values compared, {wrong} differ")
    # A parser that finds nothing finds no difference either.
    return 1 if wrong or compared < 50 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
