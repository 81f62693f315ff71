#!/usr/bin/env bash
# Builds the command and shows what it does. See ./try.sh --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./try.sh                               build the command `sallyport`, and show what a lock does
       ./try.sh run NAME -- COMMAND ...       run COMMAND while holding the lock NAME
       ./try.sh ARGUMENT ...                  anything else that `sallyport` takes: who NAME, ls, ...
       ./try.sh --help

The first call builds the command into build/try, which takes less than a minute. On Debian the compiler and the two
libraries that it needs are installed with apt-get if they are missing (through sudo when not root); this says what
before it does so. Nothing else is written outside of build/. Locks are kept in the store build/try/store unless
SALLYPORT_STORE names another.
TEXT
}

root=$(dirname -- "$(realpath -e -- "${BASH_SOURCE[0]}")")
readonly root
readonly folder=${SALLYPORT_TRY_FOLDER:-$root/build/try}
readonly command=$folder/sallyport
readonly log=$folder/build.log
readonly one_try=${SALLYPORT_TRY_ONCE:-no} # for the tests: yes fails where others would get a slower build

die() {
  echo "try.sh: $*" >&2
  exit 1
}

# --- What the build needs -------------------------------------------------------------------------

has_header() {
  echo "#include <$1>" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1
}

# The Debian packages of what is not there, one a line.
missing_packages() {
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || command -v make >/dev/null || echo ninja-build
  command -v "${CXX:-c++}" >/dev/null || echo g++
  has_header lmdb.h || echo liblmdb-dev
  has_header tl/expected.hpp || echo libexpected-dev
}

# Shows that apt-get moves: one changing line on a terminal, a line a package elsewhere.
show_progress() {
  local line clear=""
  if [[ -t 1 ]]; then clear=$'\r\033[K'; fi
  while IFS= read -r line; do
    case $line in
      "Need to get"* | [EW]:*) printf '%s  %s\n' "$clear" "$line" ;;
      Get:* | Unpacking* | "Setting up"*)
        if [[ -n $clear ]]; then
          printf '%s  %.76s' "$clear" "$line"
        elif [[ $line == Setting* ]]; then
          printf '  %s\n' "$line"
        fi
        ;;
    esac
  done
  printf '%s' "$clear"
}

# install PACKAGE...: all that apt-get says is in install.log.
install() {
  local -a as_root=()
  echo "Missing here, and needed to build the command: $*"
  [[ ${SALLYPORT_TRY_INSTALL-} != no ]] || die "SALLYPORT_TRY_INSTALL=no: nothing is installed"
  command -v apt-get >/dev/null || die "there is no apt-get; please install them yourself, by the names of your system"
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "not root, and there is no sudo. As root: apt-get install $*"
    as_root=(sudo)
  fi
  echo "Installing them: ${as_root[*]+${as_root[*]} }apt-get install $*"
  {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q install --yes --no-install-recommends "$@"
  } 2>&1 </dev/null | tee "$folder/install.log" | show_progress ||
    die "that failed; see $folder/install.log"
}

# --- Building -------------------------------------------------------------------------------------

# configure UNITY: only the command, and quickly: lightly optimised and, if UNITY is ON, all sources of a folder in one
# compilation. Warnings are for those who work on Sallyport; another compiler's must not stop anybody here.
configure() {
  local -a generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S "$root" -B "$folder" "${generator[@]}" --no-warn-unused-cli \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -w" -DCMAKE_UNITY_BUILD="$1" -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 \
    -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$folder" -DSALLYPORT_BUILD_CLI=ON -DSALLYPORT_BUILD_TESTS=OFF \
    -DSALLYPORT_BUILD_MODULES=OFF -DSALLYPORT_BUILD_SIM=OFF -DSALLYPORT_BUILD_BENCH=OFF -DSALLYPORT_BUILD_EXAMPLES=OFF >"$log" 2>&1 || show_log
}

# compile loud|quiet
compile() {
  local -a build=(cmake --build "$folder" --target sallyport_cli --parallel "$(nproc)")
  if [[ $1 == loud ]]; then
    "${build[@]}"
  else
    "${build[@]}" >"$log" 2>&1
  fi
}

# build loud|quiet: brings the command up to date. One at a time, whoever calls.
build() (
  mkdir -p "$folder"
  exec 9>"$folder/build.lock"
  flock 9
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} > 0)); then install "${missing[@]}" >&2; fi
  export CCACHE_DIR=$root/build/ccache
  unset CXXFLAGS LDFLAGS CMAKE_GENERATOR
  if [[ ! -e $folder/configured ]]; then
    configure ON 9>&-
    touch "$folder/configured"
  fi
  if ! compile "$1" 9>&-; then
    if [[ $one_try == yes ]] || [[ $(<"$folder/configured") == slow ]]; then failed "$1"; fi
    echo "try.sh: compiling the sources of a folder together failed; again, one by one, which takes longer" >&2
    configure OFF 9>&-
    echo slow >"$folder/configured"
    compile "$1" 9>&- || failed "$1"
  fi
  [[ -x $command ]] || die "the build made no $command"
)

# failed loud|quiet: whoever has seen the compiler's output need not see it again.
failed() {
  if [[ $1 == loud ]]; then die "the build failed"; fi
  show_log
}

show_log() {
  tail -n 40 "$log" >&2
  die "the build failed; all of it is in $log"
}

# --- The run --------------------------------------------------------------------------------------

if (($# == 1)) && [[ $1 == -h || $1 == --help ]]; then
  usage
  exit 0
fi

if (($# > 0)); then
  if [[ ! -x $command ]]; then echo "try.sh: building the command first; less than a minute" >&2; fi
  build quiet </dev/null
  if [[ -z ${SALLYPORT_STORE-} ]]; then
    mkdir -p "$folder/store"
    export SALLYPORT_STORE=local:$folder/store
  fi
  exec "$command" "$@"
fi

echo "Building the command 'sallyport' in ${folder#"$root/"} ..."
SECONDS=0
build loud </dev/null
echo "Built in $SECONDS s."
echo
"$root/tools/demo.sh" "$command" "$folder"
cat <<'TEXT'

Now you, in two terminals:   ./try.sh run backup -- sleep 20
and in a third:              ./try.sh who backup
The C++ library, the promises and the other stores: README.md. To install it: docs/install.md.
TEXT
