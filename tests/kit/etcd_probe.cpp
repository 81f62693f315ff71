#include "tests/kit/etcd_probe.hpp"

#include "base/descriptor.hpp"
#include "tests/kit/waiting.hpp"

#include <openssl/evp.h>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace sallyport::kit {

namespace {

constexpr time_t answer_seconds = 10;

std::string base64(const std::string& bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                       reinterpret_cast<const unsigned char*>(bytes.data()),
                                       static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(length));
  return out;
}

std::string from_base64(const std::string& text) {
  std::string out(text.size() / 4 * 3 + 1, '\0');
  const int length = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                       reinterpret_cast<const unsigned char*>(text.data()),
                                       static_cast<int>(text.size()));
  if (length < 0) throw kit_error("not base 64: " + text);
  std::size_t padding = 0;
  while (padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  out.resize(static_cast<std::size_t>(length) - padding);
  return out;
}

base::descriptor connect_to(std::uint16_t port) {
  base::descriptor made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval patience{.tv_sec = answer_seconds, .tv_usec = 0};
  ::setsockopt(made.number(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(made.number(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(made.number(), reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    throw kit_error(std::string("cannot connect to etcd: ") + std::strerror(errno));
  }
  return made;
}

/// The body of the answer. The request is one of HTTP 1.0: the end of the connection is its end.
std::string answer_to(std::uint16_t port, const std::string& request) {
  const base::descriptor socket = connect_to(port);
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t count =
        ::send(socket.number(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) throw kit_error("cannot send to etcd");
    sent += static_cast<std::size_t>(count);
  }
  std::string answer;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t count = ::recv(socket.number(), part.data(), part.size(), 0);
    if (count < 0) throw kit_error("etcd does not answer");
    if (count == 0) break;
    answer.append(part.data(), static_cast<std::size_t>(count));
  }
  const std::size_t end = answer.find("\r\n\r\n");
  const bool good = answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200");
  if (!good || end == std::string::npos) throw kit_error("etcd says: " + answer);
  return answer.substr(end + 4);
}

}  // namespace

std::string etcd_probe::post(const std::string& path, const std::string& json) const {
  return answer_to(port_, "POST " + path + " HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: " +
                              std::to_string(json.size()) + "\r\n\r\n" + json);
}

std::string etcd_probe::page(const std::string& path) const {
  return answer_to(port_, "GET " + path + " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
}

std::vector<bool> etcd_probe::commit(const std::string& json) const {
  // The answers within an answer come after its own `succeeded`, which is left out when it is false.
  constexpr std::string_view inner = "\"response_txn\"";
  std::string rest = post("/v3/kv/txn", json);
  std::vector<bool> told;
  for (;;) {
    const std::size_t next = rest.find(inner);
    told.push_back(rest.substr(0, next).find("\"succeeded\":true") != std::string::npos);
    if (next == std::string::npos) return told;
    rest.erase(0, next + inner.size());
  }
}

std::optional<std::string> etcd_probe::get(const std::string& key) const {
  const std::string answer = post("/v3/kv/range", "{\"key\":\"" + base64(key) + "\"}");
  if (answer.find("\"kvs\"") == std::string::npos) return std::nullopt;
  constexpr std::string_view mark = "\"value\":\"";
  const std::size_t at = answer.find(mark);
  if (at == std::string::npos) return "";  // empty ones are left out
  const std::size_t begin = at + mark.size();
  return from_base64(answer.substr(begin, answer.find('"', begin) - begin));
}

void etcd_probe::put(const std::string& key, const std::string& value) const {
  (void)post("/v3/kv/put", "{\"key\":\"" + base64(key) + "\",\"value\":\"" + base64(value) + "\"}");
}

}  // namespace sallyport::kit
