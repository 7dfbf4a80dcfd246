#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heteroperf {

/// A detail of an item: a text, a count or a measure.
using ListValue = std::variant<std::string, std::uint64_t, double>;

/// One thing `list` names. Details are shown by --json and by --details.
struct ListItem {
  std::string name, summary;
  std::vector<std::pair<std::string, ListValue>> details;
};

/// Lists the ruleset, in the order in which a record lists its reasons; the first detail is the
/// severity.
std::vector<ListItem> list_rules();

/// {"items":[{"name","summary",…details}]}
std::string listing_json_text(const std::vector<ListItem>& items);

}  // namespace heteroperf
