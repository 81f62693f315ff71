#pragma once

#include "base/result.hpp"

#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_st;

namespace sallyport::net {

/// How a stream is encrypted and whom it trusts.
struct tls_settings {
  bool on = false;
  /// False: encrypted, but anybody may be at the other end. For tests.
  bool verify = true;
  std::string ca_file = {};           ///< PEM; empty: the system's store
  std::string certificate_file = {};  ///< PEM with the chain, our own; empty: none
  std::string key_file = {};          ///< PEM; empty: in certificate_file
  /// The name or address that the server's certificate must show; empty: the endpoint's host
  std::string server_name = {};

  friend bool operator==(const tls_settings&, const tls_settings&) = default;
};

/// What all TLS streams to one store have in common: trust, our certificate, the protocol versions
/// (1.2 and later).
/// Thread safety: const members.
class tls_context {
 public:
  /// Reads the files. The failure names the file and OpenSSL's reason.
  static base::result<std::shared_ptr<const tls_context>> make(const tls_settings& settings);

  explicit tls_context(ssl_ctx_st* owned, bool verify) noexcept
      : context_(owned), verify_(verify) {}
  ~tls_context();
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;

  /// One connection over this socket, as the client; the certificate will be checked against
  /// `server_name`, a host name or an IP address.
  [[nodiscard]] base::result<ssl_st*> make_session(int socket,
                                                   const std::string& server_name) const;

 private:
  ssl_ctx_st* context_;
  bool verify_;
};

/// Why the last call on this session failed: what is wrong with the certificate, the peer's alert,
/// the system's error. EKEYREJECTED: one side does not accept the other, which waiting does not
/// mend. Takes OpenSSL's queue of errors of this thread.
[[nodiscard]] base::failure tls_failure(const ssl_st* session);

}  // namespace sallyport::net
