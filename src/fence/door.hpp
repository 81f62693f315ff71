#pragma once

#include "base/result.hpp"
#include <sallyport/error.hpp>

#include <utility>

namespace sallyport::fence {

/// The public door: gives the value, or throws the failure as lock_error.
template <class T>
T value_or_throw(base::result<T> outcome) {
  if (!outcome) throw lock_error(outcome.error().code, outcome.error().detail);
  if constexpr (!std::is_void_v<T>) return std::move(*outcome);
}

}  // namespace sallyport::fence
