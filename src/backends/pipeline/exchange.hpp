#pragma once

#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include <sallyport/error.hpp>

#include <cstdint>

namespace sallyport::backends::pipeline {

/// One command and who waits for its reply.
template <class Command, class Reply>
class exchange {
 public:
  using reply_type = Reply;

  exchange() = default;
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  virtual ~exchange() = default;

  Command command;  ///< its size() is what it takes of the room for what waits
  backend_api::time_point answer_by = backend_api::time_point::max();
  /// Only on the connection of this number, or not at all; zero: on any.
  std::uint64_t bound_to = 0;
  /// The number of the connection that it was put on.
  std::uint64_t sent_on = 0;

  /// Called exactly once, by answer_by at the latest, without a mutex: on the pump's thread or
  /// inside send(), drop() or close(). A reply of the server, also an error of its own; or
  ///   unavailable      not one byte of it was sent, or the server refused before it did anything
  ///   outcome_unknown  something of it was sent and no reply came
  ///   closed           the connection was closed before anything was sent
  virtual void answered(base::result<Reply> said) = 0;
  /// It has waited for a connection, and now there is one: the server may be another than the one
  /// that the command was written for. False: it is not to be sent.
  /// On the pump's thread, after owner::connected() and without a mutex.
  [[nodiscard]] virtual bool still_meant() { return true; }
  /// Instead of answered(): not one byte of it was sent, since the connection that it is bound to is
  /// gone, or since it is not meant any more.
  virtual void not_meant() {
    answered(base::fail(errc::unavailable,
                        "the connection was made anew, and the server may be another"));
  }
};

}  // namespace sallyport::backends::pipeline
