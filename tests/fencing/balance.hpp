#pragma once

#include <sallyport/fence_pass.hpp>

#include <memory>
#include <string>
#include <vector>

namespace sallyport::fencing {

/// A number in some resource, which holders of a lock read, and write back changed. Each process opens it
/// for itself.
/// Thread safety: none.
class balance {
 public:
  balance() = default;
  balance(const balance&) = delete;
  balance& operator=(const balance&) = delete;
  virtual ~balance() = default;

  /// Puts 100 there, and whatever the gate needs. With `guarded` false, no gate is put up that
  /// would hold by itself (triggers).
  virtual void prepare(bool guarded) = 0;
  [[nodiscard]] virtual int read() = 0;
  /// Writes past every gate.
  virtual void write(int value) = 0;
  /// Writes through the gate. True: it was let through; false: refused as stale. Anything else is thrown.
  [[nodiscard]] virtual bool write_guarded(const fence::pass& shown, int value) = 0;
};

/// The kinds that open_balance knows: "file", "redis", "etcd", "postgres_gate", "postgres_row",
/// "postgres_trigger", and the same three of "mariadb".
/// `where`: a folder, a port, or for PostgreSQL an address.
[[nodiscard]] std::unique_ptr<balance> open_balance(const std::string& kind,
                                                    const std::string& where);

}  // namespace sallyport::fencing
