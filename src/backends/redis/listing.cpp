#include "backends/redis/request_exchange.hpp"
#include "backends/redis/session.hpp"
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace sallyport::backends::redis {

using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;

/// Walks over the keys of all servers, page by page, and asks about every name that may be a lock.
class session::listing final : public std::enable_shared_from_this<listing> {
 public:
  listing(std::shared_ptr<session> home, std::string_view prefix, std::string_view after,
          std::size_t limit, completion<std::vector<lock_info>> done)
      : home_(std::move(home)),
        prefix_(prefix),
        after_(after),
        limit_(limit),
        done_(std::move(done)),
        servers_(home_->router_->all()),
        pattern_(pattern_of(home_->address_.prefix + prefix_)) {}

  void next_page() {
    if (servers_.empty()) return fail(home_->no_server());
    if (server_ == servers_.size()) {
      finish();
      return;
    }
    auto asked = std::make_unique<request_exchange>(*home_, request_exchange::purpose::other, 0);
    asked->via = servers_[server_];
    asked->answer_by = lease_clock::now() + housekeeping_patience;
    asked->command = plain_command({"SCAN", cursor_, "MATCH", pattern_, "COUNT", "500"});
    asked->done = [self = shared_from_this()](base::result<reply> said) {
      self->page_came(std::move(said));
    };
    servers_[server_]->commands().send(std::move(asked));
  }

 private:
  void page_came(base::result<reply> said) {
    if (!said) return fail(std::move(said.error()));
    if (said->is_error()) return fail(failure_of(*said));
    if (said->elements.size() != 2) return next_server();
    cursor_ = said->elements[0].text;
    std::vector<std::string> names;
    for (const reply& key : said->elements[1].elements) {
      const std::string_view name = name_in(key.text, home_->address_.prefix);
      if (name > after_ && lock_name::acceptable(name)) names.emplace_back(name);
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    // One more than there are, for this function itself.
    under_way_ = names.size() + 1;
    for (const std::string& name : names) {
      home_->ask(home_->speech_->who(name, false), home_->speech_->place_of(name).slot(),
                 [self = shared_from_this(), name](base::result<reply> answer) {
                   self->name_came(name, std::move(answer));
                 });
    }
    one_came();
  }

  void name_came(const std::string& name, base::result<reply> said) {
    auto info = said ? who_answer_of(*said, name) : tl::unexpected(std::move(said.error()));
    if (!info) {
      failed_ = std::move(info.error());
    } else if (*info) {
      found_.insert_or_assign(name, std::move(**info));
      if (found_.size() > limit_) found_.erase(std::prev(found_.end()));
    }
    one_came();
  }

  void one_came() {
    if (--under_way_ > 0) return;
    if (failed_) return fail(std::move(*failed_));
    if (cursor_ == "0") return next_server();
    next_page();
  }

  void next_server() {
    ++server_;
    cursor_ = "0";
    next_page();
  }

  void fail(base::failure why) { done_(tl::unexpected(std::move(why))); }

  void finish() {
    std::vector<lock_info> all;
    for (auto& [name, info] : found_) all.push_back(std::move(info));
    done_(std::move(all));
  }

  const std::shared_ptr<session> home_;
  const std::string prefix_;
  const std::string after_;
  const std::size_t limit_;
  const completion<std::vector<lock_info>> done_;
  const std::vector<std::shared_ptr<node>> servers_;
  const std::string pattern_;
  std::size_t server_ = 0;
  std::string cursor_ = "0";
  std::size_t under_way_ = 0;
  std::optional<base::failure> failed_;
  std::map<std::string, lock_info> found_;
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  hearing_.be_heard();
  std::make_shared<listing>(shared_from_this(), prefix, after, limit, std::move(done))->next_page();
}

}  // namespace sallyport::backends::redis
