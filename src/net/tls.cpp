#include "net/tls.hpp"

#include "net/failure.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <sys/socket.h>
#include <utility>

namespace sallyport::net {
namespace {

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE in the user's program.

int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

bool worth_retrying() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int write_socket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t done = ::send(socket_of(bio), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
  if (done < 0 && worth_retrying()) BIO_set_retry_write(bio);
  return static_cast<int>(done);
}

int read_socket(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t done = ::recv(socket_of(bio), bytes, static_cast<std::size_t>(count), 0);
  if (done < 0 && worth_retrying()) BIO_set_retry_read(bio);
  return static_cast<int>(done);
}

long control_socket(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* quiet_socket() {
  // Made once and never freed: streams may live until the very end of the program.
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, write_socket);
    BIO_meth_set_read(made, read_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

std::string last_reason() {
  std::string reason;
  for (unsigned long error = ERR_get_error(); error != 0; error = ERR_get_error()) {
    const char* const text = ERR_reason_error_string(error);
    if (!reason.empty()) continue;
    if (text != nullptr) {
      reason = text;
    } else {
      std::array<char, 256> line{};
      ERR_error_string_n(error, line.data(), line.size());
      reason = line.data();
    }
  }
  return reason.empty() ? "no reason given" : reason;
}

tl::unexpected<base::failure> refused(const std::string& what) {
  return tl::unexpected(protocol_failure("TLS: " + what + ": " + last_reason()));
}

base::failure not_accepted(std::string sentence) {
  return {std::error_code(EKEYREJECTED, std::generic_category()), std::move(sentence)};
}

bool is_address(const std::string& name) {
  in6_addr any{};
  return ::inet_pton(AF_INET, name.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

}  // namespace

tls_context::~tls_context() { SSL_CTX_free(context_); }

base::result<std::shared_ptr<const tls_context>> tls_context::make(const tls_settings& settings) {
  ERR_clear_error();
  SSL_CTX* const raw = SSL_CTX_new(TLS_client_method());
  if (raw == nullptr) return refused("cannot make a context");
  auto context = std::make_shared<const tls_context>(raw, settings.verify);
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
  // A record is then read with one call instead of two: header and body.
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_verify(raw, settings.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (settings.ca_file.empty()) {
    if (settings.verify && SSL_CTX_set_default_verify_paths(raw) != 1) {
      return refused("cannot use the system's certificates");
    }
  } else if (SSL_CTX_load_verify_file(raw, settings.ca_file.c_str()) != 1) {
    return refused("cannot read the CA file '" + settings.ca_file + "'");
  }
  if (!settings.certificate_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(raw, settings.certificate_file.c_str()) != 1) {
      return refused("cannot read the certificate '" + settings.certificate_file + "'");
    }
    const std::string& key =
        settings.key_file.empty() ? settings.certificate_file : settings.key_file;
    if (SSL_CTX_use_PrivateKey_file(raw, key.c_str(), SSL_FILETYPE_PEM) != 1) {
      return refused("cannot read the key '" + key + "', or it is not the certificate's");
    }
  }
  return context;
}

base::result<ssl_st*> tls_context::make_session(int socket, const std::string& server_name) const {
  ERR_clear_error();
  if (verify_ && server_name.empty()) {
    return tl::unexpected(
        protocol_failure("TLS: no name to check the server's certificate against"));
  }
  SSL* const session = SSL_new(context_);
  BIO_METHOD* const method = quiet_socket();
  BIO* const bio = session == nullptr || method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) {
    SSL_free(session);
    return refused("cannot make a session");
  }
  // A number as a pointer: OpenSSL's way. NOLINTNEXTLINE(performance-no-int-to-ptr)
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);
  SSL_set_connect_state(session);
  bool named = true;
  if (is_address(server_name)) {
    // Compared with the certificate's IP entries only: an address in the place of a name is no proof.
    if (verify_) {
      named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), server_name.c_str()) == 1;
    }
  } else if (!server_name.empty()) {
    named = SSL_set_tlsext_host_name(session, server_name.c_str()) == 1;
    SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (verify_) named = named && SSL_set1_host(session, server_name.c_str()) == 1;
  }
  if (!named) {
    SSL_free(session);
    return refused("cannot use the server name '" + server_name + "'");
  }
  return session;
}

base::failure tls_failure(const ssl_st* session) {
  const int system_error = errno;
  const long verdict = SSL_get_verify_result(session);
  const unsigned long first = ERR_peek_error();
  if (verdict != X509_V_OK && first != 0 &&
      ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    ERR_clear_error();
    return not_accepted(std::string("the server's certificate was refused: ") +
                        X509_verify_cert_error_string(verdict));
  }
  if (first == 0) return system_failure(system_error == 0 ? EPROTO : system_error, "TLS");
  const int reason = ERR_GET_REASON(first);
  const bool alert = reason >= SSL_AD_REASON_OFFSET && reason != SSL_R_TLSV1_ALERT_INTERNAL_ERROR;
  std::string sentence = "TLS: " + last_reason();
  return alert ? not_accepted(std::move(sentence)) : protocol_failure(std::move(sentence));
}

}  // namespace sallyport::net
