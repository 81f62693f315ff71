#include "net/resolution.hpp"

#include "base/mutex.hpp"
#include "net/failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <utility>

// Weak: defined only in a program that runs under the thread sanitizer.
extern "C" void __tsan_init() __attribute__((weak));  // NOLINT(bugprone-*,readability-*)

namespace sallyport::net {

struct resolution::question {
  question(const std::string& asked_host, std::uint16_t port)
      : host(asked_host), service(std::to_string(port)) {
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
    request.ar_name = host.c_str();
    request.ar_service = service.c_str();
    request.ar_request = &hints;
  }
  ~question() {
    if (request.ar_result != nullptr) ::freeaddrinfo(request.ar_result);
  }
  question(const question&) = delete;
  question& operator=(const question&) = delete;

  const std::string host;
  const std::string service;
  addrinfo hints{};
  gaicb request{};
};

namespace {

std::vector<socket_address> addresses_in(const addrinfo* list) {
  std::vector<socket_address> all;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    if (each->ai_addrlen > sizeof(sockaddr_storage)) continue;
    socket_address one;
    std::memcpy(&one.storage, each->ai_addr, each->ai_addrlen);
    one.length = each->ai_addrlen;
    all.push_back(one);
  }
  return all;
}

tl::unexpected<base::failure> not_found(const std::string& host, int error) {
  const std::string reason =
      error == EAI_SYSTEM ? std::generic_category().message(errno) : ::gai_strerror(error);
  return base::fail(std::error_code(EHOSTUNREACH, std::generic_category()),
                    "cannot find the host '" + host + "': " + reason);
}

/// Questions that nobody waits for any more, but which the C library still writes to. Never
/// destroyed: its threads may outlive our static objects.
template <class Question>
struct abandoned_questions {
  base::mutex mutex;
  std::vector<std::unique_ptr<Question>> list SALLYPORT_GUARDED_BY(mutex);

  static abandoned_questions& instance() {
    static auto* const all = new abandoned_questions;
    return *all;
  }
};

}  // namespace

std::string socket_address::describe() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(get(), length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const std::string name =
      family() == AF_INET6 ? "[" + std::string(host.data()) + "]" : std::string(host.data());
  return name + ":" + port.data();
}

resolution::resolution(const std::string& host, std::uint16_t port) {
  sweep_abandoned();
  auto fresh = std::make_unique<question>(host, port);
  addrinfo digits = fresh->hints;
  digits.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(fresh->host.c_str(), fresh->service.c_str(), &digits, &found) == 0) {
    known_.emplace(addresses_in(found));
    ::freeaddrinfo(found);
    return;
  }
  // Threads that the C library starts for itself are unknown to the thread sanitizer, and crash in
  // it. A program under that tool waits for names instead.
  if (&__tsan_init != nullptr) {
    const int error =
        ::getaddrinfo(fresh->host.c_str(), fresh->service.c_str(), &fresh->hints, &found);
    if (error != 0) {
      known_.emplace(not_found(host, error));
      return;
    }
    known_.emplace(addresses_in(found));
    ::freeaddrinfo(found);
    return;
  }
  std::array<gaicb*, 1> list{&fresh->request};
  const int error = ::getaddrinfo_a(GAI_NOWAIT, list.data(), 1, nullptr);
  if (error != 0) {
    known_.emplace(not_found(host, error));
    return;
  }
  asked_ = std::move(fresh);
}

resolution::~resolution() {
  if (!asked_) return;
  if (::gai_cancel(&asked_->request) != EAI_NOTCANCELED) return;
  auto& abandoned = abandoned_questions<question>::instance();
  const base::mutex_lock lock(abandoned.mutex);
  abandoned.list.push_back(std::move(asked_));
}

std::optional<base::result<std::vector<socket_address>>> resolution::poll() {
  if (!asked_) return known_;
  const int error = ::gai_error(&asked_->request);
  // The answer is written before the C library has let go of the question.
  if (error == EAI_INPROGRESS || ::gai_cancel(&asked_->request) != EAI_ALLDONE) return std::nullopt;
  if (error == 0) {
    known_.emplace(addresses_in(asked_->request.ar_result));
  } else {
    known_.emplace(not_found(asked_->host, error));
  }
  asked_.reset();
  return known_;
}

std::size_t resolution::sweep_abandoned() {
  auto& abandoned = abandoned_questions<question>::instance();
  const base::mutex_lock lock(abandoned.mutex);
  const auto done = std::remove_if(
      abandoned.list.begin(), abandoned.list.end(),
      [](const auto& each) { return ::gai_cancel(&each->request) != EAI_NOTCANCELED; });
  abandoned.list.erase(done, abandoned.list.end());
  return abandoned.list.size();
}

}  // namespace sallyport::net
