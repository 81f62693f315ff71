#pragma once

#include "backends/local/table.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <lmdb.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <variant>

namespace sallyport::backends::local {

/// One LMDB file, opened for one process. LMDB's own locks are off: the store's gate lets one
/// transaction of one process in at a time, readers included, so there are no reader slots that a
/// killed process could leave occupied.
/// Never synced: the page cache outlives every process, and after a power cut the file is made
/// anew. So a commit is a few writes to memory.
/// Thread safety: one thread of one process at a time.
class lmdb_file {
 public:
  /// Begins an empty file of records in one that is open for writing, whatever it held, with room for
  /// `map_bytes`, every block of it allocated. REQUIRES: nobody has it open as records.
  static base::result<std::monostate> begin(int file, std::uint64_t map_bytes);
  /// Makes such a file; all or nothing. REQUIRES: there is none.
  static base::result<std::monostate> make(int folder, const std::string& name, mode_t mode,
                                           std::uint64_t map_bytes);
  /// Fails with store_refused when the file is torn or none of LMDB's.
  static base::result<std::unique_ptr<lmdb_file>> open(int folder, const std::string& name,
                                                       std::uint64_t map_bytes, bool write_map);

  lmdb_file(const lmdb_file&) = delete;
  lmdb_file& operator=(const lmdb_file&) = delete;
  ~lmdb_file();

  [[nodiscard]] MDB_env* environment() const noexcept { return environment_; }
  [[nodiscard]] MDB_dbi records() const noexcept { return records_; }

 private:
  explicit lmdb_file(MDB_env* environment) : environment_(environment) {}

  MDB_env* const environment_;
  MDB_dbi records_ = 0;
};

/// One transaction on it; undone unless committed.
class lmdb_table final : public table {
 public:
  explicit lmdb_table(lmdb_file& file);
  ~lmdb_table() override;

  std::optional<std::string_view> get(std::string_view key) override;
  std::optional<entry> at_or_after(std::string_view key) override;
  std::optional<entry> before(std::string_view key) override;
  void put(std::string_view key, std::initializer_list<std::string_view> parts) override;
  void remove(std::string_view key) override;
  void claim_room() override;
  void fail(base::failure why) override;
  [[nodiscard]] bool failed() const override { return failure_.has_value(); }

  /// The first failure, or what the commit said: then nothing happened.
  base::result<std::monostate> commit();
  /// The failure came of a full map.
  [[nodiscard]] bool out_of_room() const noexcept { return out_of_room_; }
  /// The failure says that the file can no longer be trusted.
  [[nodiscard]] bool file_spoiled() const noexcept { return file_spoiled_; }

 private:
  void fail(int error, const char* doing);
  MDB_cursor* cursor();

  lmdb_file& file_;
  MDB_txn* transaction_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
  std::optional<base::failure> failure_;
  bool out_of_room_ = false;
  bool file_spoiled_ = false;
};

}  // namespace sallyport::backends::local
