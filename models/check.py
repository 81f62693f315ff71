"""Runs the models of this folder through Spin and compares what it finds with what is expected.

usage: check.py [--bounds small|large] [--only REGEX] [--jobs N] [--minutes N]
       check.py --trace NAME     the shortest way to the violation of one variant, step by step
       check.py --list           the variants of the bounds

Each variant is one model with some of its macros set. "holds" means that Spin has seen every state and that no
assertion failed; "fails" means that the named assertion failed: a search that ends for any other reason (depth, memory,
time, a deadlock, a model that does not compile) is a surprise. "witness" variants prove that a model that holds is not
idle: an assertion that something good never happens has to fail. Variants that are too large to be seen completely are
searched with hashed states ("bitstate") for some minutes each, and have to hold for as long.

Exit status: 0 when everything is as expected, 1 on any surprise, 64 on wrong usage. Needs spin and a C compiler; works
in temporary folders only.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent

# What the assertion of a failing variant speaks of.
TOKENS = r"returned|floor|highest"
TWO_HOLDERS = r"holders==0"
EITHER = r"holders==0|highest"
BELIEF = r"holder_believes"
WITNESS = r"grants<|heirs_granted<|grants_later<|kept<|mine<|by_left_behind<"
HOLDS = None


class Variant(NamedTuple):
    model: str
    name: str
    macros: str
    fails_by: str | None = HOLDS
    bitstate: bool = False

    def full_name(self):
        return f"{self.model.removeprefix('redlock_')}/{self.name}"


def tokens(name, macros="", fails_by=HOLDS, bitstate=False):
    return Variant("redlock_tokens", name, macros, fails_by, bitstate)


def handoff(name, macros="", fails_by=HOLDS, bitstate=False):
    return Variant("redlock_handoff", name, macros, fails_by, bitstate)


def roster(name, macros="", fails_by=HOLDS, bitstate=False):
    return Variant("redlock_roster", name, macros, fails_by, bitstate)


def replace(name, macros="", fails_by=HOLDS, bitstate=False):
    return Variant("redlock_replace", name, macros, fails_by, bitstate)


def lease(name, macros="", fails_by=HOLDS):
    return Variant("lease_deadline", name, macros, fails_by)


# The larger ones come first in each model, so that two workers end at about the same time.
SMALL = [
    roster("marks-decide", ""),
    roster("adopt-anywhere", "ADOPT_ANYWHERE=1", EITHER),
    roster("majority-of-list", "MAJORITY_OF_LIST=1", EITHER),
    roster("votes-at-once", "VOTES_AT_ONCE=1", EITHER),
    roster("forced-while-held", "FORCED_WHILE_HELD=1", EITHER),
    roster("back-anywhere", "BACK_ANYWHERE=1", EITHER),
    roster("moves-unstopped", "MOVES_UNSTOPPED=1", EITHER),
    roster("witness-two-grants", "WITNESS=2", WITNESS),
    replace("one-replacer", "REPLACERS=1"),
    replace("other-new", "SECOND=OTHER_NEW SERVERS=5 LOSSES=0 RENEWALS=0"),
    replace("votes-at-once", "REPLACERS=1 VOTES_AT_ONCE=1", EITHER),
    replace("not-primed", "REPLACERS=1 NOT_PRIMED=1", EITHER),
    replace("minority-suffices", "REPLACERS=1 MINORITY_SUFFICES=1", EITHER),
    replace("one-tells", "REPLACERS=1 ONE_TELLS=1", EITHER),
    replace("read-uncompared", "REPLACERS=1 READ_UNCOMPARED=1", EITHER),
    replace("taken-uncompared", "REPLACERS=1 TAKEN_UNCOMPARED=1", EITHER),
    replace("votes-uncompared", "REPLACERS=1 VOTES_UNCOMPARED=1", EITHER),
    replace("mixed-renewal", "REPLACERS=1 MIXED_RENEWAL=1", EITHER),
    replace("witness-new-server", "REPLACERS=1 WITNESS=2", WITNESS),
    replace("witness-holder-kept", "REPLACERS=1 WITNESS_KEPT=1", WITNESS),
    handoff("block-of-2", "BLOCK=2"),
    handoff("rival", ""),
    tokens("rejoin-quiet", "RESTART=REJOIN_QUIET FIRST_COUNTER=1"),
    tokens("restart-durable-counter", "RESTART=DURABLE FIRST_COUNTER=1"),
    tokens("raise-if-owner", ""),
    tokens("raise-if-owner-always-asked", "EQUAL_COUNTS=0"),
    tokens("rejoin-quiet-keys-stay", "RESTART=REJOIN_QUIET EARLY_LOSSES=0 FIRST_COUNTER=1"),
    tokens("raise-if-owner-keys-stay", "EARLY_LOSSES=0"),
    tokens("raise-unconditional-keys-stay", "RAISE=UNCONDITIONAL EARLY_LOSSES=0"),
    tokens("witness-two-grants", "WITNESS=2", WITNESS),
    tokens("witness-two-grants-keys-stay", "WITNESS=2 EARLY_LOSSES=0", WITNESS),
    tokens("witness-two-grants-rejoin", "WITNESS=2 RESTART=REJOIN_QUIET", WITNESS),
    tokens("no-raise", "RAISE=NOT_AT_ALL EARLY_LOSSES=0", TOKENS),
    tokens("raise-best-effort", "RAISE=BEST_EFFORT EARLY_LOSSES=0", TOKENS),
    tokens("raise-unconditional-key-lost", "RAISE=UNCONDITIONAL", TOKENS),
    tokens("raise-most-of-s", "N=5 MOST_OF_S_SUFFICES=1 FIRST_COUNTER=1", TOKENS),
    tokens("late-ok-counts", "LATE_OK_COUNTS=1", TOKENS),
    tokens("set-repeated", "REPEATED_SETS=1", TOKENS),
    tokens("amnesia", "RESTART=AMNESIA EARLY_LOSSES=0", TOKENS),
    tokens("amnesia-delayed", "RESTART=AMNESIA_LATER EARLY_LOSSES=0", TOKENS),
    tokens("rejoin-at-once", "RESTART=REJOIN_AT_ONCE EARLY_LOSSES=0", TOKENS),
    tokens("rejoin-asks-early", "RESTART=REJOIN_ASKS_EARLY EARLY_LOSSES=0", TOKENS),
    tokens("rejoin-asks-one", "RESTART=REJOIN_QUIET OTHERS_ASKED=1 EARLY_LOSSES=0", TOKENS),
    handoff("timed-rival", "TIMED=1"),
    handoff("two-heirs", "CAST=TWO_HEIRS"),
    handoff("chain", "CAST=CHAIN"),
    handoff("claim-repeated", "CAST=CHAIN REPEATED_CLAIMS=1"),
    handoff("holder-draws-again", "CAST=TWO_HEIRS DRAWS_AGAIN=1"),
    handoff("timed-two-heirs", "TIMED=1 CAST=TWO_HEIRS"),
    handoff("timed-chain", "TIMED=1 CAST=CHAIN"),
    handoff("witness-heir", "WITNESS=1", WITNESS),
    handoff("witness-heir-of-heir", "WITNESS=2 CAST=CHAIN", WITNESS),
    handoff("timed-witness-heir-of-heir", "TIMED=1 WITNESS=2 CAST=CHAIN", WITNESS),
    handoff("same-id", "CAST=SAME_ID", TOKENS),
    handoff("claim-does-not-increment", "CLAIM_INCREMENTS=0", TOKENS),
    handoff("late-claim-counts", "LATE_CLAIM_COUNTS=1", TOKENS),
    handoff("block-raised-to-first", "BLOCK=2 RAISE_TO_FIRST=1", TOKENS),
    handoff("timed-same-id-again", "TIMED=1 CAST=SAME_ID WAITS_AGAIN=1", TWO_HOLDERS),
    handoff("timed-hand-off-while-holding", "TIMED=1 HAND_OFF_WHILE_HOLDING=1", TWO_HOLDERS),
    handoff("timed-lease-from-return", "TIMED=1 LEASE_FROM_RETURN=1", TWO_HOLDERS),
    handoff("timed-claim-does-not-extend", "TIMED=1 CLAIM_EXTENDS=0", TWO_HOLDERS),
    lease("from-sending", "DRIFT=1 MARGIN=1"),
    lease("from-sending-more-drift", "DRIFT=2 MARGIN=2"),
    lease("margin-too-small", "DRIFT=2 MARGIN=1", BELIEF),
    lease("from-reply", "DRIFT=0 MARGIN=2 FROM_REPLY=1", BELIEF),
    lease("clock-step", "DRIFT=0 MARGIN=2 CLOCK_STEP=1", BELIEF),
    lease("clock-step-from-reply", "DRIFT=0 MARGIN=2 CLOCK_STEP=1 FROM_REPLY=1", BELIEF),
]

LARGE = [
    roster("large-3-attempts", "ATTEMPTS=3 EVENTS=2"),
    roster("large-4-events", "EVENTS=4"),
    replace("large-two-replacers", ""),
    replace("large-other-new", "SECOND=OTHER_NEW SERVERS=5"),
    replace("large-other-old", "SECOND=OTHER_OLD SERVERS=5 RENEWALS=0"),
    replace("large-sequel", "SECOND=SEQUEL SERVERS=5 RENEWALS=0"),
    replace("large-witness-sequel", "SECOND=SEQUEL SERVERS=5 LOSSES=0 WITNESS_THIRD=1", WITNESS),
    replace("large-2-losses", "REPLACERS=1 LOSSES=2"),
    replace("large-5-members", "MEMBERS=5 REPLACERS=1 LOSSES=0 RENEWALS=0"),
    replace("large-5-members-loss", "MEMBERS=5 REPLACERS=1 RENEWALS=0", bitstate=True),
    replace("large-witness-left-behind", "MEMBERS=5 REPLACERS=1 LOSSES=0 RENEWALS=0 WITNESS_LEFT_BEHIND=1", WITNESS),
    replace("large-3-attempts", "REPLACERS=1 ATTEMPTS=3 RENEWALS=0"),
    tokens("large-raise-if-owner", "FIRST_COUNTER=3"),
    tokens("large-restart-durable-counter", "RESTART=DURABLE FIRST_COUNTER=2"),
    tokens("large-rejoin-quiet", "RESTART=REJOIN_QUIET FIRST_COUNTER=2"),
    tokens("large-3-attempts", "ATTEMPTS=3", bitstate=True),
    tokens("large-3-attempts-rejoin-quiet", "ATTEMPTS=3 RESTART=REJOIN_QUIET", bitstate=True),
    tokens("large-5-nodes", "N=5 FIRST_COUNTER=1", bitstate=True),
    tokens("large-5-nodes-rejoin-quiet", "N=5 FIRST_COUNTER=1 RESTART=REJOIN_QUIET", bitstate=True),
    handoff("large-rival", "FIRST_COUNTER=2"),
    handoff("large-claim-repeated", "REPEATED_CLAIMS=1"),
    handoff("large-holder-draws-again", "CAST=CHAIN DRAWS_AGAIN=1"),
    handoff("large-holder-draws-again-rival", "DRAWS_AGAIN=1", bitstate=True),
    handoff("large-mixed-ids", "CAST=MIXED"),
    handoff("large-rival-leaves-too", "CAST=RIVAL_LEAVES_TOO", bitstate=True),
    handoff("large-chain-and-rival", "CAST=CHAIN_AND_RIVAL", bitstate=True),
    handoff("large-chain-and-rival-block-of-2", "CAST=CHAIN_AND_RIVAL BLOCK=2", bitstate=True),
    handoff("large-timed-rival-leaves-too", "TIMED=1 CAST=RIVAL_LEAVES_TOO"),
    handoff("large-timed-chain-and-rival", "TIMED=1 CAST=CHAIN_AND_RIVAL"),
    handoff("large-timed-mixed-ids", "TIMED=1 CAST=MIXED"),
]

MAX_DEPTH = 20_000
FULL_MEMORY_MB = 6_144
BITSTATE_LOG2_BITS = 33
FULL_SECONDS = 300


class Surprise(Exception):
    """Something else than what the table says."""


class Outcome(NamedTuple):
    variant: Variant
    surprise: str | None
    states: int
    seconds: float
    note: str


# Process groups under way, for the case that the script itself is stopped. From then on none is started.
running = set()
stopping = threading.Event()


def run(command, folder, seconds):
    """The output of a command that ends within a time, with all that it has started."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 5, int(seconds) + 10))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    if stopping.is_set():
        raise Surprise("stopped")
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=limit)
    running.add(child.pid)
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Surprise(f"{command[0]} took more than {seconds} s") from None
    finally:
        running.discard(child.pid)
    if child.returncode != 0:
        raise Surprise(f"{' '.join(command)}: status {child.returncode}\n{output}")
    return output


def defines(variant):
    """Spin would not mind a macro that the model does not know."""
    text = (HERE / f"{variant.model}.pml").read_text()
    for macro in variant.macros.split():
        name, value = macro.split("=")
        if not re.search(rf"^#ifn?def {name}$", text, re.M):
            raise Surprise(f"{variant.model}.pml has no macro {name}")
        if not value.isdigit() and not re.search(rf"^#define {value} ", text, re.M):
            raise Surprise(f"{variant.model}.pml has no value {value}")
    return [f"-D{macro}" for macro in variant.macros.split()]


def make_verifier(variant, folder, more_flags=()):
    """Spin writes a C program, pan, that searches the states of one variant."""
    source = f"{variant.model}.pml"
    shutil.copy(HERE / source, folder)
    run(["spin", "-a", *defines(variant), source], folder, 60)
    # Small searches do not win back the time that it takes to compile them well, and what fails, fails soon.
    if variant.name.startswith("large-"):
        optimise = "-O2"
    else:
        optimise = "-O1" if variant.fails_by is HOLDS else "-O0"
    kind = ["-DBITSTATE"] if variant.bitstate else [f"-DMEMLIM={FULL_MEMORY_MB}"]
    run(["cc", optimise, "-w", "-DSAFETY", *kind, *more_flags, "-o", "pan", "pan.c"], folder, 120)


def search(variant, folder, minutes):
    options = [f"-m{MAX_DEPTH}"]
    if variant.bitstate:
        # Three hash functions; -Q ends the search by itself.
        options += [f"-w{BITSTATE_LOG2_BITS}", "-k3", f"-Q{minutes}"]
    return run(["./pan", *options], folder, minutes * 60 + 60 if variant.bitstate else FULL_SECONDS)


def judge(variant, output):
    """A note on the result if it is the expected one; raises Surprise otherwise."""
    stored = re.search(r"^\s*(\d\S*) states, stored", output, re.M)
    errors = re.search(r"errors: (\d+)$", output, re.M)
    if stored is None or errors is None:
        raise Surprise(f"no result\n{output}")
    states = int(float(stored.group(1)))
    violation = re.search(r"^pan:\d+: assertion violated (.*) \(at depth \d+\)$", output, re.M)
    if "max search depth too small" in output:
        raise Surprise(f"the depth of {MAX_DEPTH} is too small")
    if variant.fails_by is not HOLDS:
        if violation is None:
            raise Surprise(f"no assertion failed\n{output}")
        if not re.search(variant.fails_by, violation.group(1)):
            raise Surprise(f"another assertion failed: {violation.group(1)}")
        return states, f"assert({violation.group(1).strip()})"
    if violation is not None or errors.group(1) != "0":
        raise Surprise(f"violated\n{output}")
    stopped = re.search(r"Search not completed|time limit|out of memory|interrupted", output)
    if variant.bitstate:
        return states, "bitstate, stopped by time" if stopped else "bitstate"
    if stopped:
        raise Surprise(f"the search was not completed\n{output}")
    return states, "all states seen"


def check(variant, minutes):
    began = time.monotonic()
    states, note, surprise = 0, "", None
    try:
        with tempfile.TemporaryDirectory(prefix="sallyport-models-") as folder:
            make_verifier(variant, folder)
            states, note = judge(variant, search(variant, folder, minutes))
    except Surprise as error:
        surprise = str(error)
    return Outcome(variant, surprise, states, time.monotonic() - began, note)


def report(outcome):
    variant = outcome.variant
    expected = "holds" if variant.fails_by is HOLDS else "fails"
    if outcome.surprise is not None:
        print(f"SURPRISE {variant.full_name()}: expected: {expected}; {outcome.surprise}", flush=True)
        return
    print(f"ok {variant.full_name():<46} {expected} {outcome.states:>12,} states {outcome.seconds:>6.1f} s  "
          f"{outcome.note}", flush=True)


def print_trace(variant):
    with tempfile.TemporaryDirectory(prefix="sallyport-models-") as folder:
        make_verifier(variant._replace(bitstate=False), folder, ["-DBFS"])
        run(["./pan", f"-m{MAX_DEPTH}"], folder, FULL_SECONDS)
        if not (pathlib.Path(folder) / f"{variant.model}.pml.trail").exists():
            raise Surprise("no violation found")
        # Without -B, -T: the values of all variables at the end, and an indentation for each process.
        print(run(["spin", "-t", "-B", "-T", *defines(variant), f"{variant.model}.pml"], folder, 60), end="")


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "), add_help=True)
    parser.add_argument("--bounds", choices=("small", "large"), default="small")
    parser.add_argument("--only", type=re.compile, default=re.compile(""))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=int, default=2)
    parser.add_argument("--trace")
    parser.add_argument("--list", action="store_true")
    try:
        return parser.parse_args()
    except SystemExit as end:
        sys.exit(64 if end.code else 0)


def end_by_signal(*_):
    # One is enough: a second one would come in the way of ending the searches.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, end_by_signal)
    for program in ("spin", "cc"):
        if shutil.which(program) is None:
            print(f"{program} is not installed")
            return 1
    variants = SMALL if arguments.bounds == "small" else SMALL + LARGE
    if arguments.trace is not None:
        chosen = [variant for variant in SMALL + LARGE if variant.full_name() == arguments.trace]
        if not chosen:
            print(f"no variant {arguments.trace}; see --list")
            return 64
        try:
            print_trace(chosen[0])
        except Surprise as surprise:
            print(surprise)
            return 1
        return 0
    variants = [variant for variant in variants if arguments.only.search(variant.full_name())]
    if arguments.list:
        for variant in variants:
            print(f"{variant.full_name():<46} {'holds' if variant.fails_by is HOLDS else 'fails'}  {variant.macros}")
        return 0
    if not variants:
        print("no such variant")
        return 64

    began = time.monotonic()
    surprises = 0
    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    try:
        futures = [pool.submit(check, variant, arguments.minutes) for variant in variants]
        for future in concurrent.futures.as_completed(futures):
            report(future.result())
            surprises += future.result().surprise is not None
    finally:
        # When this script is stopped, no search is left behind.
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for group in list(running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    print(f"{len(variants)} variants, {surprises} surprises, {time.monotonic() - began:.0f} s")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
