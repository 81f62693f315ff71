#include "backends/postgres/lookup.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <netdb.h>
#include <string_view>
#include <utility>

namespace sallyport::backends::postgres {
namespace {

// A name with more addresses than this is tried at the first ones.
constexpr std::size_t most_addresses = 8;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> all;
  for (;;) {
    const auto comma = text.find(',');
    all.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return all;
    text.remove_prefix(comma + 1);
  }
}

std::string digits_of(const net::socket_address& where) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(where.get(), where.length, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

void append(std::string& list, const std::string& one, bool first) {
  if (!first) list += ',';
  list += one;
}

}  // namespace

lookup::lookup(const wire_parameters& where) {
  std::string names;
  std::string ports;
  bool addresses_given = false;
  for (const auto& [keyword, value] : where) {
    if (keyword == "host") names = value;
    if (keyword == "port") ports = value;
    addresses_given = addresses_given || keyword == "hostaddr";
  }
  const auto all_names = split(names);
  const auto all_ports = split(ports);
  const bool ours = !names.empty() && !addresses_given &&
                    (all_ports.size() == 1 || all_ports.size() == all_names.size());
  for (const auto& each : where) {
    if (!ours || (each.first != "host" && each.first != "port")) rest_.push_back(each);
  }
  if (!ours) return;
  for (std::size_t i = 0; i < all_names.size(); ++i) {
    host one{.name = all_names[i],
             .port = all_ports.size() == 1 ? all_ports.front() : all_ports[i],
             .question = nullptr,
             .addresses = {}};
    // A path is a unix socket, and so is a name that begins with @.
    if (one.name.empty() || one.name.front() == '/' || one.name.front() == '@') {
      one.addresses = {""};
    } else {
      one.question = std::make_unique<net::resolution>(one.name, 0);
    }
    hosts_.push_back(std::move(one));
  }
}

std::optional<base::result<wire_parameters>> lookup::poll() {
  if (hosts_.empty()) return rest_;
  for (host& each : hosts_) {
    if (!each.question) continue;
    auto answer = each.question->poll();
    if (!answer) return std::nullopt;
    each.question.reset();
    if (!*answer) {
      why_ = answer->error().detail;
      continue;
    }
    for (const net::socket_address& found : **answer) {
      std::string digits = digits_of(found);
      if (!digits.empty() && each.addresses.size() < most_addresses) {
        each.addresses.push_back(std::move(digits));
      }
    }
  }
  std::string names;
  std::string addresses;
  std::string ports;
  bool first = true;
  for (const host& each : hosts_) {
    for (const std::string& one : each.addresses) {
      append(names, each.name, first);
      append(addresses, one, first);
      append(ports, each.port, first);
      first = false;
    }
  }
  if (first) return base::fail(errc::unavailable, why_);
  wire_parameters found = rest_;
  found.emplace_back("host", names);
  if (std::ranges::any_of(addresses, [](char each) { return each != ','; })) {
    found.emplace_back("hostaddr", addresses);
  }
  if (std::ranges::any_of(ports, [](char each) { return each != ','; })) {
    found.emplace_back("port", ports);
  }
  return found;
}

namespace {

class libpq_search final : public sql::search {
 public:
  explicit libpq_search(const wire_parameters& where) : lookup_(where) {}
  [[nodiscard]] std::optional<base::result<std::unique_ptr<sql::wire>>> poll() override {
    auto found = lookup_.poll();
    if (!found) return std::nullopt;
    if (!*found) return base::result<std::unique_ptr<sql::wire>>(tl::unexpected(found->error()));
    return base::result<std::unique_ptr<sql::wire>>(std::make_unique<wire>(**found));
  }

 private:
  lookup lookup_;
};

}  // namespace

std::unique_ptr<sql::search> search_for(const wire_parameters& where) {
  return std::make_unique<libpq_search>(where);
}

}  // namespace sallyport::backends::postgres
