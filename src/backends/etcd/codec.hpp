#pragma once

#include "backends/etcd/speech.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Our values as etcd's messages, and back. Answers that cannot be read are nullopt.
namespace sallyport::backends::etcd::codec {

[[nodiscard]] std::string txn_request(const txn& what);
[[nodiscard]] std::optional<txn_answer> read_txn(const std::string& bytes);

[[nodiscard]] std::string range_request(const look_up& what);
[[nodiscard]] std::optional<operation_answer> read_range(const std::string& bytes);

[[nodiscard]] std::string grant_request(lease_id lease, std::int64_t seconds);
[[nodiscard]] std::optional<std::int64_t> read_grant(const std::string& bytes);
[[nodiscard]] std::string revoke_request(lease_id lease);

struct time_to_live {
  std::int64_t seconds = 0;  ///< below zero: there is no such lease
  std::int64_t granted = 0;
};
[[nodiscard]] std::string time_to_live_request(lease_id lease);
[[nodiscard]] std::optional<time_to_live> read_time_to_live(const std::string& bytes);

struct kept_alive {
  lease_id lease = 0;
  std::int64_t seconds = 0;
  std::uint64_t term = 0;
};
[[nodiscard]] std::string keep_alive_request(lease_id lease);
[[nodiscard]] std::optional<kept_alive> read_keep_alive(const std::string& bytes);

struct watch_report {
  watch_number watch = 0;
  revision at = 0;
  bool created = false;
  bool ended = false;
  std::string why;
  std::vector<key_event> events;
};
[[nodiscard]] std::string watch_request(watch_number watch, const std::string& key,
                                        const std::string& end, bool puts);
[[nodiscard]] std::string unwatch_request(watch_number watch);
[[nodiscard]] std::optional<watch_report> read_watch(const std::string& bytes);

[[nodiscard]] std::string authenticate_request(const std::string& user,
                                               const std::string& password);
[[nodiscard]] std::optional<std::string> read_authenticate(const std::string& bytes);

}  // namespace sallyport::backends::etcd::codec
