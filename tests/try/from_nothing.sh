#!/usr/bin/env bash
# usage: from_nothing.sh SOURCE_FOLDER FOLDER
# Runs ./try.sh as a stranger does, with an empty build folder, and then hands commands to what it built.
set -euo pipefail

source_folder=$1 folder=$2
rm -rf -- "$folder"
mkdir -p -- "$folder"
export SALLYPORT_TRY_FOLDER=$folder/try SALLYPORT_TRY_INSTALL=no SALLYPORT_TRY_ONCE=yes
unset SALLYPORT_STORE

fail() {
  echo "FAILED: $*"
  exit 1
}

"$source_folder/try.sh" </dev/null

# Arguments with spaces, stdin, the exit code and the caller's folder get through, and nothing else is printed.
cd -- "$folder"
status=0
# shellcheck disable=SC2016 # expanded by the inner shell
output=$(echo "from stdin" | "$source_folder/try.sh" run "my lock" -- \
  bash -c 'read -r line; echo "$1|$line|$PWD|${SALLYPORT_TOKEN:?}"; exit 7' bash "a  b") || status=$?
((status == 7)) || fail "the exit code is $status, not 7"
[[ $output == "a  b|from stdin|$folder|"* ]] || fail "the command printed '$output'"
[[ -d $folder/try/store ]] || fail "there is no store in the build folder"

# Client libraries belong to modules, and none is built here: a stranger need not have them.
if grep -iE '(openssl|hiredis|grpc|postgresql|mariadb)' "$folder/try/CMakeCache.txt"; then
  fail "try.sh looked for the libraries of modules"
fi
[[ -z $(find "$folder/try" -name 'sallyport_*.so') ]] || fail "try.sh built modules"
echo "ok"
