#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. See ./test.sh --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'TEXT'
usage: ./test.sh [MODE]

Modes:
  all      (default) every stage: install, build, costs, unit, layering, kit, contract, redis, coordination, database,
           crash, command, load, package, examples, sanitizers, simulator, models, format; about 18 minutes from
           nothing on two cores
  quick    unit, layering, kit, contract, command and 1,000 simulated seeds; under 3 minutes once built
  long     like all, with 50,000 simulated seeds, the whole contract suite in every set-up, large bursts, the models
           in large bounds, the simulator under the address sanitizer, and the tests of the benchmarks; up to 75 minutes
  lint     format, and clang-tidy over all sources

On Debian 12 nothing but git and bash is needed beforehand: missing packages are installed with
apt-get (through sudo when not root). Nothing else is written outside the tree. Builds are in
build/<preset>, logs in build/logs/<stage>.log. Each stage has a budget in seconds; going over it
prints a warning. The first failing stage ends the run with a status other than 0. The last line
of a good run is "N passed, 0 failed", N being the number of CTest tests that were run.
TEXT
}

mode=${1:-all}
case "$mode" in
  all | quick | long | lint) ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 64 ;;
esac
if (($# > 1)); then
  usage >&2
  exit 64
fi

# --- Surroundings: the result must not depend on the caller's settings. ---------------------------

root=$(pwd -P)
readonly root
readonly logs=$root/build/logs
mkdir -p "$logs" "$root/build/tmp"
export LC_ALL=C
export TMPDIR=$root/build/tmp
export CCACHE_DIR=$root/build/ccache CCACHE_MAXSIZE=1G
export CCACHE_SLOPPINESS=pch_defines,time_macros  # without, it leaves alone what uses precompiled headers
unset CPPFLAGS CXXFLAGS LDFLAGS GTEST_FILTER GTEST_SHARD_INDEX GTEST_TOTAL_SHARDS
unset ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS

readonly -a source_folders=(include src cli gateway examples sim bench tests)

packages=(
  g++ cmake ninja-build ccache
  clang libclang-rt-14-dev clang-format
  libgtest-dev libgmock-dev libexpected-dev liblmdb-dev liblua5.1-0-dev
  libhiredis-dev libssl-dev openssl redis-tools
  libpq-dev libc-ares2 libevent-2.1-7 libicu72 libldap-2.5-0 liblz4-1 libsystemd0 libxml2 libzstd1
  libmariadb-dev libaio1 libnuma1 libpcre2-8-0 liburing2 libsqlite3-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler
  libsasl2-2
  libzookeeper-mt-dev zookeeper openjdk-17-jdk-headless libcurator-recipes-java
  python3 python3-kazoo python3-pymemcache python3-redis pkg-config util-linux
  spin strace valgrind
)
# Unpacked into build/unpacked and not installed: those of PostgreSQL, pgbouncer, MariaDB, memcached and etcd would bring services
# along. Those of golang have the files that our messages are compared with, and what Go's client of etcd is made of;
# installed, they would ask for ten times as many.
unpacked_packages=(
  postgresql-15 postgresql-client-15 pgbouncer mariadb-server-core
  etcd-server etcd-client golang-etcd-server-dev memcached
  golang-github-coreos-go-semver-dev golang-github-coreos-go-systemd-dev golang-github-coreos-pkg-dev
  golang-github-gogo-protobuf-dev golang-github-golang-protobuf-1-3-dev golang-github-google-uuid-dev
  golang-go.uber-atomic-dev golang-go.uber-multierr-dev golang-go.uber-zap-dev
  golang-golang-x-net-dev golang-golang-x-sys-dev golang-golang-x-text-dev
  golang-google-genproto-dev golang-google-grpc-dev
)
# Other people's locks, for the interop tests. Whoever has npm or go from elsewhere keeps it.
if [[ $mode == all || $mode == long ]]; then
  command -v npm >/dev/null || packages+=(nodejs npm)
  command -v go >/dev/null || packages+=(golang-go)
fi
if [[ $mode == lint ]]; then
  packages+=(clang-tidy)
fi

# --- Running stages -------------------------------------------------------------------------------

readonly total_budget=$([[ $mode == long ]] && echo 4500 || echo 1100)
table=()
passed=0

# stage NAME BUDGET COMMAND...: runs the command with its output in build/logs/NAME.log, and stops
# the whole run when it fails.
stage() {
  local name=$1 budget=$2 log=$logs/$1.log began=$SECONDS status=0 took verdict count
  shift 2
  echo "==> $name: started (budget $budget s, log build/logs/$name.log)"
  # Not in an `if` or `||`: bash would then ignore set -e inside of the stage.
  set +e
  (
    set -e
    "$@"
  ) >"$log" 2>&1 </dev/null
  status=$?
  set -e
  took=$((SECONDS - began))
  verdict=ok
  if ((status != 0)); then
    verdict=FAILED
  elif ((took > budget)); then
    verdict=over
    echo "    $name: warning: $took s, over its budget of $budget s"
  fi
  table+=("$(printf '%-12s %8d %8d  %s' "$name" "$took" "$budget" "$verdict")")
  if ((status != 0)); then
    echo "---- the end of build/logs/$name.log ----"
    tail -n 60 "$log"
    echo "-----------------------------------------"
    print_table
    echo "FAILED: stage $name (status $status, $took s); the full log is build/logs/$name.log"
    exit 1
  fi
  count=$(ctest_count "$log")
  passed=$((passed + count))
  if ((count > 0)); then
    echo "    $name: ok, $took s, $count tests"
  else
    echo "    $name: ok, $took s"
  fi
}

# The number of CTest tests that passed according to a log.
ctest_count() {
  sed -n 's/^100% tests passed, 0 tests failed out of \([0-9][0-9]*\)$/\1/p' "$1" |
    { local sum=0 number && while read -r number; do sum=$((sum + number)); done && echo "$sum"; }
}

print_table() {
  local row verdict=ok
  ((SECONDS <= total_budget)) || verdict=over
  echo
  printf '%-12s %8s %8s  %s\n' stage seconds budget verdict
  for row in "${table[@]}"; do
    echo "$row"
  done
  printf '%-12s %8d %8d  %s\n' total "$SECONDS" "$total_budget" "$verdict"
  echo
}

# --- The stages -----------------------------------------------------------------------------------

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) != installed* ]]; then
      echo "$package"
    fi
  done
}

# as_root COMMAND...
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo; then
    sudo "$@"
  else
    echo "Not root, and there is no sudo. Run as root: $*"
    return 1
  fi
}

update_lists() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update
}

# install PACKAGE...
install() {
  update_lists
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
}

# Whether everything is there that comes from packages which are not installed.
is_unpacked() {
  local file
  for file in lib/postgresql/15/bin/postgres lib/postgresql/15/bin/psql sbin/pgbouncer sbin/mariadbd share/mysql/mysql_system_tables.sql bin/etcd bin/etcdctl bin/memcached \
    share/gocode/src/go.etcd.io/etcd/etcdserver/etcdserverpb/rpc.proto \
    share/gocode/src/google.golang.org/grpc/version.go share/gocode/src/golang.org/x/text/doc.go; do
    if [[ ! -e /usr/$file && ! -e $root/build/unpacked/usr/$file ]]; then
      return 1
    fi
  done
}

# unpack PACKAGE...
unpack() {
  local folder=$root/build/unpacked package
  rm -rf "$folder.new"
  mkdir -p "$folder.new/archives"
  (
    cd "$folder.new/archives"
    # The lists may be older than what the servers have.
    apt-get download "$@" || { update_lists && apt-get download "$@"; }
  )
  for package in "$folder.new"/archives/*.deb; do
    dpkg -x "$package" "$folder.new"
  done
  rm -rf "$folder.new/archives" "$folder"
  mv "$folder.new" "$folder"
}

# build PRESET [TARGET...]
build() {
  local preset=$1 bench=OFF
  shift
  local -a targets=(--target "${@:-all}")
  [[ $mode/$preset != long/release && $mode != lint ]] || bench=ON
  cmake --preset "$preset" -DSALLYPORT_BUILD_BENCH="$bench"
  cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"
}

# Live tests mostly wait for leases to end. Meanwhile these go on, one after the other, with whatever the tests leave of the
# cores (SCHED_IDLE); each has a log and a status of its own.
beside=

# begin_beside JOB...: every job is a function.
begin_beside() {
  rm -f "$logs"/*.status
  set -m  # a group of its own: whatever it has started ends with it
  (
    trap - EXIT
    chrt --idle --pid 0 "$BASHPID"
    for job in "$@"; do
      set +e
      (
        set -e
        "$job"
      ) >"$logs/$job.beside.log" 2>&1 </dev/null
      echo "$?" >"$logs/$job.status"
    done
  ) &
  beside=$!
  set +m
  trap 'kill -- "-$beside" 2>/dev/null || true' EXIT
}

# await_beside JOB: shows what the job printed, and fails when it did.
await_beside() {
  while [[ ! -s $logs/$1.status ]] && kill -0 "$beside" 2>/dev/null; do
    sleep 1
  done
  cat "$logs/$1.beside.log"
  [[ -s $logs/$1.status && $(cat "$logs/$1.status") == 0 ]]
}

# tests PRESET CTEST_ARGUMENT...
tests() {
  ctest --preset "$1" -j2 --output-on-failure --no-tests=error "${@:2}"
}

unit_stage() {
  tests release -L '^(unit|rules|threads)$' -LE '^(contract|crash|cli|install|sim|sim-smoke|layering|redis|etcd|zookeeper|memcached|postgres|mariadb|interop|load|costs|long|models)$'
}

layering_stage() {
  tests release -L '^layering$'
}

# What live tests start their servers with.
kit_stage() {
  tests release -L '^kit$'
}

# Most of a live test's time is spent waiting for leases to end, so more of them run at a time than there are cores.
contract_stage() {
  tests release -L '^contract$' -j6
}

# Faults, topologies and other libraries' clients, on real Redis servers.
redis_stage() {
  tests release -L '^(redis|interop)$' -j4
}

# Faults, clusters and ensembles, on real etcd members, ZooKeeper servers and memcached servers.
coordination_stage() {
  tests release -L '^(etcd|zookeeper|memcached)$' -j4
}

# Faults, crashes and poolers, on real PostgreSQL and MariaDB servers.
database_stage() {
  tests release -L '^(postgres|mariadb)$' -j6
}

# What takes too long for every day: the whole contract suite in every set-up, large bursts, models in large bounds.
long_stage() {
  tests release -L '^long$' -j4
}

# Processes that are killed and stopped.
crash_stage() {
  tests release -L '^crash$'
}

# The command, driven from outside, and ./try.sh.
command_stage() {
  tests release -L '^cli$' "$@"
}

# Many processes at once.
load_stage() {
  tests release -L '^load$' -j1
}

# What can be counted, against the table of bounds (tests/costs). One at a time, and before anything runs beside: a busy machine
# adds system calls.
costs_stage() {
  tests release -L '^costs$' -j1
}

# A user's project, built against the installed package.
package_stage() {
  tests release -L '^install$'
}

# The examples, and whatever has a label that no other stage knows: no test is left out.
examples_stage() {
  tests release -LE '^(unit|rules|threads|layering|kit|contract|redis|etcd|zookeeper|memcached|postgres|mariadb|interop|crash|long|load|costs|cli|install|sim|sim-smoke|thread-cases|models)$'
}

# simulate SEEDS
simulate() {
  build/release/sim/sim --seeds "$1" --first 1 --jobs 2
}

simulator_job() {
  tests release -L '^(sim|sim-smoke)$'
  simulate "$([[ $mode == long ]] && echo 50000 || echo 5000)"
}

# Protocols, searched state by state.
models_job() {
  tests release -L '^models$'
}

# Sanitizers need a predictable address space; kernels with much randomisation do not give it to
# those of GCC 12 and Clang 14.
with_fixed_addresses() {
  if setarch "$(uname -m)" --addr-no-randomize true; then
    setarch "$(uname -m)" --addr-no-randomize "$@"
  else
    "$@"
  fi
}

asan_build_job() {
  local -a targets=(sallyport_tests_unit sallyport_tests_contract)
  [[ $mode != long ]] || targets+=(sallyport_tests_sim-smoke)
  build asan "${targets[@]}"
}

tsan_build_job() {
  build tsan sallyport_tests_threads sallyport_tests_contract
}

# sanitized PRESET LABELS LEFT_OUT: six at a time, because most of them wait.
sanitized() {
  export -f tests
  with_fixed_addresses bash -ec "tests $1 -j6 -L '^($2)\$' -E '^contract_($3)\$'" >"$logs/$1.log" 2>&1
}

# The rules themselves (label `rules`) are values without a pointer or a thread, and are inside of the simulator, too: the
# sanitizers see them there. Of the longest suites one part is enough for them.
sanitizers_stage() {
  local labels='unit|contract' asan_status=0 tsan_status=0 asan_tests tsan_tests
  [[ $mode != long ]] || labels+='|sim-smoke'
  sanitized asan "$labels" 'redlock_1|etcd_[123]|mariadb_1|memcached_[123]|postgres_1|zookeeper_1' &
  asan_tests=$!
  sanitized tsan 'threads|thread-cases|contract' 'redlock_1|etcd(_[123])?|mariadb_1|memcached_[123]|postgres_1|zookeeper(_1)?' &
  tsan_tests=$!
  wait "$asan_tests" || asan_status=$?
  wait "$tsan_tests" || tsan_status=$?
  # What failed comes last.
  if ((asan_status != 0)); then
    cat "$logs/tsan.log" "$logs/asan.log"
  else
    cat "$logs/asan.log" "$logs/tsan.log"
  fi
  ((asan_status == 0 && tsan_status == 0))
}

our_sources() {
  local folder
  for folder in "${source_folders[@]}"; do
    if [[ -d $folder ]]; then
      find "$folder" -name '*.cpp' -print0 -o -name '*.hpp' -print0
    fi
  done
}

format_stage() {
  our_sources | xargs -0 clang-format --dry-run -Werror
}

tidy_stage() {
  build clang sallyport_etcd_wire  # what the build writes itself is included by others
  # Sources that the build knows, without those that it wrote itself.
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/clang/compile_commands.json |
    grep -v "^$root/build/" | sort -u | tr '\n' '\0' |
    xargs -0 -n 1 -P 2 clang-tidy --quiet -p build/clang
}

# --- The run --------------------------------------------------------------------------------------

mapfile -t missing < <(missing_packages)
if ((${#missing[@]} > 0)); then
  echo "Packages to install: ${missing[*]}"
  stage install 120 install "${missing[@]}"
else
  echo "All packages are installed: ${packages[*]}"
fi

if ! is_unpacked; then
  stage unpack 60 unpack "${unpacked_packages[@]}"
fi

if [[ $mode == lint ]]; then
  stage format 10 format_stage
  stage tidy 600 tidy_stage
  print_table
  exit 0
fi

stage build 420 build release
if [[ $mode == all || $mode == long ]]; then
  stage costs 30 costs_stage
  begin_beside asan_build_job tsan_build_job simulator_job models_job
fi
stage unit 30 unit_stage
stage layering 10 layering_stage
stage kit 30 kit_stage
stage contract 150 contract_stage
case "$mode" in
  quick)
    stage command 60 command_stage -E '^try_from_nothing$'
    stage simulator 20 simulate 1000
    ;;
  all | long)
    stage redis 90 redis_stage
    stage coordination 90 coordination_stage
    stage database 60 database_stage
    stage crash 60 crash_stage
    stage command 90 command_stage
    stage load 20 load_stage
    stage package 30 package_stage
    stage examples 20 examples_stage
    if [[ $mode == long ]]; then
      stage long 1800 long_stage
    fi
    stage asan-build 120 await_beside asan_build_job
    stage tsan-build 120 await_beside tsan_build_job
    stage sanitizers 180 sanitizers_stage
    stage simulator "$([[ $mode == long ]] && echo 900 || echo 90)" await_beside simulator_job
    stage models 30 await_beside models_job
    stage format 10 format_stage
    ;;
esac

print_table
echo "$passed passed, 0 failed"
