// Holds a lock on etcd and writes when it is told to, however late that is: it never looks at its
// lease. usage: interop_writer PORT LOCK LEASE_SECONDS
//
//   hold                   -> holding TOKEN
//   bare KEY VALUE         -> written
//   gate GATE KEY VALUE    -> passed | stale | wrong_lock
//   words GATE KEY VALUE   -> words HEX             (the same as the bytes of a message)
//   owner KEY VALUE        -> written | refused     (a condition in a transaction of its own)
//   lock                   -> lock PASS             (what a gate calls the lock)
//   leave                  -> released | already lost | unknown

#include "tests/kit/etcd_probe.hpp"
#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fence = sallyport::fence;

std::string hex(const std::string& bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    out += {digits[byte >> 4U], digits[byte & 0xfU]};
  }
  return out;
}

struct writer {
  const sallyport::kit::etcd_probe& etcd;
  sallyport::mutex& lock;
  std::optional<sallyport::lease> held;
  std::optional<sallyport::store_entry> grant;

  std::string obey(const std::vector<std::string>& words) {
    const std::string& verb = words.at(0);
    if (verb == "hold") {
      held.emplace(lock.acquire());
      grant = held->entry();
      return "holding " + std::to_string(held->token().value());
    }
    if (verb == "lock") return "lock " + held.value().fence_pass().lock;
    if (verb == "bare") {
      etcd.put(words.at(1), words.at(2));
      return "written";
    }
    if (verb == "gate" || verb == "words") {
      const fence::etcd_gate gate{words.at(1)};
      const auto txn = gate.transaction(held.value(), {{.key = words.at(2), .value = words.at(3)}});
      if (verb == "words") return "words " + hex(to_protobuf(txn));
      return std::string(to_string(fence::etcd_gate::verdict_of(etcd.commit(to_json(txn)))));
    }
    if (verb == "owner") {
      const fence::etcd_operation txn{.does = fence::etcd_operation::kind::txn,
                                      .key = {},
                                      .value = {},
                                      .when = fence::still_holds(grant.value()),
                                      .then = {{.key = words.at(1), .value = words.at(2)}}};
      return etcd.commit(to_json(txn)).at(0) ? "written" : "refused";
    }
    if (verb == "leave") return std::string(to_string(held.value().release()));
    return "not understood: " + verb;
  }
};

int run(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: interop_writer PORT LOCK LEASE_SECONDS\n";
    return 64;
  }
  const auto port = static_cast<std::uint16_t>(std::stoi(words[1]));
  // The name of the store is part of a gate's memory; Go gives the same one.
  const auto store =
      sallyport::client::open("etcd://127.0.0.1:" + std::to_string(port) + "?store=interop");
  sallyport::mutex lock{
      store, std::string(words[2]), {.lease_length = std::chrono::seconds{std::stoi(words[3])}}};
  const sallyport::kit::etcd_probe etcd{port};
  writer one{etcd, lock, {}, {}};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream{line};
    const std::vector<std::string> said{std::istream_iterator<std::string>{stream}, {}};
    std::cout << one.obey(said) << std::endl;
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
