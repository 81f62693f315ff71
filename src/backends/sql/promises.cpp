#include "backends/sql/promises.hpp"

#include <chrono>

namespace sallyport::backends::sql {

using namespace std::chrono_literals;

sallyport::capabilities promises() {
  sallyport::capabilities all;
  all.fencing = true;
  all.fifo = true;
  all.direct_handoff = true;
  all.shared_locks = true;
  all.semaphores = true;
  all.elections = true;
  all.notices_death = false;
  all.tells_kind = true;
  all.min_lease = 100ms;
  all.max_lease = 24h;
  return all;
}

}  // namespace sallyport::backends::sql
