#pragma once

#include "tests/kit/temporary_folder.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::kit {

/// A certificate and its key, as PEM files.
struct certificate_files {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

struct certificate_options {
  std::string common_name;
  std::vector<std::string> alternative_names = {};  // "DNS:localhost", "IP:127.0.0.1"
  bool expired = false;                             // ended yesterday
};

/// Signs certificates (EC P-256, valid for a day) and writes them to a folder.
/// Thread safety: none.
class certificate_authority {
 public:
  certificate_authority(std::filesystem::path folder, const std::string& name);
  certificate_authority(const certificate_authority&) = delete;
  certificate_authority& operator=(const certificate_authority&) = delete;
  ~certificate_authority();

  /// Its own certificate, for those who shall trust it.
  [[nodiscard]] const std::filesystem::path& certificate() const noexcept { return certificate_; }
  /// `file` is the stem of the two files.
  certificate_files issue(const std::string& file, const certificate_options& options);

 private:
  struct keys;

  std::filesystem::path folder_;
  std::filesystem::path certificate_;
  std::unique_ptr<keys> keys_;
};

/// What tests of TLS need, in a folder that is removed with the object.
class certificates {
 public:
  certificates();

  /// Who signed `server`, `client`, `wrong_host` and `expired`.
  std::filesystem::path authority;
  certificate_files server;      // localhost and 127.0.0.1
  certificate_files client;      // CN sallyport-client
  certificate_files wrong_host;  // wrong.example only
  certificate_files expired;     // localhost and 127.0.0.1, but too late

  /// Nobody's friend: its certificate for localhost is good but for who signed it.
  std::filesystem::path other_authority;
  certificate_files other_server;      // localhost and 127.0.0.1
  certificate_files other_wrong_host;  // wrong.example only
  certificate_files other_client;

 private:
  temporary_folder folder_{"tls"};
};

}  // namespace sallyport::kit
