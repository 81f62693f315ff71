"""Looks which shared libraries programs are linked with: those of modules must not be among them.

usage: check_needed.py PROGRAM...

What a program needs at its start is paid for at every start, and has to be installed wherever it runs. Exits with 1
and names a library that is not in ALLOWED.
"""

import re
import subprocess
import sys

# The C and C++ libraries, the embedded store's, and what sanitizers bring.
ALLOWED = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|resolv|stdc\+\+|lmdb|[alut]+san))\.so(\..*)?")


def needed(program):
    output = subprocess.run(["readelf", "--dynamic", "--wide", program], check=True, stdout=subprocess.PIPE,
                            text=True, timeout=60).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output)


def main(programs):
    if not programs:
        print(__doc__, file=sys.stderr)
        return 64
    strange = 0
    for program in programs:
        libraries = needed(program)
        print(f"{program}: {' '.join(libraries)}")
        if not libraries:
            print("  needs nothing: is it a program with shared libraries?")
            strange += 1
        for library in libraries:
            if not ALLOWED.fullmatch(library):
                print(f"  {library} belongs into a module")
                strange += 1
    return 1 if strange else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
