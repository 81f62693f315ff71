#pragma once

#include "backend_api/backend.hpp"
#include "backends/mariadb/address.hpp"
#include "backends/mariadb/greeting.hpp"
#include "backends/mariadb/polling.hpp"
#include "backends/mariadb/speech.hpp"
#include "backends/sql/session.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sallyport::backends::mariadb {

/// One open client of a MariaDB store. Two connections, however many contenders; each contender
/// has one of them for its life. There are no notices:
/// waiters are told when to ask again (polling.hpp).
/// Thread safety: all members.
class session final : public sql::session {
 public:
  /// Waits for the first connection, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. One that refuses us is a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(address where, const backend_api::open_request& request,
          std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention);

  static constexpr std::size_t connections = 2;

  /// Who wants tokens is renewed in a call of its own, as the procedure wants it.
  void renew(std::span<const backend_api::renew_request> batch);
  void watch(const lock_name& /*name*/, bool /*on*/) override {}

  // connection::owner
  base::result<std::optional<std::string>> greet(const reply* said, int server_process) override
      SALLYPORT_EXCLUDES(mutex_);
  bool stateless() override { return false; }
  void notified(std::string_view /*channel*/, std::string_view /*payload*/) override {}

 private:
  // sql::session
  [[nodiscard]] const sql::speech& words() const override { return speech_; }
  [[nodiscard]] base::failure meaning_of(const reply& error) const override;
  void told_to_wait(const backend_api::holder_id& who, const reply& said,
                    backend_api::waiting& answer) override SALLYPORT_EXCLUDES(mutex_);
  void waits_no_more(const backend_api::holder_id& who) override SALLYPORT_EXCLUDES(mutex_);

  const address address_;
  const speech speech_;
  // By the server's number of the connection; the pump's thread only.
  std::map<int, std::unique_ptr<greeting>> greetings_;

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<server_facts> facts_ SALLYPORT_GUARDED_BY(mutex_);
  places places_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::mariadb
