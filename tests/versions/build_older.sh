#!/usr/bin/env bash
# usage: build_older.sh COMMIT FOLDER
# Builds the command of an older commit, and its modules for Redis, into FOLDER/build. Done before: nothing is built.
set -euo pipefail
commit=$1 folder=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [[ -e $folder/$commit.built ]]; then
  exit 0
fi
if ! git -C "$root" cat-file -e "$commit^{commit}"; then
  echo "The older version is commit $commit, which is not in this repository: fetch its whole history (git fetch --unshallow)."
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder/source"
git -C "$root" archive "$commit" | tar -x -C "$folder/source"
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_CXX_FLAGS="-O1 -w" -DSALLYPORT_BUILD_TESTS=OFF -DSALLYPORT_BUILD_SIM=OFF -DSALLYPORT_BUILD_BENCH=OFF -DSALLYPORT_BUILD_EXAMPLES=OFF
cmake --build "$folder/build" --target sallyport_cli sallyport_module_redis sallyport_module_redlock
touch "$folder/$commit.built"
