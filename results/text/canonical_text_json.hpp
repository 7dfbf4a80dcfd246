#pragma once

#include <string>

#include "metrics/base/strict_json.hpp"

namespace heteroperf {

/// As json_compact() and json_indented() of the document's own text, but without writing and
/// reading that text first, which large records would notice. Reals that are not finite become
/// null.
std::string json_compact(const Json& document);
std::string json_indented(const Json& document);

/// A list of what `json_of` makes of each element.
template <class Range, class JsonOf>
nlohmann::ordered_json json_list(const Range& range, JsonOf json_of) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& element : range) json.push_back(json_of(element));
  return json;
}

}  // namespace heteroperf
