#pragma once

#include "backend_api/holder_id.hpp"
#include <sallyport/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::backends::zookeeper {

/// Whose nodes ours look like. All of them are read, whoever wrote them.
enum class dialect : std::uint8_t { curator, kazoo };

/// What a contender wants to be.
enum class form : std::uint8_t { mutex, writer, reader, candidate, permit };

[[nodiscard]] form form_of(lock_kind kind, lock_mode mode) noexcept;
[[nodiscard]] lock_kind kind_of(form what) noexcept;

/// A contender's node, by its name.
struct child {
  std::string name{};
  std::string whose{};  ///< what stands before the marker: the same for all nodes of one contender
  std::int64_t sequence = 0;
  std::optional<lock_kind> kind{};  ///< empty: the dialect does not say
  bool shared = false;
  bool lease = false;  ///< a permit that is taken

  /// The order in which they came.
  friend bool operator<(const child& one, const child& two) noexcept {
    return one.sequence != two.sequence ? one.sequence < two.sequence : one.name < two.name;
  }
};

/// nullopt: no contender of a form that we know.
[[nodiscard]] std::optional<child> read_child(std::string_view name);

/// The folders of a semaphore inside its own.
inline constexpr std::string_view line_folder = "locks";
inline constexpr std::string_view lease_folder = "leases";

/// Which node is which. Two different names never meet.
class layout {
 public:
  struct settings {
    std::string root{};  ///< "/a/b"; empty: the top
    dialect speech = dialect::curator;
    bool names_are_paths = false;
  };

  explicit layout(settings how) : how_(std::move(how)) {}

  [[nodiscard]] dialect speech() const noexcept { return how_.speech; }
  [[nodiscard]] bool names_are_paths() const noexcept { return how_.names_are_paths; }
  /// Where the names are; "/" at the top.
  [[nodiscard]] std::string root() const { return how_.root.empty() ? "/" : how_.root; }

  /// The node whose data is the store's name. With names=path a lock may have its contenders below it;
  /// neither minds.
  [[nodiscard]] std::string store_name_node() const { return how_.root + "/%store"; }
  /// The node whose children contend for a name; empty: no path can be made of the name.
  [[nodiscard]] std::string folder(std::string_view name) const;
  /// The name that a child of root() stands for; nullopt: none.
  [[nodiscard]] static std::optional<std::string> name_of(std::string_view segment);
  /// What a contender's path begins with, in `folder`; the store appends ten digits.
  [[nodiscard]] std::string stem(std::string_view folder, form what, bool lease,
                                 const backend_api::holder_id& whose) const;
  /// child::whose of such a node.
  [[nodiscard]] std::string whose(const backend_api::holder_id& id) const;
  /// The path of a node that takes the place of `instead`, as a reader or (`closed`) as it was.
  [[nodiscard]] static std::string in_place_of(std::string_view folder, const child& instead,
                                               std::string_view whose, bool as_reader);

 private:
  const settings how_;
};

[[nodiscard]] std::string_view parent_of(std::string_view path) noexcept;
[[nodiscard]] std::string_view last_segment(std::string_view path) noexcept;
[[nodiscard]] std::string join(std::string_view folder, std::string_view segment);

}  // namespace sallyport::backends::zookeeper
