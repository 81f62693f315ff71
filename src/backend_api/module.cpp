#include "backend_api/module.hpp"

#include "backend_api/lock_category.hpp"
#include "base/fork_generation.hpp"
#include <sallyport/error.hpp>

namespace sallyport::backend_api {

module_host host_of_modules() noexcept {
  return {.category = lock_category(), .log = &base::log, .fork_generation = base::fork_counter()};
}

void adopt(const module_host& host) noexcept {
  share_lock_category(host.category);
  base::forward_log(host.log);
  base::share_fork_counter(host.fork_generation);
}

}  // namespace sallyport::backend_api
