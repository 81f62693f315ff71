#include "tests/kit/certificates.hpp"

#include "tests/kit/child_process.hpp"
#include "tests/kit/redis_server.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sallyport::kit {
namespace {

class Certificates : public testing::Test {
 protected:
  /// Whether redis-cli, somebody else's TLS client, gets an answer.
  bool pings(const redis_server& server, const std::filesystem::path& trusted,
             const certificate_files* own) {
    child_options options{.program = "redis-cli",
                          .called_as = {},
                          .arguments = {"-h", "127.0.0.1", "-p", std::to_string(server.tls_port()),
                                        "--tls", "--cacert", trusted.string()},
                          .environment = {},
                          .folder = folder_.path(),
                          .log = folder_.path() / "cli.log",
                          .run_as = {}};
    if (own != nullptr) {
      options.arguments.insert(options.arguments.end(),
                               {"--cert", own->certificate.string(), "--key", own->key.string()});
    }
    options.arguments.emplace_back("PING");
    child_process cli{std::move(options)};
    return cli.wait_for_end() == 0 && cli.log_tail().ends_with("PONG\n");
  }
  /// What `openssl verify` says about a certificate for a host.
  bool verifies(const std::filesystem::path& trusted, const certificate_files& files,
                const std::string& host) {
    child_process openssl{{.program = "openssl",
                           .called_as = {},
                           .arguments = {"verify", "-CAfile", trusted.string(), "-verify_hostname",
                                         host, files.certificate.string()},
                           .environment = {},
                           .folder = folder_.path(),
                           .log = folder_.path() / "openssl.log",
                           .run_as = {}}};
    return openssl.wait_for_end() == 0;
  }

  temporary_folder folder_;
  certificates made_;
};

TEST_F(Certificates, SayWhoTheyAreFor) {
  EXPECT_TRUE(verifies(made_.authority, made_.server, "localhost"));
  EXPECT_FALSE(verifies(made_.authority, made_.server, "wrong.example"));
  EXPECT_TRUE(verifies(made_.authority, made_.wrong_host, "wrong.example"));
  EXPECT_FALSE(verifies(made_.authority, made_.wrong_host, "localhost"));
  EXPECT_FALSE(verifies(made_.authority, made_.expired, "localhost"));
  EXPECT_FALSE(verifies(made_.authority, made_.other_server, "localhost"));
  EXPECT_TRUE(verifies(made_.other_authority, made_.other_server, "localhost"));
  EXPECT_FALSE(verifies(made_.other_authority, made_.other_wrong_host, "localhost"));
}

TEST_F(Certificates, AreTakenByAServer) {
  const redis_server server{{.tls = redis_tls{.certificate = made_.server.certificate,
                                              .key = made_.server.key,
                                              .authority = made_.authority}}};

  EXPECT_TRUE(pings(server, made_.authority, nullptr));
  EXPECT_FALSE(pings(server, made_.other_authority, nullptr));
  EXPECT_TRUE(server.command({"PING"}).text == "PONG");
}

TEST_F(Certificates, AreAskedOfClients) {
  const redis_server server{{.tls = redis_tls{.certificate = made_.server.certificate,
                                              .key = made_.server.key,
                                              .authority = made_.authority,
                                              .clients = redis_client_certificates::required}}};

  EXPECT_TRUE(pings(server, made_.authority, &made_.client));
  EXPECT_FALSE(pings(server, made_.authority, nullptr));
  EXPECT_FALSE(pings(server, made_.authority, &made_.other_client));
}

}  // namespace
}  // namespace sallyport::kit
