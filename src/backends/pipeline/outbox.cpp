#include "backends/pipeline/outbox.hpp"

#include "net/stream.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sallyport::backends::pipeline {
namespace {

// Written bytes are cut off the front from here on.
constexpr std::size_t worth_cutting = 64UL * 1024;
// What one TLS record holds: an unfinished write may have sent so much.
constexpr std::uint64_t largest_record = 16UL * 1024;

}  // namespace

void outbox::flush(link& over) {
  if (broken_) return;
  while (done_ < bytes_.size()) {
    net::stream& stream = over.stream();
    net::transfer step = stream.write_some(std::string_view(bytes_).substr(done_));
    if (step.what == net::transfer::outcome::moved) {
      done_ += step.bytes;
      written_ += step.bytes;
      may_have_left_ = std::max(may_have_left_, written_);
      continue;
    }
    if (stream.encrypted()) may_have_left_ = written_ + largest_record;
    if (step.what == net::transfer::outcome::again) {
      if (!blocked_) over.watch_output(true);
      blocked_ = true;
      if (done_ >= worth_cutting) bytes_.erase(0, std::exchange(done_, 0));
      return;
    }
    break_off(over,
              step.what == net::transfer::outcome::failed
                  ? std::move(step.why)
                  : base::failure{make_error_code(errc::unavailable), "it closed the connection"});
    return;
  }
  bytes_.clear();
  done_ = 0;
  if (blocked_) over.watch_output(false);
  blocked_ = false;
}

void outbox::break_off(link& over, base::failure why) {
  broken_ = std::move(why);
  over.alarm(lease_clock::now());
}

void outbox::forget() {
  bytes_.clear();
  done_ = 0;
  written_ = 0;
  may_have_left_ = 0;
  blocked_ = false;
  broken_.reset();
}

}  // namespace sallyport::backends::pipeline
