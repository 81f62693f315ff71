#pragma once

#include <sallyport/types.hpp>

#include <string>

namespace sallyport::fence {

/// What a holder shows at a gate: which lock it holds, under which token, and how. A plain value;
/// it is no capability and no secret, and it says nothing about whether the lease still lives: the
/// gate judges it by number alone.
struct pass {
  std::string lock{};     ///< names the token space and the lock in it (store id and name); tokens
                          ///< compare only within it
  fencing_token token{};  ///< the grant's token; zero is refused
  lock_mode mode = lock_mode::exclusive;

  friend bool operator==(const pass&, const pass&) = default;
};

}  // namespace sallyport::fence
