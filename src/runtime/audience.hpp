#pragma once

#include "runtime/call_user.hpp"
#include <sallyport/observer.hpp>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace sallyport::runtime {

/// A client's observers. Each hears of every event, in the order in which they are given; one that
/// throws keeps no other from hearing.
/// Thread safety: all members; tell() runs user code on the calling thread.
class audience {
 public:
  /// REQUIRES: none is null.
  explicit audience(std::vector<std::shared_ptr<observer>> all) : all_(std::move(all)) {}

  template <class Event>
  void tell(void (observer::*what)(Event), const std::remove_cvref_t<Event>& event) const {
    for (const auto& each : all_) call_user([&] { ((*each).*what)(event); });
  }

 private:
  const std::vector<std::shared_ptr<observer>> all_;
};

}  // namespace sallyport::runtime
