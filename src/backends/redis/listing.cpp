#include "backends/redis/request_exchange.hpp"
#include "backends/redis/session.hpp"
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::redis {

using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;

/// Asks about some names that share a slot: all in one call, and once more for every further page of a
/// long queue.
class session::inquiry final : public std::enable_shared_from_this<inquiry> {
 public:
  inquiry(std::shared_ptr<session> home, std::vector<std::string> names, bool also_foreign,
          completion<std::vector<lock_info>> done)
      : home_(std::move(home)),
        names_(std::move(names)),
        also_foreign_(also_foreign),
        done_(std::move(done)),
        seen_(names_.size()) {
    for (std::size_t i = 0; i < names_.size(); ++i) seen_[i].info.name = names_[i];
  }

  void begin() { ask(0, names_.size(), first_page); }

 private:
  void ask(std::size_t from, std::size_t count, std::string_view page) {
    const std::span<const std::string> asked = std::span(names_).subspan(from, count);
    home_->ask(home_->speech_->who(asked, also_foreign_, page),
               home_->speech_->place_of(names_[from]).slot(),
               [self = shared_from_this(), from, count](base::result<reply> said) {
                 self->answered(from, count, std::move(said));
               });
  }

  void answered(std::size_t from, std::size_t count, base::result<reply> said) {
    if (!said) return done_(tl::unexpected(std::move(said.error())));
    if (said->is_error()) return done_(tl::unexpected(failure_of(*said)));
    said->elements.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (auto added = add_page(seen_[from + i], said->elements[i]); !added) {
        return done_(tl::unexpected(std::move(added.error())));
      }
    }
    next_page();
  }

  void next_page() {
    const auto longer =
        std::ranges::find_if(seen_, [](const lock_view& each) { return !each.next_page.empty(); });
    if (longer == seen_.end()) return finish();
    // Asked for by its own words, which the answer replaces.
    const std::string page = longer->next_page;
    ask(static_cast<std::size_t>(longer - seen_.begin()), 1, page);
  }

  void finish() {
    std::vector<lock_info> all;
    for (lock_view& each : seen_) {
      if (auto one = std::move(each).found()) all.push_back(std::move(*one));
    }
    done_(std::move(all));
  }

  const std::shared_ptr<session> home_;
  const std::vector<std::string> names_;
  const bool also_foreign_;
  const completion<std::vector<lock_info>> done_;
  std::vector<lock_view> seen_;
};

void session::look_at(std::vector<std::string> names, bool also_foreign,
                      completion<std::vector<lock_info>> done) {
  std::make_shared<inquiry>(shared_from_this(), std::move(names), also_foreign, std::move(done))
      ->begin();
}

/// Walks over the keys of all servers, page by page, and asks about the names that may be locks, many
/// in one call.
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
    auto calls = names_by_call(said->elements[1].elements);
    // One more than there are, for this function itself.
    under_way_ = calls.size() + 1;
    for (std::vector<std::string>& names : calls) {
      home_->look_at(std::move(names), false,
                     [self = shared_from_this()](base::result<std::vector<lock_info>> found) {
                       self->names_came(std::move(found));
                     });
    }
    one_came();
  }

  /// The names among these keys that may be locks, so many together as one call takes; in a cluster the
  /// keys of a call have to share a slot.
  [[nodiscard]] std::vector<std::vector<std::string>> names_by_call(
      const std::vector<reply>& keys) const {
    std::map<std::uint32_t, std::set<std::string>> by_slot;
    for (const reply& key : keys) {
      const std::string_view name = name_in(key.text, home_->address_.prefix);
      if (name <= after_ || !lock_name::acceptable(name)) continue;
      // Who holds it is in the lock's own key, and who waits in its queue.
      if (part_of_lock(key.text, name) == lock_part::other) continue;
      by_slot[home_->speech_->place_of(name).slot()].emplace(name);
    }
    std::vector<std::vector<std::string>> calls;
    for (const auto& [slot, names] : by_slot) {
      for (const std::string& each : names) {
        if (&each == &*names.begin() || calls.back().size() == most_names_asked) {
          calls.emplace_back();
        }
        calls.back().push_back(each);
      }
    }
    return calls;
  }

  void names_came(base::result<std::vector<lock_info>> found) {
    if (!found) {
      failed_ = std::move(found.error());
    } else {
      for (lock_info& each : *found) {
        std::string name = each.name;
        found_.insert_or_assign(std::move(name), std::move(each));
        if (found_.size() > limit_) found_.erase(std::prev(found_.end()));
      }
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
