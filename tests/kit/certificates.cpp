#include "tests/kit/certificates.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <cstdio>
#include <utility>

namespace sallyport::kit {

namespace {

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using key_pointer = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;
using x509_pointer = std::unique_ptr<X509, freed_by<X509_free>>;
using extension_pointer = std::unique_ptr<X509_EXTENSION, freed_by<X509_EXTENSION_free>>;
using file_pointer = std::unique_ptr<std::FILE, freed_by<std::fclose>>;

constexpr long day = 24 * 60 * 60;

void require(bool done, const char* what) {
  if (!done) throw kit_error(std::string{"OpenSSL could not make "} + what);
}

file_pointer open_file(const std::filesystem::path& path) {
  file_pointer file{std::fopen(path.c_str(), "we")};
  if (!file) throw kit_error("cannot write " + path.string());
  return file;
}

void write_certificate(const std::filesystem::path& path, X509& certificate) {
  require(PEM_write_X509(open_file(path).get(), &certificate) == 1, "a certificate's file");
}

void write_key(const std::filesystem::path& path, EVP_PKEY& key) {
  require(
      PEM_write_PrivateKey(open_file(path).get(), &key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
      "a key's file");
}

void add_extension(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const extension_pointer extension{X509V3_EXT_nconf_nid(nullptr, &context, kind, value.c_str())};
  require(extension && X509_add_ext(&certificate, extension.get(), -1) == 1, value.c_str());
}

key_pointer make_key() {
  key_pointer key{EVP_EC_gen("P-256")};
  require(key != nullptr, "a key");
  return key;
}

/// Everything but issuer, extensions and signature.
x509_pointer make_body(const std::string& common_name, EVP_PKEY& key, bool expired) {
  x509_pointer certificate{X509_new()};
  require(certificate != nullptr, "a certificate");
  std::uint32_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "a number");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial + std::uint64_t{1});
  X509_set_version(certificate.get(), X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), expired ? -2 * day : -day);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), expired ? -day : day);
  X509_set_pubkey(certificate.get(), &key);
  require(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>(common_name.c_str()),
                                     -1, -1, 0) == 1,
          "a name");
  return certificate;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
  return all;
}

}  // namespace

struct certificate_authority::keys {
  key_pointer key;
  x509_pointer certificate;
};

certificate_authority::certificate_authority(std::filesystem::path folder, const std::string& name)
    : folder_(std::move(folder)),
      certificate_(folder_ / (name + ".pem")),
      keys_(std::make_unique<keys>()) {
  keys_->key = make_key();
  keys_->certificate = make_body(name, *keys_->key, false);
  X509& own = *keys_->certificate;
  X509_set_issuer_name(&own, X509_get_subject_name(&own));
  add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(own, own, NID_subject_key_identifier, "hash");
  require(X509_sign(&own, keys_->key.get(), EVP_sha256()) > 0, "a signature");
  write_certificate(certificate_, own);
}

certificate_authority::~certificate_authority() = default;

certificate_files certificate_authority::issue(const std::string& file,
                                               const certificate_options& options) {
  const key_pointer key = make_key();
  const x509_pointer made = make_body(options.common_name, *key, options.expired);
  X509& issuer = *keys_->certificate;
  X509_set_issuer_name(made.get(), X509_get_subject_name(&issuer));
  add_extension(*made, issuer, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(*made, issuer, NID_key_usage, "critical,digitalSignature");
  add_extension(*made, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(*made, issuer, NID_authority_key_identifier, "keyid:always");
  if (!options.alternative_names.empty()) {
    add_extension(*made, issuer, NID_subject_alt_name, joined(options.alternative_names));
  }
  require(X509_sign(made.get(), keys_->key.get(), EVP_sha256()) > 0, "a signature");

  certificate_files files{.certificate = folder_ / (file + ".pem"),
                          .key = folder_ / (file + ".key")};
  write_certificate(files.certificate, *made);
  write_key(files.key, *key);
  return files;
}

certificates::certificates() {
  const std::vector<std::string> here{"DNS:localhost", "IP:127.0.0.1"};
  const std::vector<std::string> elsewhere{"DNS:wrong.example"};

  certificate_authority ours{folder_.path(), "authority"};
  authority = ours.certificate();
  server = ours.issue("server", {.common_name = "localhost", .alternative_names = here});
  client = ours.issue("client", {.common_name = "sallyport-client"});
  wrong_host =
      ours.issue("wrong-host", {.common_name = "wrong.example", .alternative_names = elsewhere});
  expired = ours.issue("expired",
                       {.common_name = "localhost", .alternative_names = here, .expired = true});

  certificate_authority other{folder_.path(), "other-authority"};
  other_authority = other.certificate();
  other_server =
      other.issue("other-server", {.common_name = "localhost", .alternative_names = here});
  other_wrong_host = other.issue("other-wrong-host",
                                 {.common_name = "wrong.example", .alternative_names = elsewhere});
  other_client = other.issue("other-client", {.common_name = "sallyport-client"});
}

}  // namespace sallyport::kit
