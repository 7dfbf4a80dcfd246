#include "suite/run/record_glance_json.hpp"

#include <nlohmann/json.hpp>

namespace heteroperf {

std::string validity_class_of(const std::string& document) {
  const auto json = nlohmann::json::parse(document);
  const auto validity = json.find("validity");
  return validity == json.end() ? std::string() : validity->value("class", "");
}

}  // namespace heteroperf
