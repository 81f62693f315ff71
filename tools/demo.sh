#!/usr/bin/env bash
# usage: tools/demo.sh COMMAND FOLDER
#
# Shows what a lock does, with the `sallyport` at COMMAND and a store of its own below FOLDER: four processes want one
# lock, each enters when the one before it leaves, one holder is killed, and the next enters at once. Takes two to
# three seconds. Ends with 1, and says why, when the order was not that of asking, a token did not grow, two were
# inside at once, or anything else went wrong. Leaves no process and no file behind.
set -euo pipefail
export LC_ALL=C

readonly patience_ms=${DEMO_PATIENCE_MS:-10000} # how long anything may take before it counts as broken
readonly lock=demo

now_us() { echo "${EPOCHREALTIME/./}"; }

# --- What each holder does while it has the lock: this script again, called by `sallyport run`. ---

# event WORD NAME [MORE...]: one line for the checks.
event() {
  local word=$1 name=$2
  shift 2
  echo "$word $name $(now_us) $*" >>"$DEMO_FOLDER/events"
}

# say NAME TEXT...: one line for the reader.
say() {
  local name=$1 ms=$((($(now_us) - DEMO_START_US) / 1000))
  shift
  printf '  %d.%03d s  %-5s %s\n' $((ms / 1000)) $((ms % 1000)) "$name" "$*"
}

if [[ ${1-} == --holder ]]; then
  event entered "$2" "$SALLYPORT_TOKEN" "$$"
  say "$2" "enters with token $SALLYPORT_TOKEN"
  if [[ $3 == until-told ]]; then
    # Bounded: whoever should tell may be gone.
    for ((tries = 0; tries < patience_ms / 20; ++tries)); do
      if [[ -e $DEMO_FOLDER/told ]]; then break; fi
      sleep 0.02
    done
  else
    sleep "$3"
  fi
  say "$2" "leaves"
  event left "$2"
  exit 0
fi

# --- Surroundings ---------------------------------------------------------------------------------

if (($# != 2)); then
  sed -n 's/^# \(usage: .*\)/\1/p' "$0" >&2
  exit 64
fi
sallyport=$(realpath -e -- "$1")
self=$(realpath -e -- "$0")
mkdir -p -- "$2"
DEMO_FOLDER=$(mktemp -d -- "$(realpath -e -- "$2")/demo.XXXXXX")
DEMO_START_US=$(now_us)
export DEMO_FOLDER DEMO_START_US
export SALLYPORT_STORE=local:$DEMO_FOLDER/store
mkdir "$DEMO_FOLDER/store"
touch "$DEMO_FOLDER/events"
declare -A pid_of=()

fail() {
  echo "demo: FAILED: $*" >&2
  exit 1
}

# Ends what is still running: asks first, then kills. Only processes that were started here.
leave() {
  local status=$? name
  trap - EXIT
  for name in "${!pid_of[@]}"; do
    kill -TERM "${pid_of[$name]}" 2>/dev/null || true
  done
  for name in "${!pid_of[@]}"; do
    local tries=0
    while kill -0 "${pid_of[$name]}" 2>/dev/null && ((++tries < 50)); do sleep 0.02; done
    kill -KILL "${pid_of[$name]}" 2>/dev/null || true
    wait "${pid_of[$name]}" 2>/dev/null || true
  done
  rm -rf -- "$DEMO_FOLDER"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- Steps ----------------------------------------------------------------------------------------

# start NAME SECONDS|until-told: a process that wants the lock, and keeps it for so long.
start() {
  "$sallyport" run --wait $((patience_ms / 1000)) --label "$1" "$lock" -- "$BASH" "$self" --holder "$1" "$2" \
    </dev/null &
  pid_of[$1]=$!
}

# await NAME WHAT TEST...: until TEST is true; not if NAME's process ends before, or takes too long.
await() {
  local name=$1 what=$2 began gone
  shift 2
  began=$(now_us)
  while true; do
    gone=no
    kill -0 "${pid_of[$name]}" 2>/dev/null || gone=yes
    if "$@"; then return; fi
    if [[ $gone == yes ]]; then fail "$name's process ended before it $what"; fi
    if (($(now_us) - began > patience_ms * 1000)); then fail "$name has not $what after $patience_ms ms"; fi
    sleep 0.02
  done
}

happened() { grep -q "^$1 $2 " "$DEMO_FOLDER/events"; }
is_known() { "$sallyport" who "$lock" 2>/dev/null | grep -qw -- "$1"; }

# finished NAME: waits for the process and takes it off the list; its status must be the second argument.
finished() {
  local name=$1 wanted=$2 status=0
  wait "${pid_of[$name]}" || status=$?
  unset "pid_of[$name]"
  ((status == wanted)) || fail "$name's 'sallyport run' ended with $status, not with $wanted"
}

# In one breath, so that bash has no time to report the death of a job.
kill_and_reap() {
  {
    kill -KILL "${pid_of[$1]}"
    finished "$1" 137
  } 2>/dev/null
}

# holder_lives NAME: whether the command that ran under the lock is still there; a zombie is not.
holder_lives() {
  local pid state
  pid=$(sed -n "s/^entered $1 [0-9]* [0-9]* \([0-9]*\)$/\1/p" "$DEMO_FOLDER/events")
  state=$(sed -n 's/^State:\s*\(\S\).*/\1/p' "/proc/${pid:?}/status" 2>/dev/null) || return 1
  [[ -n $state && $state != [ZX] ]]
}

# time_of WORD NAME: when it happened, in microseconds.
time_of() { sed -n "s/^$1 $2 \([0-9]*\).*/\1/p" "$DEMO_FOLDER/events"; }

# --- The demo -------------------------------------------------------------------------------------

echo "Four processes want the lock '$lock'. Each is a:  sallyport run $lock -- COMMAND"
echo
start anna until-told # so that all can queue up behind her, however slow the machine is
await anna entered happened entered anna
for name in ben cleo dora; do
  # cleo would stay longer than the demo lasts: she will be killed.
  case $name in cleo) seconds=5 ;; *) seconds=0.5 ;; esac
  start "$name" "$seconds"
  await "$name" queued is_known "$name"
done

echo
echo "\$ sallyport who $lock"
"$sallyport" who "$lock" || fail "who ended with $?"
echo
sleep 0.4
touch "$DEMO_FOLDER/told"

await ben left happened left ben
finished anna 0
finished ben 0
await cleo entered happened entered cleo
sleep 0.4
say cleo "is killed with kill -9, and releases nothing"
event killed cleo
kill_and_reap cleo
await dora entered happened entered dora
if holder_lives cleo; then fail "dora entered while cleo's command was still running"; fi
handoff_us=$(($(time_of entered dora) - $(time_of killed cleo)))
await dora left happened left dora
finished dora 0

# --- Was it right? --------------------------------------------------------------------------------

inside="" order="" last_token=0
while read -r word name _ token _; do
  case $word in
    entered)
      [[ -z $inside ]] || fail "$name entered while $inside was inside"
      ((token > last_token)) || fail "$name's token $token is not larger than $last_token"
      inside=$name last_token=$token order+="$name "
      ;;
    left | killed)
      [[ $inside == "$name" ]] || fail "$name $word and was not inside"
      inside=""
      ;;
  esac
done <"$DEMO_FOLDER/events"
[[ $order == "anna ben cleo dora " ]] || fail "they asked as anna ben cleo dora, and entered as $order"

echo
printf 'They entered in the order of asking, one at a time, each with a larger token.\n'
printf 'dora was inside %d.%d ms after the kill; nobody had to wait for a lease to run out.\n' \
  $((handoff_us / 1000)) $((handoff_us % 1000 / 100))
