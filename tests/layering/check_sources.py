"""Reads the sources and reports what breaks the rules of the house.

usage: check_sources.py ROOT      check the tree; exit 1 and print `path:line: rule: why` for each violation
       check_sources.py --self-test    prove on small made-up trees that every rule can fail, and when it must not

The rules: who may include whom (LAYERS), calls that only some places may make (BANNED), the shape of headers, and which
headers of the standard library have to be included (standard_includes).
"""

import pathlib
import re
import sys
from typing import NamedTuple

import standard_includes

SOURCE_FOLDERS = ("include", "src", "cli", "gateway", "examples", "sim", "bench", "tests")
SOURCE_SUFFIXES = (".hpp", ".cpp", ".h", ".cc")


class Violation(NamedTuple):
    path: str
    line: int
    rule: str
    why: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.why}"


# Who may include whom. A layer may always include itself. Names of the outside world are in lower-case words:
# std, system (POSIX and Linux), and one word a library (see `library_of`); "*" allows any library.

LAYERS = {
    "include": {"std"},
    "base": {"std", "system", "tl"},
    # The clock of deadlines is the public lease_clock; net knows no locks.
    "net": {"base", "include", "std", "system", "tl", "openssl"},
    # Who hears for a client without threads is decided with an epoll set.
    "backend_api": {"base", "include", "std", "system", "tl"},
    "core": {"base", "backend_api", "include", "std", "tl"},
    "runtime": {"core", "base", "backend_api", "include", "std", "system", "tl"},
    "client": {"runtime", "core", "backend_api", "base", "include", "std", "system", "tl"},
    "fence": {"base", "include", "std", "system", "tl"},
    "cli": {"include", "std", "system"},
    "gateway": {"include", "std", "system", "boost"},
    "examples": {"include", "std", "system"},
    # The simulator runs six stores: the reference, the rules of the embedded one without its disk and kernel, the scripts
    # of Redis in a Redis of its own, the rules of a quorum over several of these, and those of etcd and ZooKeeper over models.
    "sim": {"core", "runtime", "backend_api", "base", "include", "backends/memory", "backends/local", "backends/redis",
            "backends/redlock", "backends/etcd", "backends/zookeeper", "std", "system", "tl"},
    # The outermost folders: nothing of ours includes them, so they may look at everything.
    "bench": {"*"},
    "tests": {"*"},
}
BACKEND_LAYER = {"backend_api", "base", "net", "include", "std", "system", "tl"}
# Libraries of a backend, where they are few enough to name; any other backend may use any library.
BACKEND_LIBRARIES = {"memory": set(), "local": {"lmdb"}, "etcd": set(), "zookeeper": set(), "memcached": set(),
                     "postgres": set(), "mariadb": set(), "sql": set(), "pipeline": set()}
# Backends never see each other, but for one that is made of the other, and for what those of SQL servers share, and those
# that speak their protocol themselves.
BACKEND_COMPOSITION = {"redlock": {"backends/redis"}, "postgres": {"backends/sql"}, "mariadb": {"backends/sql"},
                       "redis": {"backends/pipeline"}, "memcached": {"backends/pipeline"}}
# Base knows no locks, but it is the home of clocks: it defines the public lease_clock. The
# simulator's Redis runs scripts with Lua, which is seen by two files.
FILE_EXTRAS = {
    "src/base/lease_clock.cpp": {"include"},
    "src/base/lease_clock_test.cpp": {"include"},
    # A shop on three databases; what each client library looks like is told in a file of its own.
    "examples/shop/mariadb.cpp": {"errmsg", "mysql", "mysqld_error"},
    "examples/shop/postgres.cpp": {"libpq-fe"},
    "examples/shop/sqlite.cpp": {"sqlite3"},
    # gRPC and the messages of etcd are seen by few files; the rest knows values.
    "src/backends/etcd/transport.cpp": {"grpc", "grpcpp"},
    "src/backends/etcd/transport_parts.hpp": {"grpc", "grpcpp"},
    "src/backends/etcd/codec.cpp": {"etcd"},
    # The digest of names that are no keys.
    "src/backends/memcached/record.cpp": {"openssl"},
    # ZooKeeper's library is seen by one file; the rest is values.
    "src/backends/zookeeper/wire.cpp": {"zookeeper"},
    # Likewise libpq.
    "src/backends/postgres/wire.cpp": {"libpq-fe"},
    # And libmariadb.
    "src/backends/mariadb/wire.cpp": {"mysql"},
    "sim/redis/lua_values.cpp": {"lua"},
    "sim/redis/script_host.cpp": {"lua"},
}
# What the tests beside a layer's sources may include on top of what the layer may.
TEST_EXTRAS = {"gtest", "gmock", "backends/memory", "system"}
LAYERS_WITHOUT_MEMORY_BACKEND_IN_TESTS = {"base", "net", "backend_api", "core", "fence"}

STD_HEADERS = frozenset(
    """algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts
    condition_variable coroutine deque exception execution filesystem forward_list fstream functional future
    initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string
    string_view syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set
    utility valarray variant vector version
    cassert cctype cerrno cfenv cfloat cinttypes climits clocale cmath csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype""".split()
)
SYSTEM_HEADERS = frozenset(
    """cxxabi.h dirent.h dlfcn.h errno.h execinfo.h fcntl.h fnmatch.h getopt.h glob.h grp.h ifaddrs.h libgen.h
    limits.h link.h netdb.h poll.h pthread.h pwd.h sched.h semaphore.h signal.h spawn.h stdint.h stdio.h stdlib.h string.h
    strings.h syslog.h termios.h time.h ucontext.h unistd.h wait.h""".split()
)
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "net/", "arpa/", "bits/", "sanitizer/")

# The state machines are pure: nothing that reads the outside world or waits belongs in them.
IMPURE_STD_HEADERS = frozenset(
    """thread mutex shared_mutex condition_variable future semaphore barrier latch iostream fstream filesystem
    random ctime csignal""".split()
)


def library_of(header):
    """The word for an angle-bracket header that is not ours."""
    if header in STD_HEADERS:
        return "std"
    if header in SYSTEM_HEADERS or header.startswith(SYSTEM_FOLDERS):
        return "system"
    return re.split(r"[/.]", header)[0]


def layer_of(path):
    """The layer of a file of ours, or None where no rule knows it."""
    parts = path.split("/")
    if parts[0] != "src":
        return parts[0] if parts[0] in LAYERS else None
    if len(parts) >= 4 and parts[1] == "backends":
        return f"backends/{parts[2]}"
    return parts[1] if len(parts) >= 3 and parts[1] in LAYERS else None


def is_test(path):
    """Whether a file is a test or made for tests: under tests/, x_test.cpp, test_x.hpp."""
    name = path.rsplit("/", 1)[-1]
    return path.startswith("tests/") or re.fullmatch(r"\w+_test\.[ch]pp|test_\w+\.[ch]pp", name) is not None


def is_live_test(path):
    """A test that starts servers: x_live_test.cpp, and what such tests share: test_live_x.hpp."""
    return path.endswith("_live_test.cpp") or re.fullmatch(r"(?:.*/)?test_live_\w+\.[ch]pp", path) is not None


def is_kit_for_bench(path, target_path):
    """Benchmarks start the same servers as the live tests."""
    return path.startswith("bench/") and target_path.startswith("tests/kit/")


def is_kit_for_live_test(path, target_path):
    """Tests that need a server stand beside their sources, too."""
    return is_live_test(path) and target_path.startswith(("tests/kit/", "tests/contract/kit/"))


def is_test_beside_sources(path):
    return is_test(path) and not path.startswith("tests/")


def may_include(path, target):
    layer = layer_of(path)
    if layer.startswith("backends/"):
        backend = layer.removeprefix("backends/")
        allowed = BACKEND_LAYER | BACKEND_COMPOSITION.get(backend, set())
        allowed |= BACKEND_LIBRARIES.get(backend, {"*"})
    else:
        allowed = LAYERS[layer]
    if is_test_beside_sources(path):
        allowed = allowed | TEST_EXTRAS
        if layer in LAYERS_WITHOUT_MEMORY_BACKEND_IN_TESTS:
            allowed = allowed - {"backends/memory"}
    allowed = allowed | FILE_EXTRAS.get(path, set())
    if target == layer or target in allowed:
        return True
    ours = target in LAYERS or target.startswith("backends/")
    return "*" in allowed and (not ours or layer in ("bench", "tests"))


# Calls that only some places may make. Each rule: its name, the pattern, who may, and why.


class Ban(NamedTuple):
    rule: str
    pattern: re.Pattern
    allowed: object
    why: str


def under(*folders):
    return lambda path: path.startswith(folders)


def is_lease_clock(path):
    return re.fullmatch(r"src/(base|client)/lease_clock\.cpp", path) is not None


NOT_A_MEMBER = r"(?<![\w.>])"  # `world.sleep(...)` is somebody else's sleep

BANNED = (
    Ban(
        "sleep",
        re.compile(rf"\bsleep_(?:for|until)\b|{NOT_A_MEMBER}(?:sleep|usleep|nanosleep|clock_nanosleep)\s*\("),
        lambda path: is_live_test(path) or under("src/runtime/", "bench/")(path),
        "time is moved by hand; only the runtime, live tests and benchmarks wait",
    ),
    Ban(
        "clock",
        re.compile(r"\b(?:steady_clock|system_clock|high_resolution_clock)\s*::\s*now\b|\bclock_gettime\b|\bgettimeofday\b"),
        # A shifted clock is made from the real one.
        lambda path: is_live_test(path)
        or is_lease_clock(path)
        or under("src/base/", "bench/", "tests/kit/shifted_clock")(path),
        "time is passed in, or read from lease_clock",
    ),
    Ban(
        "lease-clock",
        re.compile(r"\blease_clock\s*::\s*now\b"),
        # It waits, and is no state machine.
        lambda path: path == "src/backend_api/hearing.cpp"
        or not under("src/core/", "src/backend_api/", "src/backends/zookeeper/contention",
                     "src/backends/memcached/errand", "sim/")(path),
        "state machines and the simulator are told the time; they never read it",
    ),
    Ban(
        "thread",
        re.compile(r"\bstd\s*::\s*j?thread\b(?!\s*::)|\bpthread_create\b|\bstd\s*::\s*async\b"),
        lambda path: path == "sim/main.cpp"
        # A wait for a lock ends through a stop_token, and a signal handler may not request a stop.
        or path.startswith("cli/interrupter.")
        # gRPC's completion queue is no descriptor that the watchdog could wait for; one thread a client serves it.
        or path.startswith("src/backends/etcd/transport.")
        or (under("src/runtime/", "bench/", "examples/")(path))
        or (is_test(path) and not path.startswith("sim/")),
        "threads are created in src/runtime only",
    ),
    Ban(
        "random",
        re.compile(rf"\bstd\s*::\s*rand\b|{NOT_A_MEMBER}(?<!:)s?rand\s*\(|\brandom_device\b|\bmt19937(?:_64)?\b|\bdefault_random_engine\b"),
        under("src/base/random."),
        "randomness comes from base/random, seeded by the caller",
    ),
    Ban(
        "dlopen",
        re.compile(rf"{NOT_A_MEMBER}(?:dlopen|dlmopen|dlclose)\s*\("),
        lambda path: path == "src/client/module_loader.cpp" or is_test(path),
        "modules are loaded in one place, and never closed",
    ),
    Ban(
        "using-std",
        re.compile(r"\busing\s+namespace\s+std\s*;"),
        lambda path: False,
        "names of std are spelled out",
    ),
)


# Reading C++: enough of a lexer that comments and literals are not taken for code.

TOKENS = re.compile(
    r"""
      (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    | (?P<raw>\b(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<number>\b[0-9](?:'?[\w.])*)
    | (?P<character>'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)


def blank(text):
    """As many lines as `text`, with nothing on them."""
    return "\n" * text.count("\n")


def without_comments(source):
    return TOKENS.sub(lambda token: blank(token[0]) + " " if token["comment"] else token[0], source)


def code_only(source):
    def replace(token):
        if token["comment"]:
            return blank(token[0]) + " "
        if token["number"]:
            return token[0]
        return '""' + blank(token[0])

    return TOKENS.sub(replace, source)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def resolve(path, included, files):
    """The path of a quoted include among `files`, or None. The order is that of the compilers' search."""
    folder = path.rsplit("/", 1)[0]
    for candidate in (f"{folder}/{included}", f"src/{included}", f"include/{included}", included):
        if candidate in files:
            return candidate
    return None


def check_includes(path, source, files):
    layer = layer_of(path)
    text = without_comments(source)
    for found in INCLUDE.finditer(text):
        line = line_of(text, found.start())
        angled, quoted = found.groups()
        if quoted or angled.startswith("sallyport/"):
            target_path = f"include/{angled}" if angled else resolve(path, quoted, files)
            if target_path is None or target_path not in files:
                yield Violation(path, line, "include", f"{quoted or angled} is no file of this tree")
                continue
            target = layer_of(target_path)
            if target is None:
                yield Violation(path, line, "include", f"{target_path} belongs to no layer")
                continue
            if layer == "include" and quoted:
                yield Violation(path, line, "include", f'public headers say <sallyport/...>, not "{quoted}"')
                continue
            if is_test(target_path) and not is_test(path) and not is_kit_for_bench(path, target_path):
                yield Violation(path, line, "include", f"{target_path} is for tests only")
                continue
        else:
            target = library_of(angled)
        if quoted and is_kit_for_live_test(path, target_path):
            continue
        if not may_include(path, target):
            yield Violation(path, line, "include", f"{layer} may not include {target} ({quoted or angled})")
        elif layer == "core" and not is_test(path) and angled in IMPURE_STD_HEADERS:
            yield Violation(path, line, "include", f"the pure core may not include <{angled}>")


def check_calls(path, source):
    text = code_only(source)
    for ban in BANNED:
        if ban.allowed(path):
            continue
        for found in ban.pattern.finditer(text):
            yield Violation(path, line_of(text, found.start()), ban.rule, f"{found[0]}: {ban.why}")


def check_shape(path, source):
    if path.endswith((".hpp", ".h")) and source.split("\n", 1)[0].strip() != "#pragma once":
        yield Violation(path, 1, "pragma-once", "a header's first line is #pragma once")


def included_by(path, files, known):
    """All headers that are not ours and that `path` includes, itself or through headers of ours."""
    if path in known:
        return known[path]
    known[path] = headers = set()  # ends circles
    for angled, quoted in INCLUDE.findall(without_comments(files[path])):
        ours = f"include/{angled}" if angled.startswith("sallyport/") else quoted and resolve(path, quoted, files)
        if ours in files:
            headers |= included_by(ours, files, known)
        elif angled:
            headers.add(angled)
    return headers


def check_standard_includes(files):
    known = {}
    for path in sorted(files):
        code = code_only(files[path])
        for position, what, headers in standard_includes.missing(included_by(path, files, known), code):
            yield Violation(path, line_of(code, position), "missing-include", f"{what} needs <{headers[0]}>")


def check(files):
    """All violations in a tree given as {path: text}."""
    for path in sorted(files):
        if layer_of(path) is None:
            yield Violation(path, 1, "include", "belongs to no layer; add its folder to LAYERS")
            continue
        yield from check_includes(path, files[path], files)
        yield from check_calls(path, files[path])
        yield from check_shape(path, files[path])


def read_tree(root):
    files = {}
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix in SOURCE_SUFFIXES:
                files[file.relative_to(root).as_posix()] = file.read_text(encoding="utf-8")
    return files


def main(arguments):
    if arguments == ["--self-test"]:
        import self_test

        return self_test.run()
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 64
    files = read_tree(pathlib.Path(arguments[0]))
    # An empty tree has no violations either: a wrong path must not look like success.
    if not any(path.startswith("src/base/") for path in files):
        print(f"{arguments[0]} has no src/base: not the root of the sources", file=sys.stderr)
        return 64
    violations = [*check(files), *check_standard_includes(files)]
    for violation in violations:
        print(violation)
    print(f"{len(files)} files read, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
