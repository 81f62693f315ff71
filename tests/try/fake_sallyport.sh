#!/usr/bin/env bash
# A stand-in for `sallyport run` and `who`, so that the demo's own checks can be tested: tickets are files, and the
# lowest ticket whose process lives has the lock. FAKE_FAULT plants one defect: token, order, overlap, dead, early,
# survivor.
set -euo pipefail
folder=${SALLYPORT_STORE#local:}
shopt -s nullglob

subcommand=$1
shift
if [[ $subcommand == who ]]; then
  for ticket in "$folder"/ticket.*; do
    read -r pid label <"$ticket"
    echo "$pid $label"
  done
  exit 0
fi

label=""
while [[ $1 == --* ]]; do
  if [[ $1 == --label ]]; then label=$2; fi
  shift 2
done
shift 2 # the lock's name and --

fault=${FAKE_FAULT-}
if [[ $fault == early && $label == ben ]]; then exit 69; fi
number=$(find "$folder" -name 'ticket.*' | wc -l)
if [[ $fault == order && $label == cleo ]]; then number=9; fi
echo "$$ $label" >"$folder/new.$number"
mv "$folder/new.$number" "$folder/ticket.$number"

is_free() {
  local ticket pid
  for ticket in "$folder"/ticket.*; do
    if ((${ticket##*.} < number)); then
      read -r pid _ <"$ticket"
      if kill -0 "$pid" 2>/dev/null; then return 1; fi
      if [[ $fault == dead && ! -e $ticket.done && ${ticket##*.} == 2 ]]; then return 1; fi
    fi
  done
}
until [[ $fault == overlap && $label == dora ]] || is_free; do sleep 0.02; done

export SALLYPORT_TOKEN=$((number + 1))
if [[ $fault == token ]]; then SALLYPORT_TOKEN=7; fi
if [[ $fault == survivor ]]; then
  "$@" &
  wait $!
  exit
fi
exec "$@"
