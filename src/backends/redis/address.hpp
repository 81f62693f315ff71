#pragma once

#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/tls.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redis {

/// How the server that keeps the truth is found.
enum class topology : std::uint8_t { single, sentinel, cluster, quorum };

/// An address of a Redis store, understood. Holds secrets: never log it.
struct address {
  topology how = topology::single;
  std::vector<net::endpoint>
      servers;  ///< single: one; sentinel: the sentinels; cluster: some nodes; quorum: all
  net::tls_settings tls;
  std::string user;  ///< empty: the default user
  std::string password;
  std::string sentinel_user;
  std::string sentinel_password;
  std::string master;  ///< sentinel: the name of the group
  unsigned database = 0;
  std::string prefix;       ///< stands before every lock's name
  std::string store;        ///< names the token space by hand; empty: the name that the store keeps
  std::string client_name;  ///< empty: sallyport:LABEL
  unsigned replicas = 0;    ///< a grant counts when so many replicas have it
  bool initialise = false;  ///< quorum: the operator says that the nodes are new
  bool force = false;       ///< and that they are to be the members whatever they were before
  std::chrono::milliseconds max_lease{std::chrono::seconds{60}};  ///< quorum: of new nodes
  bool replace = false;         ///< quorum: the operator replaces a member
  std::string old_member;       ///< this one; empty: none is replaced
  std::string new_member;       ///< by this server, which is one of `servers` then
  bool until_it_votes = false;  ///< and opening waits until that one votes
};

/// redis://, rediss://, redis+unix://, redis+sentinel:// and redis+cluster:// with their rediss+
/// twins, redlock:// and redlocks://. Reads password files. Fails with bad_uri, naming what is wrong and what would be
/// right, never a secret.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

/// Database and prefix: which token space of its servers it is.
[[nodiscard]] std::string place_of(const address& where);

}  // namespace sallyport::backends::redis
