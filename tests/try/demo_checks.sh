#!/usr/bin/env bash
# usage: demo_checks.sh DEMO FOLDER
# Proves that the demo passes with a good command and fails with each bad one, for the right reason, and that it leaves
# nothing behind either way.
set -euo pipefail

demo=$1 folder=$2
fake=$(dirname -- "$(realpath -e -- "$0")")/fake_sallyport.sh
rm -rf -- "$folder"
mkdir -p -- "$folder"

# expect STATUS TEXT FAULT: the demo with that defect ends with STATUS and prints TEXT.
expect() {
  local status=0 output place=$folder/fault-$3
  output=$(FAKE_FAULT=$3 DEMO_PATIENCE_MS=6000 "$demo" "$fake" "$place" 2>&1) || status=$?
  if ((status == $1)) && [[ $output == *"$2"* ]] && [[ -z $(ls -A "$place") ]]; then
    echo "ok: fault '$3' ends with $status"
    return
  fi
  echo "FAILED: fault '$3': wanted status $1, '$2' and an empty folder; status $status, folder: $(ls "$place")"
  echo "$output"
  return 1
}

# All at once: they mostly wait.
expect 0 "in the order of asking" "" & pids=($!)
expect 1 "is not larger than" token & pids+=($!)
expect 1 "entered as anna ben dora cleo" order & pids+=($!)
expect 1 "entered while anna was inside" overlap & pids+=($!)
expect 1 "dora has not entered after" dead & pids+=($!)
expect 1 "ben's process ended before" early & pids+=($!)
expect 1 "while cleo's command was still running" survivor & pids+=($!)
failures=0
for pid in "${pids[@]}"; do
  wait "$pid" || failures=$((failures + 1))
done
((failures == 0))
