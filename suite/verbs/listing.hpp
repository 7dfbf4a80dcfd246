#pragma once

#include <utility>
#include <vector>

#include "results/text/document.hpp"

namespace heteroperf {

/// Things with a name, a summary and further columns, which people see with --details alone.
inline Table items_with(const std::vector<TableColumn>& details) {
  Table items{"items", "", {{"name", "name", Unit::none}, {"summary", "summary", Unit::none}}};
  items.columns.insert(items.columns.end(), details.begin(), details.end());
  items.audience = Audience::programs;
  return items;
}
/// The same without further columns.
inline Table items_of(std::vector<std::pair<std::string, std::string>> summaries) {
  Table items = items_with({});
  for (auto& [name, summary] : summaries) items.add({std::move(name), std::move(summary)});
  return items;
}

/// Lists the ruleset, in the order in which a record lists its reasons; the first detail is the
/// severity.
Table list_rules();

/// Details make a long list; they are shown where they are asked for.
enum class Details { shown, left_out };
/// The document of `list` and of the topics of `help`.
Document listing_document(const Table& items, Details details);

}  // namespace heteroperf
