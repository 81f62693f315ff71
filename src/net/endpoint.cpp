#include "net/endpoint.hpp"

namespace sallyport::net {

std::string endpoint::describe() const {
  if (local()) return "unix:" + path;
  const bool bare_colons = host.find(':') != std::string::npos;
  return (bare_colons ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace sallyport::net
