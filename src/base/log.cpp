#include "base/log.hpp"

#include "base/mutex.hpp"

#include <atomic>
#include <cstdio>
#include <memory>
#include <utility>

namespace sallyport::base {
namespace {

struct sink_slot {
  mutex guard;
  std::shared_ptr<const log_sink> sink SALLYPORT_GUARDED_BY(guard);
};

sink_slot& slot() {
  static sink_slot only;
  return only;
}

constinit std::atomic<log_function> forwarded{nullptr};

}  // namespace

void set_log_sink(log_sink sink) {
  auto shared = sink ? std::make_shared<const log_sink>(std::move(sink)) : nullptr;
  const mutex_lock held{slot().guard};
  slot().sink = std::move(shared);
}

void forward_log(log_function of_the_program) noexcept { forwarded.store(of_the_program); }

void log(log_level level, std::string_view line) {
  if (const log_function elsewhere = forwarded.load(); elsewhere != nullptr) {
    elsewhere(level, line);
    return;
  }
  std::shared_ptr<const log_sink> sink;
  {
    const mutex_lock held{slot().guard};
    sink = slot().sink;
  }
  if (sink) {
    (*sink)(level, line);
  } else if (level >= log_level::warning) {
    std::fprintf(stderr, "sallyport: %.*s\n", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace sallyport::base
