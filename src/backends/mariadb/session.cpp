#include "backends/mariadb/session.hpp"

#include "backends/mariadb/answers.hpp"
#include "backends/mariadb/wire.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace sallyport::backends::mariadb {

using backend_api::renew_request;

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto engine = net::pump::make();
  if (!engine) return tl::unexpected(engine.error());
  auto attention = backend_api::hearing::make_attention((*engine)->descriptor_number());
  if (!attention) return tl::unexpected(attention.error());
  auto made = std::make_shared<session>(std::move(*where), request, std::move(*engine),
                                        std::move(*attention));
  // Each attempt tries the next address of the host.
  auto find = [where = made->address_, label = made->speech_.owner().label,
               turn = std::size_t{0}]() mutable { return search_for(where, label, turn++); };
  made->connect({.find = std::move(find),
                 .worth_repeating = &worth_repeating,
                 .description = made->address_.description,
                 .connect_timeout = std::chrono::seconds{made->address_.connect_timeout_s},
                 .max_in_flight = 1},
                connections);
  const auto trouble = made->wait_for_first_connection();
  std::optional<server_facts> facts;
  {
    const base::mutex_lock lock(made->mutex_);
    facts = made->facts_;
  }
  // Wrong passwords and wrong addresses do not get better by waiting.
  if (!facts && trouble && trouble->code == errc::store_refused) {
    made->close();
    return tl::unexpected(*trouble);
  }
  if (facts && !facts->mariadb) {
    base::log(base::log_level::warning, "sallyport: " + made->address_.description +
                                            " is not MariaDB (" + facts->version +
                                            "), and Sallyport was not tested with it");
  }
  made->set_capabilities(capabilities_of(facts));
  return made;
}

session::session(address where, const backend_api::open_request& request,
                 std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention)
    : sql::session(request.listener, std::move(engine), std::move(attention), "mariadb",
                   where.store, "/" + where.database + ":" + where.prefix),
      address_(std::move(where)),
      speech_(address_.prefix, request.owner),
      random_(base::kernel_seed()) {}

void session::renew(std::span<const renew_request> batch) {
  const auto alive = shared_from_this();  // an answer may close the client
  std::array<std::vector<renew_request>, connections> together;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].token_count == 0) {
      together[lane_of(batch[i].holder)].push_back(batch[i]);
    } else {
      renew_together(batch.subspan(i, 1));
    }
  }
  for (const auto& each : together) renew_together(each);
}

base::result<std::optional<std::string>> session::greet(const reply* said, int server_process) {
  // Two connections may be greeted at the same time, and one that broke in the middle is forgotten.
  if (said == nullptr && greetings_.size() >= 2 * connections) greetings_.clear();
  auto& one =
      said == nullptr
          ? greetings_.insert_or_assign(server_process, std::make_unique<greeting>(address_))
                .first->second
          : greetings_[server_process];
  if (!one) return base::fail(errc::unavailable, "it was greeted too often at the same time");
  auto next = one->next(said);
  if (next && *next) return next;
  if (next) {
    {
      const base::mutex_lock lock(mutex_);
      facts_ = one->facts();
    }
    if (auto named = greeted(one->facts().store); !named) next = tl::unexpected(named.error());
  }
  greetings_.erase(server_process);
  return next;
}

base::failure session::meaning_of(const reply& error) const { return failure_of(error); }

void session::told_to_wait(const backend_api::holder_id& who, const reply& said,
                           backend_api::waiting& answer) {
  const std::uint64_t before = position_in(said);
  const time_point now = lease_clock::now();
  const base::mutex_lock lock(mutex_);
  const duration unmoved = places_.told(who, before, now);
  answer.ask_again_after =
      std::min(answer.ask_again_after, poll_after(before, unmoved, random_.unit()));
}

void session::waits_no_more(const backend_api::holder_id& who) {
  const base::mutex_lock lock(mutex_);
  places_.forget(who);
}

}  // namespace sallyport::backends::mariadb
