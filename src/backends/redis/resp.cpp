#include "backends/redis/resp.hpp"

#include "backends/redis/reply_functions.hpp"
#include "base/check.hpp"
#include <sallyport/error.hpp>

#include <hiredis/read.h>

#include <utility>

namespace sallyport::backends::redis {
namespace {

tl::unexpected<base::failure> malformed(const std::string& why) {
  return base::fail(errc::store_refused, "the server's answer can't be understood: " + why);
}

}  // namespace

/// hiredis parses; these functions make our own values of what it finds. Elements of an array are
/// made in their place, so the pointers that hiredis keeps stay good.
struct reply_builder {
  static reply_reader& owner(const redisReadTask* task) {
    return *static_cast<reply_reader*>(task->privdata);
  }

  /// Null: over a limit.
  static reply* place(const redisReadTask* task, std::size_t bytes) {
    reply_reader& mine = owner(task);
    if (task->parent == nullptr) {
      mine.growing_ = reply{};
      mine.size_ = 0;
      mine.elements_ = 0;
    }
    mine.size_ += bytes;
    if (mine.size_ > reply_reader::max_reply_bytes) return nullptr;
    if (task->parent == nullptr) return &mine.growing_;
    auto* const parent = static_cast<reply*>(task->parent->obj);
    return &parent->elements[static_cast<std::size_t>(task->idx)];
  }

  static void* make_string(const redisReadTask* task, char* bytes, std::size_t count) {
    reply* const made = place(task, count);
    if (made == nullptr) return nullptr;
    made->what = task->type == REDIS_REPLY_ERROR    ? reply::kind::error
                 : task->type == REDIS_REPLY_STATUS ? reply::kind::status
                                                    : reply::kind::text;
    made->text.assign(bytes, count);
    return made;
  }

  /// The type of `count` differs between versions of hiredis.
  template <class Count>
  static void* make_array(const redisReadTask* task, Count count) {
    const auto elements = static_cast<std::size_t>(count);
    reply* const made = place(task, 0);
    reply_reader& mine = owner(task);
    mine.elements_ += elements;
    if (made == nullptr || mine.elements_ > reply_reader::max_elements) return nullptr;
    made->what = reply::kind::array;
    made->elements.resize(elements);
    return made;
  }

  static void* make_integer(const redisReadTask* task, long long number) {
    reply* const made = place(task, 0);
    if (made == nullptr) return nullptr;
    made->what = reply::kind::integer;
    made->integer = number;
    return made;
  }

  static void* make_nil(const redisReadTask* task) { return place(task, 0); }

  static void free_object(void* /*part*/) {}  // it belongs to the growing reply

  static redisReplyObjectFunctions* functions() {
    static redisReplyObjectFunctions all =
        reply_functions<redisReplyObjectFunctions, reply_builder>();
    return &all;
  }
};

void reply_reader::reader_deleter::operator()(redisReader* reader) const noexcept {
  redisReaderFree(reader);
}

reply_reader::reply_reader() : reader_(redisReaderCreateWithFunctions(reply_builder::functions())) {
  SALLYPORT_CHECK(reader_ != nullptr);
  reader_->privdata = this;
  reader_->maxbuf = 256UL * 1024;  // keeps its buffer from one read to the next
}

reply_reader::~reply_reader() = default;

void reply_reader::feed(std::string_view bytes) {
  static_cast<void>(redisReaderFeed(reader_.get(), bytes.data(), bytes.size()));
}

base::result<std::optional<reply>> reply_reader::next() {
  void* whole = nullptr;
  if (redisReaderGetReply(reader_.get(), &whole) != REDIS_OK) {
    if (reader_->err == REDIS_ERR_OOM) return malformed("it is too large");
    return malformed(static_cast<const char*>(reader_->errstr));
  }
  if (whole == nullptr) {
    if (reader_->len - reader_->pos > max_reply_bytes) return malformed("it is too large");
    return std::optional<reply>{};
  }
  return std::optional<reply>{std::move(growing_)};
}

}  // namespace sallyport::backends::redis
