#pragma once

#include "database.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// The shop: `pieces` of each item in stock, and one row for each piece that was sold. Nothing may be sold
/// twice, and never more than there is.
inline constexpr const char* stock_table = "sallyport_example_stock";
inline constexpr const char* sales_table = "sallyport_example_sales";

struct attempt_to_buy {
  bool sold = false;  ///< false: there is nothing left
  std::uint32_t conflicts = 0;
};

/// Sells one piece of an item.
using seller = std::function<attempt_to_buy(const std::string& item, std::int64_t buyer)>;

struct way {
  const char* name;
  const char* what;
  /// `store`: where the lock is kept, for the way that needs one.
  std::function<seller(database& own, const std::string& store)> open;
};

/// Three that are right, and one that is not.
[[nodiscard]] const std::vector<way>& all_ways();
