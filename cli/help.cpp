#include "cli/help.hpp"

#include "cli/exit_codes.hpp"
#include "cli/inspect.hpp"
#include "cli/message.hpp"
#include "cli/text.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::cli {
namespace {

constexpr std::string_view overview = R"(sallyport: one at a time, for commands

usage: sallyport run [OPTIONS] NAME -- COMMAND [ARGUMENT]...
       sallyport ls [PREFIX] [--json]
       sallyport who NAME [--json]
       sallyport break NAME [--token TOKEN] [--now] [--yes]
       sallyport fence run GATE [TOKEN] -- COMMAND [ARGUMENT]...
       sallyport init local:machine [--group NAME]
       sallyport init redlock://HOST1,HOST2,HOST3 [--max-lease SECONDS] [--yes]
       sallyport init --replace OLD NEW redlock://HOST1,HOST2,HOST3 [--yes]
       sallyport schema URI
       sallyport help [COMMAND]        sallyport --version

examples:
  sallyport run nightly-backup -- /usr/local/bin/backup     wait for the lock, run, give it back
  sallyport run -n report -- make report                    do not wait: exit 75 if it is held
  sallyport run -w 60 deploy -- ./deploy.sh                 wait for at most a minute
  sallyport who deploy                                      who holds it, who waits
  sallyport ls                                              all locks in use

Locks are kept in the store of this user on this machine (local:), or in the one named by --store URI
or SALLYPORT_STORE. All users of a machine share local:machine, once root has made it: 'sudo sallyport
init local:machine'. Several machines share redis://HOST or another server.
--store and --json may also stand before the command.
'sallyport help run' has more examples, all options and the exit codes.
)";

constexpr std::string_view run_page =
    R"(usage: sallyport run [OPTIONS] NAME -- COMMAND [ARGUMENT]...

Waits until the lock NAME is free, runs COMMAND while holding it, gives it back, and exits with
COMMAND's exit code. The lock is renewed while COMMAND runs; when it is lost, COMMAND is ended in
time. A killed sallyport takes COMMAND and all its processes along.

examples:
  # cron: skip this turn if the last one is still running, without a mail
  */5 * * * *  sallyport run -n -E 0 sync -- /usr/local/bin/sync

  # a deploy: wait for at most a minute, and say who is in the way
  sallyport run -v -w 60 deploy/web -- ./deploy.sh

  # a migration: one machine does it, the others wait, then find nothing to do
  SALLYPORT_STORE=redis://db1 sallyport run migrate -- ./manage.py migrate

  # a time limit for the work itself: let timeout(1) do it
  sallyport run report -- timeout 10m make report

  # fencing: let the resource refuse a holder that was late ('sallyport help fence')
  sallyport run orders -- sallyport fence run /srv/orders.gate -- ./write-orders
  sallyport run orders -- sh -c 'psql -v t="$SALLYPORT_TOKEN" -f orders.sql'
  #   orders.sql: UPDATE orders SET ..., fence = :t WHERE id = 42 AND fence <= :t;

  # readers and a writer; at most three at a time
  sallyport run -s catalogue -- ./export      sallyport run -x catalogue -- ./import
  sallyport run --permits 3 encoder -- ffmpeg ...

  # a pipe or several commands: give them to a shell
  sallyport run log -- sh -c 'zcat *.gz | sort > all'

waiting:
  -n, --nonblock           do not wait: exit 75 if somebody else has it
  -w, --wait SECONDS       wait for at most so long (0.5, 90, 5m), then exit 75
  -E, --conflict-exit-code CODE   exit with CODE instead of 75
      --store-wait DURATION   how long to wait for a store that is away (as long as -w, or 30s), then
                           exit 69; not longer than -w in all, and not at all with -n

the lock:
  -x, --exclusive          as the one writer among readers (-s)
  -s, --shared             as one of many readers; keeps out writers (-x)
      --permits N          as one of at most N
      --lease DURATION     how long a grant is good for without renewal (30s): the time that a dead
                           machine can delay others
      --fixed              do not renew: COMMAND must end within the lease ($SALLYPORT_DEADLINE)
      --grace DURATION     how long before the lease ends COMMAND gets SIGTERM, if the lease cannot
                           be renewed; SIGKILL follows (a sixth of the lease, at most 10s)
      --label TEXT         what 'who' shows (the name of COMMAND)
      --store URI          where locks are kept (SALLYPORT_STORE, or local:, this user's own store);
                           local:machine is shared by all users of this machine

  -v, --verbose            say what happens        -q, --quiet    errors only
  -h, --help               this page

COMMAND sees:
  SALLYPORT_TOKEN          the fencing token, a number that grows with every grant (not --permits)
  SALLYPORT_LOCK           NAME
  SALLYPORT_FENCE_LOCK     with a token: what fencing gates call the lock, the store's id and NAME
  SALLYPORT_MODE           'shared' with -s: others may have a token beside this one
  SALLYPORT_DEADLINE       --fixed: the end of the lease in seconds since boot (cf. /proc/uptime)
  SALLYPORT_STORE          the store; 'withheld:...', which is refused, if its address needs a password
                           (password_file is passed on, the variable of password_env is not)
  ETCD_LOCK_KEY, _REV      on etcd: what 'etcdctl lock' says, the holder's key and the token

exit codes:
  COMMAND's own, or
  64  wrong usage                        75  not acquired (-E changes it)
  69  the store is broken                76  the lease was lost; COMMAND was ended if it still ran
  71  no more processes or descriptors   126 COMMAND could not be executed   127 not found
  128+n  signal n ended COMMAND, or the wait for the lock
)";

constexpr std::string_view list_page = R"(usage: sallyport ls [PREFIX] [--json] [--store URI]

Shows the locks in use whose names begin with PREFIX: all of them without one. For a lock with
several holders the first is shown; 'sallyport who NAME' shows all.

  HOLDERS, WAITING   how many hold it, and how many wait for it
  TOKEN              the holder's fencing token, which 'sallyport break' asks for
  HELD FOR, LEFT     since when, and how long the lease lasts unless it is renewed

examples:
  sallyport ls
  sallyport ls deploy/
  sallyport ls --json | jq -r '.locks[] | select(.waiting > 0) | .name'    where somebody waits

options:
  --json          {"locks": [...]}, each lock as 'sallyport who --json' prints it
  --store URI     where to look (SALLYPORT_STORE, or local:)

exit codes: 0, also when there are none; 64 wrong usage; 69 the store is broken
)";

constexpr std::string_view who_page = R"(usage: sallyport who NAME [--json] [--store URI]

Shows who holds NAME and who waits for it, in order. Threads of one program share a place in the
queue; where there are such, the column WAITING says how many of each process wait.

examples:
  sallyport who deploy/web
  sallyport who deploy/web --json | jq -r '.holders[0].token'
  if sallyport who deploy/web > /dev/null; then echo "in use"; fi

options:
  --json          one document for programs; docs/cli.md describes its keys
  --store URI     where to look (SALLYPORT_STORE, or local:)

exit codes: 0 it is in use; 1 it is free; 64 wrong usage; 69 the store is broken
)";

constexpr std::string_view break_page =
    R"(usage: sallyport break NAME [--token TOKEN] [--now] [--yes] [--json] [--store URI]

Takes a lock away from its holder. Safe by default: the holder is told (its renewals fail, and
'sallyport run' kills its command), and nobody enters before the holder's lease would have ended.
It compares the token: if the lock has changed hands since you looked, nothing happens.

examples:
  sallyport break deploy/web                  looks, asks, breaks
  sallyport break deploy/web --token 17       only the grant that 'sallyport who' showed
  sallyport break deploy/web --now            the next one enters at once

options:
  --token TOKEN   the grant to break; needed when there are several holders
  --now           hand the lock on at once. The old holder may still be working: only resources
                  that check the token (see 'help run', fencing) are safe
  -y, --yes       do not ask. Needed where there is no terminal and no --token
  --json          say what was done as JSON
  --store URI     where the lock is kept (SALLYPORT_STORE, or local:)

exit codes: 0 done; 1 nobody holds it, or not under that token; 64 wrong usage; 69 the store is broken
)";

constexpr std::string_view fence_page =
    R"(usage: sallyport fence run [OPTIONS] GATE [TOKEN] -- COMMAND [ARGUMENT]...
       sallyport fence check [OPTIONS] GATE [TOKEN] [--json]
       sallyport fence rebind --from OLD [--restart] GATE [TOKEN]
       sallyport fence ddl postgres|mariadb TABLE [--resource-column COLUMN]

The inner gate: refuses a holder that was late. A lock is a lease, and its holder may be stopped for
longer than that without knowing it; when it goes on, another has the lock and works. GATE is a small
file beside the resource that remembers the newest token it has seen, and refuses older ones.

'fence run' runs COMMAND inside the gate: meanwhile no newer holder gets in, so it can't be late.
'fence check' only asks, and is advice, no fence: the answer may be old when the next command runs.
What it does for certain: from a token that passed on, older ones are refused.
'fence rebind' binds a gate to another lock: its store has another name than before (it was moved
by hand, restored, emptied), or the lock was renamed. The old lock is refused from then on.
'fence ddl' prints triggers with which a table refuses writers without a token, or with an old one.

examples:
  # the outer and the inner gate: TOKEN is $SALLYPORT_TOKEN when it is left out
  sallyport run orders -- sallyport fence run /srv/orders.gate -- ./write-orders

  # compute under the lock for hours, then publish in a moment, unless somebody came after us
  sallyport run report -- sh -c './compute > new &&
    sallyport fence run /srv/report.gate "$SALLYPORT_TOKEN" -- mv new /srv/report'

  # the store of this lock is another one now: what the gate is bound to is in its refusal
  sallyport run orders -- sallyport fence rebind /srv/orders.gate --from 'redis:4f1c...|orders'

  # a table that guards itself, each account by its own lock
  sallyport fence ddl postgres accounts --resource-column id | psql -v ON_ERROR_STOP=1 shop

run and check:
  -s, --shared             as a reader: readers keep out writers, not each other; for locks taken
                           with 'sallyport run -s'
      --lock LOCK          whose token it is (SALLYPORT_FENCE_LOCK, or SALLYPORT_LOCK): a gate
                           belongs to the first lock that passes, and refuses all others
  -w, --wait SECONDS       how long to wait for others' commands inside the gate (10)
  -n, --nonblock           run: do not wait
      --existing           refuse to make GATE: it is there, or its memory is lost
  -q, --quiet              errors only        -v, --verbose   say more

rebind (TOKEN and --lock are the new lock's, -w as above; a token of 'run -s' is refused):
      --from OLD           what the gate is bound to; if it is another lock, nothing is changed
      --restart            the numbers begin anew with TOKEN, which may be smaller: for a store that
                           began its tokens anew. Without it a smaller one is refused
      --sql postgres|mariadb|sqlite   print the statement for a gate in a database, whose resource is
                           GATE; --gate-table as below
      --json               say what was done as JSON

ddl:
      --resource-column COLUMN   each row is guarded by itself, as TABLE/value
      --resource NAME      another name than TABLE, or what stands before the value
      --gate-table TABLE   where the numbers are kept (sallyport_fence)
      --drop               take the triggers away

A killed 'fence run' takes COMMAND along. What lives on nevertheless keeps the gate shut: the gate's
file is open in COMMAND and all it starts, until the last of them has ended.

exit codes:
  COMMAND's own; 128+n when signal n ended it; check: 0 it passes
  64  wrong usage, or a gate of another lock     76  stale: a newer holder was here, nothing was run
  69  the gate is broken, or was in use for longer than --wait; nothing was run
  71  no more processes or descriptors   126 COMMAND could not be executed   127 not found
)";

constexpr std::string_view init_page =
    R"(usage: sallyport init local:machine [--group NAME]
       sallyport init [URI] [--max-lease SECONDS] [--force] [--yes]
       sallyport init --replace OLD NEW [URI] [--yes]

local:machine is the one store of all users of this machine. Root makes it, once, in
/var/lib/sallyport/machine; then every user, root's cron included, names it with --store or
SALLYPORT_STORE. With --group it is for root and the users of that group only. Whoever may use it may
as well have the rights of everybody who uses it, root included: its files are memory that processes
share. For users who do not trust each other that far take a store with a server. Again, it makes
what is missing and leaves the rest as it is.

redlock://HOST1,HOST2,HOST3 needs it once: it tells the nodes that they are new, and
leaves a mark on every node that names all members, as they are spelled here. A node without its
mark might have lost its data, and must not grant what it may have granted before. All nodes have
to be reachable. Nodes that have their marks are left as they are, and a single node that lost its
data comes back by itself, at the address that the marks name, after the longest lease.

--replace puts the blank server NEW in the place of the member OLD while clients run: first add NEW
to the list of every client, then replace, then drop OLD from the lists. A majority of the other
members has to be there; OLD need not. Locks go on meanwhile. NEW votes when the longest lease has
passed; the command waits for that, and may be run again when it was interrupted.

--force is for another set of members (a node is added or given up), and for a majority
that lost its data. It is safe only offline: stop all clients, wait for the longest lease, run it
with the new list, start the clients with that list. Tokens go on above all that the nodes have
seen. Delete the data of members that leave before they are started again.

examples:
  sudo sallyport init local:machine
  sudo sallyport init local:machine --group deploy
  sudo sallyport init 'local:machine?size=256M'      room for more locks; nobody may use it meanwhile
  sallyport init redlock://redis1,redis2,redis3
  sallyport init --max-lease 300 --yes redlock://redis1,redis2,redis3
  sallyport init --replace redis3 redis4 redlock://redis1,redis2,redis3
  sallyport init --force redlock://redis1,redis2,redis3,redis4,redis5

options:
  --group NAME          local:machine: for root and this group only
  --max-lease SECONDS   redlock: no lease may be longer (60); a node that lost its data waits for as long
  --replace OLD NEW     redlock: NEW takes the place of OLD, spelled as it was at init
  --force               redlock: make these nodes the members, whatever they were before
  -y, --yes             do not ask. Needed where there is no terminal

exit codes: 0 done; 1 nothing was done; 64 wrong usage; 69 the store is broken
)";

constexpr std::string_view schema_page =
    R"(usage: sallyport schema [URI]

Prints what the administrator of a database has to run, where those who take locks may not make
tables: tables and functions (PostgreSQL: in the schema of ?schema=, sallyport; MariaDB: with the
names of ?prefix=, sallyport_), and the rights of the user that URI names. The database is not asked,
and nothing is changed. Elsewhere it is all made on first use.

examples:
  sallyport schema postgres://app@db1/shop | psql -h db1 -U postgres -v ON_ERROR_STOP=1 shop
  sallyport schema mariadb://app@db1/shop | mariadb -h db1 -u root shop

exit codes: 0 done; 64 wrong usage, or a store that needs no tables
)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> pages{{
    {"", overview},
    {"run", run_page},
    {"ls", list_page},
    {"who", who_page},
    {"break", break_page},
    {"fence", fence_page},
    {"init", init_page},
    {"schema", schema_page},
}};

}  // namespace

int print_help(std::string_view topic) {
  std::vector<std::string_view> known;
  for (const auto& [name, text] : pages) {
    if (name == topic) {
      print(std::string(text));
      return exit_code::success;
    }
    known.push_back(name);
  }
  const auto meant = nearest(topic, known);
  throw usage_error("there is no help on " + quoted(topic) +
                    (meant ? "; did you mean " + quoted(*meant) + "?" : ""));
}

int print_version() {
  print("sallyport " SALLYPORT_VERSION "\n");
  return exit_code::success;
}

}  // namespace sallyport::cli
