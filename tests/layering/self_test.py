"""Proves that check_sources.py can fail: made-up trees with one violation each, and trees that must pass."""

import check_sources

# Headers that the made-up files may include.
TREE = {
    path: "#pragma once\n"
    for path in (
        "include/sallyport/mutex.hpp",
        "src/base/result.hpp",
        "src/backend_api/backend.hpp",
        "src/core/acquire.hpp",
        "src/runtime/scheduler.hpp",
        "src/client/registry.hpp",
        "src/fence/gate.hpp",
        "src/net/connection.hpp",
        "src/backends/memory/memory_backend.hpp",
        "src/backends/local/lock_rules.hpp",
        "src/backends/redis/redis_backend.hpp",
        "src/backends/pipeline/link.hpp",
        "src/fence/test_folder.hpp",
        "sim/world.hpp",
        "bench/timer.hpp",
        "tests/contract/suite.hpp",
        "tests/kit/redis_server.hpp",
    )
}

# (path, source, line, rule): exactly this one violation must be found.
MUST_FAIL = [
    # Who may include whom.
    ("include/sallyport/a.hpp", '#pragma once\n#include <sys/types.h>\n', 2, "include"),
    ("include/sallyport/a.hpp", '#pragma once\n#include <tl/expected.hpp>\n', 2, "include"),
    ("include/sallyport/a.hpp", '#pragma once\n#include "base/result.hpp"\n', 2, "include"),
    ("include/sallyport/a.hpp", '#pragma once\n#include "mutex.hpp"\n', 2, "include"),
    ("src/base/a.cpp", '#include <sallyport/mutex.hpp>\n', 1, "include"),
    ("src/base/a.cpp", '#include "core/acquire.hpp"\n', 1, "include"),
    ("src/base/a.cpp", '#include <boost/asio.hpp>\n', 1, "include"),
    ("src/base/a_test.cpp", '#include "backends/memory/memory_backend.hpp"\n', 1, "include"),
    ("src/backend_api/a.cpp", '#include "core/acquire.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include "runtime/scheduler.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include "../runtime/scheduler.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include <boost/optional.hpp>\n', 1, "include"),
    ("src/core/a.cpp", '#include <unistd.h>\n', 1, "include"),
    ("src/core/a.cpp", '#include <thread>\n', 1, "include"),
    ("src/core/a.cpp", '#include <condition_variable>\n', 1, "include"),
    ("src/runtime/a.cpp", '#include "client/registry.hpp"\n', 1, "include"),
    ("src/runtime/a.cpp", '#include "backends/memory/memory_backend.hpp"\n', 1, "include"),
    ("src/runtime/a.cpp", '#include <boost/asio.hpp>\n', 1, "include"),
    ("src/client/a.cpp", '#include "fence/gate.hpp"\n', 1, "include"),
    ("src/client/a.cpp", '#include "backends/memory/memory_backend.hpp"\n', 1, "include"),
    ("src/client/a.cpp", '#  include <boost/asio.hpp>\n', 1, "include"),
    ("src/fence/a.cpp", '#include "backend_api/backend.hpp"\n', 1, "include"),
    ("src/fence/a.cpp", '#include "fence/test_folder.hpp"\n', 1, "include"),
    ("src/fence/test_a.hpp", '#pragma once\n#include "core/acquire.hpp"\n', 2, "include"),
    ("src/net/a.cpp", '#include "core/acquire.hpp"\n', 1, "include"),
    ("src/net/a.cpp", '#include "backend_api/backend.hpp"\n', 1, "include"),
    ("src/net/a.cpp", '#include <boost/asio.hpp>\n', 1, "include"),
    ("src/backends/redis/a_test.cpp", '#include "tests/kit/redis_server.hpp"\n', 1, "include"),
    ("src/backends/memory/a.cpp", '#include "core/acquire.hpp"\n', 1, "include"),
    ("src/backends/zookeeper/contention.cpp", "#include <zookeeper/zookeeper.h>\n", 1, "include"),
    ("src/backends/zookeeper/contention_steps.cpp", "auto now = lease_clock::now();\n", 1, "lease-clock"),
    ("src/backends/memory/a.cpp", '#include "backends/redis/redis_backend.hpp"\n', 1, "include"),
    ("src/backends/memory/a.cpp", '#include <boost/asio.hpp>\n', 1, "include"),
    ("src/backends/local/a.cpp", '#include <boost/asio.hpp>\n', 1, "include"),
    ("src/backends/redis/a.cpp", '#include "backends/memory/memory_backend.hpp"\n', 1, "include"),
    ("src/backends/pipeline/a.cpp", '#include "backends/redis/redis_backend.hpp"\n', 1, "include"),
    ("src/backends/pipeline/a.cpp", '#include <hiredis/hiredis.h>\n', 1, "include"),
    ("src/backends/local/a.cpp", '#include "backends/pipeline/link.hpp"\n', 1, "include"),
    ("src/backends/redis/a.cpp", '#include "runtime/scheduler.hpp"\n', 1, "include"),
    ("cli/a.cpp", '#include "client/registry.hpp"\n', 1, "include"),
    ("gateway/a.cpp", '#include "base/result.hpp"\n', 1, "include"),
    ("examples/a.cpp", '#include "base/result.hpp"\n', 1, "include"),
    ("examples/a.cpp", '#include <tl/expected.hpp>\n', 1, "include"),
    ("examples/shop/ways.cpp", '#include <sqlite3.h>\n', 1, "include"),
    ("sim/a.cpp", '#include "client/registry.hpp"\n', 1, "include"),
    ("sim/a.cpp", '#include <hiredis/hiredis.h>\n', 1, "include"),
    ("sim/a.cpp", '#include <lua.hpp>\n', 1, "include"),
    ("sim/redis/a.hpp", '#pragma once\n#include <lua.hpp>\n', 2, "include"),
    ("sim/a.cpp", '#include "bench/timer.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include "tests/contract/suite.hpp"\n', 1, "include"),
    ("bench/a.cpp", '#include "tests/contract/suite.hpp"\n', 1, "include"),
    ("sim/a.cpp", '#include "tests/kit/redis_server.hpp"\n', 1, "include"),
    ("src/backends/redis/a.cpp", '#include "tests/kit/redis_server.hpp"\n', 1, "include"),
    ("src/backends/redis/a_test.cpp", '#include "tests/kit/redis_server.hpp"\n', 1, "include"),
    ("src/backends/redis/a_live_test.cpp", '#include "tests/contract/suite.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include "core/missing.hpp"\n', 1, "include"),
    ("src/core/a.cpp", '#include <sallyport/missing.hpp>\n', 1, "include"),
    ("src/new_layer/a.cpp", 'int a;\n', 1, "include"),
    # Sleeping.
    ("src/core/a.cpp", 'void f() {\n  std::this_thread::sleep_for(wait);\n}\n', 2, "sleep"),
    ("src/client/a.cpp", 'using std::this_thread::sleep_until;\n', 1, "sleep"),
    ("src/core/a_test.cpp", 'void f() { usleep(10); }\n', 1, "sleep"),
    ("tests/contract/a.cpp", 'void f() { ::sleep(1); }\n', 1, "sleep"),
    ("sim/a.cpp", 'void f() { sleep(1); }\n', 1, "sleep"),
    ("examples/a.cpp", 'void f() { nanosleep(&t, nullptr); }\n', 1, "sleep"),
    # Clocks.
    ("src/runtime/a.cpp", 'auto t = std::chrono::steady_clock::now();\n', 1, "clock"),
    ("src/client/a.cpp", 'auto t = system_clock::now();\n', 1, "clock"),
    ("src/core/a.cpp", 'int f() { return clock_gettime(CLOCK_BOOTTIME, &t); }\n', 1, "clock"),
    ("sim/main.cpp", 'auto t = std::chrono::steady_clock::now();\n', 1, "clock"),
    ("tests/contract/a.cpp", 'auto t = steady_clock::now();\n', 1, "clock"),
    ("tests/kit/a.cpp", 'auto t = steady_clock::now();\n', 1, "clock"),
    ("src/core/a.cpp", 'auto t = lease_clock::now();\n', 1, "lease-clock"),
    ("src/backend_api/a.cpp", 'auto t = lease_clock::now();\n', 1, "lease-clock"),
    ("sim/a.cpp", 'auto t = sallyport::lease_clock::now();\n', 1, "lease-clock"),
    # Threads.
    ("src/client/a.cpp", 'std::thread worker;\n', 1, "thread"),
    ("src/core/a.cpp", 'std::jthread worker{run};\n', 1, "thread"),
    ("src/backends/memory/a.cpp", 'std::vector<std::thread> all;\n', 1, "thread"),
    ("src/fence/a.cpp", 'int f() { return pthread_create(&t, 0, run, 0); }\n', 1, "thread"),
    ("src/client/a.cpp", 'auto f = std::async(run);\n', 1, "thread"),
    ("cli/a.cpp", 'std::jthread worker{run};\n', 1, "thread"),
    ("sim/world.cpp", 'std::jthread worker{run};\n', 1, "thread"),
    ("sim/world_test.cpp", 'std::jthread worker{run};\n', 1, "thread"),
    # Randomness.
    ("src/core/a.cpp", 'int f() { return rand(); }\n', 1, "random"),
    ("src/core/a.cpp", 'int f() { return std::rand(); }\n', 1, "random"),
    ("sim/a.cpp", 'std::random_device device;\n', 1, "random"),
    ("bench/a.cpp", 'std::mt19937 engine{1};\n', 1, "random"),
    ("src/base/other.cpp", 'std::mt19937_64 engine{1};\n', 1, "random"),
    # Loading.
    ("src/backends/redis/a.cpp", 'void* f() { return dlopen("libssl.so", RTLD_NOW); }\n', 1, "dlopen"),
    ("src/client/a.cpp", 'void f() { ::dlclose(module); }\n', 1, "dlopen"),
    # Names and shape.
    ("examples/a.cpp", 'using namespace std;\n', 1, "using-std"),
    ("src/base/a.hpp", '#include <string>\n', 1, "pragma-once"),
    ("include/sallyport/a.hpp", '// about\n#pragma once\n', 1, "pragma-once"),
    # What looks like a comment or a literal must not hide what follows it.
    ("src/core/a.cpp", 'auto s = "// no comment"; int f() { return rand(); }\n', 1, "random"),
    ("src/core/a.cpp", "auto c = '\"'; int f() { return rand(); } auto d = '\"';\n", 1, "random"),
    ("src/core/a.cpp", "auto n = 1'000; int f() { return rand(); } auto m = 2'000;\n", 1, "random"),
    ("src/core/a.cpp", 'auto s = R"(\n" /* )";\nint f() { return rand(); } // */\n', 3, "random"),
    ("src/core/a.cpp", '/* one\n two */ int f() { return rand(); }\n', 2, "random"),
]

# (path, source): nothing may be found.
MUST_PASS = [
    ("include/sallyport/a.hpp", '#pragma once\n\n#include <chrono>\n#include <sallyport/mutex.hpp>\n'),
    ("src/base/a.cpp", '#include "base/result.hpp"\n#include <tl/expected.hpp>\n#include <sys/random.h>\n'),
    ("src/base/a_test.cpp", '#include "base/result.hpp"\n#include <gtest/gtest.h>\n#include <gmock/gmock.h>\n'),
    ("src/backend_api/a.cpp", '#include "base/result.hpp"\n#include <sallyport/mutex.hpp>\n#include <sys/epoll.h>\n'),
    ("src/backend_api/hearing.cpp", 'auto t = lease_clock::now();\n'),
    ("src/backends/zookeeper/wire.cpp", "#include <zookeeper/zookeeper.h>\n"),
    ("src/backends/zookeeper/session.cpp", "auto now = lease_clock::now();\n"),
    ("src/net/a.cpp", '#include "base/result.hpp"\n#include <openssl/ssl.h>\n#include <sys/epoll.h>\n'),
    ("src/core/a.cpp", '#include "core/acquire.hpp"\n#include "backend_api/backend.hpp"\n#include <optional>\n'),
    ("src/runtime/a.cpp", '#include "core/acquire.hpp"\n#include <sys/timerfd.h>\n#include <thread>\n'),
    ("src/runtime/a_test.cpp", '#include "backends/memory/memory_backend.hpp"\n'),
    ("src/client/a.cpp", '#include "runtime/scheduler.hpp"\n#include "core/acquire.hpp"\n'),
    ("src/client/a_test.cpp", '#include "backends/memory/memory_backend.hpp"\n'),
    ("src/fence/a.cpp", '#include "gate.hpp"\n#include "base/result.hpp"\n#include <fcntl.h>\n'),
    ("src/fence/a_test.cpp", '#include "fence/test_folder.hpp"\n'),
    ("src/fence/test_a.hpp", '#pragma once\n#include <gtest/gtest.h>\n'),
    ("src/backends/memory/a.cpp", '#include "memory_backend.hpp"\n#include "backend_api/backend.hpp"\n'),
    ("src/backends/redis/a.cpp", '#include "net/connection.hpp"\n#include <hiredis/hiredis.h>\n'),
    ("src/backends/redlock/a.cpp", '#include "backends/redis/redis_backend.hpp"\n'),
    ("src/backends/redis/a.cpp", '#include "backends/pipeline/link.hpp"\n'),
    ("src/backends/memcached/a.cpp", '#include "backends/pipeline/link.hpp"\n'),
    ("src/backends/local/a.cpp", '#include <lmdb.h>\n'),
    ("sim/a.cpp", '#include "sim/world.hpp"\n#include "world.hpp"\n#include "backends/memory/memory_backend.hpp"\n'),
    ("sim/a.cpp", '#include "backends/local/lock_rules.hpp"\n'),
    ("sim/redis/a.cpp", '#include "backends/redis/redis_backend.hpp"\n'),
    ("sim/redis/script_host.cpp", '#include <lua.hpp>\n'),
    ("bench/a.cpp", '#include "timer.hpp"\n#include "core/acquire.hpp"\n#include <boost/asio.hpp>\n'),
    ("bench/a.cpp", '#include "tests/kit/redis_server.hpp"\n'),
    ("src/backends/redis/a_live_test.cpp", '#include "tests/kit/redis_server.hpp"\n'),
    ("tests/contract/a.cpp", '#include "suite.hpp"\n#include "client/registry.hpp"\n#include <gtest/gtest.h>\n'),
    ("gateway/a.cpp", '#include <boost/beast.hpp>\n#include <sallyport/mutex.hpp>\n'),
    ("src/core/a.cpp", '// #include "runtime/scheduler.hpp"\n/*\n#include "runtime/scheduler.hpp"\n*/\n'),
    ("src/core/a.cpp", '// never sleep_for, never rand()\nauto s = "std::thread";\nauto r = R"x(rand())x";\n'),
    ("src/core/a.cpp", 'void f() { world.sleep(1); clock->sleep(2); operand(); strand(1); }\n'),
    ("src/client/a.cpp", 'auto n = std::thread::hardware_concurrency();\nstd::thread::id owner;\n'),
    ("src/client/a.cpp", 'auto t = lease_clock::now();\nusing namespace std::chrono_literals;\n'),
    ("src/base/lease_clock.cpp", '#include <sallyport/mutex.hpp>\n'),
    ("src/base/lease_clock.cpp", 'int f() { return clock_gettime(CLOCK_BOOTTIME, &t); }\n'),
    ("src/client/lease_clock.cpp", 'int f() { return clock_gettime(CLOCK_BOOTTIME, &t); }\n'),
    ("src/runtime/a.cpp", 'std::jthread worker;\nvoid f() { std::this_thread::sleep_for(wait); }\n'),
    ("src/client/a_live_test.cpp", 'void f() { std::this_thread::sleep_for(wait); auto t = steady_clock::now(); }\n'),
    ("src/backends/redis/a_live_test.cpp", '#include "tests/kit/redis_server.hpp"\n'),
    ("src/backends/redis/test_live_a.hpp", '#pragma once\n#include "tests/kit/redis_server.hpp"\n'),
    ("src/client/a_test.cpp", 'std::jthread worker;\n'),
    ("tests/contract/a.cpp", 'std::jthread worker;\n'),
    ("examples/a.cpp", 'std::jthread worker;\n'),
    ("examples/shop/sqlite.cpp", '#include <sqlite3.h>\n'),
    ("cli/interrupter.cpp", 'std::jthread worker;\n'),
    ("src/backends/etcd/transport.cpp", '#include <grpcpp/alarm.h>\nstd::thread worker;\n'),
    ("src/backends/etcd/codec.cpp", '#include <etcd.pb.h>\n'),
    ("sim/main.cpp", 'std::jthread worker;\n'),
    ("bench/a.cpp", 'auto t = std::chrono::steady_clock::now();\n'),
    ("tests/kit/shifted_clock/a.cpp", 'int f(timespec* t) { return clock_gettime(CLOCK_REALTIME, t); }\n'),
    ("src/client/module_loader.cpp", 'void* f() { return dlopen(path, RTLD_NOW); }\n'),
    ("tests/modules/a_test.cpp", 'void* f() { return dlopen(path, RTLD_NOW); }\n'),
    ("src/base/random.cpp", 'std::random_device device;\n'),
]

# (sources of one tree, the paths in which an include is missing).
STANDARD_INCLUDES = [
    ({"src/core/a.cpp": "std::vector<int> numbers;\n"}, ["src/core/a.cpp"]),
    ({"src/core/a.cpp": "#include <vector>\nstd::vector<int> numbers;\n"}, []),
    ({"src/core/a.cpp": "#include <algorithm>\n// std::vector\nauto s = \"std::map\";\n"}, []),
    ({"src/core/a.cpp": "bool f() { return std::ranges::any_of(all, &one::is); }\n"}, ["src/core/a.cpp"]),
    ({"src/core/a.cpp": "#include <string>\nstd::string_view text;\n"}, []),
    ({"src/core/a.cpp": "#include <string_view>\nstd::string text;\n"}, ["src/core/a.cpp"]),
    ({"src/base/a_test.cpp": "TEST(A, Is) { EXPECT_TRUE(f()); }\n"}, ["src/base/a_test.cpp"]),
    ({"src/base/a_test.cpp": "#include <gmock/gmock.h>\nTEST(A, Is) { EXPECT_TRUE(f()); }\n"}, []),
    ({"src/base/a.cpp": "tl::unexpected<int> none(1);\n"}, ["src/base/a.cpp"]),
    (  # through a header of ours, and that of another one
        {
            "include/sallyport/b.hpp": "#pragma once\n#include <map>\n",
            "src/core/a.hpp": "#pragma once\n#include <sallyport/b.hpp>\n",
            "src/core/a.cpp": '#include "core/a.hpp"\nstd::map<int, int> table;\nstd::set<int> numbers;\n',
        },
        ["src/core/a.cpp"],
    ),
]


def run():
    failures = 0
    for path, source, line, rule in MUST_FAIL:
        found = [(v.path, v.line, v.rule) for v in check_sources.check({**TREE, path: source})]
        if found != [(path, line, rule)]:
            failures += 1
            print(f"not reported as {rule} in line {line}: {path}: {source!r}\n  found: {found}")
    for path, source in MUST_PASS:
        found = [str(v) for v in check_sources.check({**TREE, path: source})]
        if found:
            failures += 1
            print(f"reported without reason: {path}: {source!r}\n  found: {found}")
    for tree, paths in STANDARD_INCLUDES:
        found = [v.path for v in check_sources.check_standard_includes(tree)]
        if found != paths:
            failures += 1
            print(f"includes are missing in {paths}: {tree}\n  found: {found}")
    untested = {ban.rule for ban in check_sources.BANNED} | {"include", "pragma-once"}
    untested -= {rule for _, _, _, rule in MUST_FAIL}
    for rule in sorted(untested):
        failures += 1
        print(f"no made-up tree breaks the rule {rule}")
    print(f"{len(MUST_FAIL)} violations and {len(MUST_PASS)} clean trees tried, {failures} failures")
    return 1 if failures else 0
