#include "suite/verbs/export_json.hpp"

#include <nlohmann/json.hpp>

namespace heteroperf {

std::string export_json_text(const std::string& format, const std::string& text) {
  const nlohmann::ordered_json document = {{"format", format}, {"text", text}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heteroperf
