#include "runtime/threads.hpp"

#include "base/random.hpp"
#include <sallyport/lease_clock.hpp>

#include <span>
#include <utility>

namespace sallyport::runtime {

time_point threads::now() const { return lease_clock::now(); }

backend_api::holder_id threads::new_holder_id() {
  if (ids_left_ == 0) {
    base::fill_from_kernel(std::as_writable_bytes(std::span{fresh_ids_}));
    ids_left_ = fresh_ids_.size();
  }
  // An id is a capability: it does not stay behind in the block.
  return std::exchange(fresh_ids_[--ids_left_], backend_api::holder_id{});
}

}  // namespace sallyport::runtime
