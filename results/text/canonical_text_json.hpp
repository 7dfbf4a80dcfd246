#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heteroperf {

/// As json_compact() and json_indented() of the document's own text, but without writing and
/// reading that text first, which large records would notice. Reals that are not finite become
/// null.
std::string json_compact(const nlohmann::ordered_json& document);
std::string json_indented(const nlohmann::ordered_json& document);

}  // namespace heteroperf
