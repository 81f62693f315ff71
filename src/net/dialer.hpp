#pragma once

#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/resolution.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"
#include <sallyport/lease_clock.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::net {

/// One attempt to reach an endpoint: finds its addresses, tries them one after the other, shakes
/// hands. It never blocks and never waits; its owner calls proceed() when there is a point in it.
/// Thread safety: none.
class dialer {
 public:
  using time_point = lease_clock::time_point;

  /// Without a context: no TLS. `server_name`: see tls_settings. Every address gets an equal share
  /// of the time until `give_up`, so that one that does not answer does not use up all of it.
  dialer(endpoint where, std::shared_ptr<const tls_context> tls, const std::string& server_name,
         time_point give_up);

  struct progress {
    enum class state : std::uint8_t { working, connected, failed };
    state what = state::working;
    int watch = -1;                             ///< working: proceed when this socket is ...
    std::uint32_t watch_for = 0;                ///< ... ready for this (EPOLLIN, EPOLLOUT), or
    time_point look_again = time_point::max();  ///< ... at this time, whatever happens
    base::failure why;                          ///< failed
  };
  /// REQUIRES: it has neither connected nor failed.
  progress proceed(time_point now);
  /// REQUIRES: connected.
  [[nodiscard]] std::unique_ptr<stream> take() { return std::move(stream_); }

 private:
  enum class stage : std::uint8_t { resolving, choosing, connecting, handshaking };

  progress resolve(time_point now);
  /// Begins with the next address; fails with the last reason when there is none left.
  progress choose(time_point now);
  progress check_connection(time_point now);
  progress shake_hands(time_point now);
  progress give_up_address(base::failure why, time_point now);
  [[nodiscard]] progress wait_for(int socket, std::uint32_t events) const;

  const endpoint where_;
  const std::shared_ptr<const tls_context> tls_;
  const std::string server_name_;
  const time_point give_up_;
  stage stage_ = stage::resolving;
  std::optional<resolution> resolution_;
  lease_clock::duration next_look_{};
  std::vector<socket_address> addresses_;
  std::size_t tried_ = 0;
  time_point address_until_ = time_point::max();
  base::descriptor socket_;
  std::unique_ptr<stream> stream_;
  base::failure last_;
};

}  // namespace sallyport::net
