#include <cmath>
#include <nlohmann/json.hpp>

#include "suite/verbs/align_report.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& json, const char* key, double value) {
  if (std::isfinite(value)) json[key] = value;
}

Json acceptance(const Alignment& alignment) {
  Json json{{"rule", AcceptanceRule::text}, {"limit", alignment.rule.limit}};
  put(json, "value", alignment.mean_relative);
  put(json, "max_relative", alignment.max_relative);
  return json;
}

Json steps(const Alignment& alignment) {
  Json list = Json::array();
  for (const AlignedStep& step : alignment.steps) {
    Json& entry = list.emplace_back(Json{{"n", step.n}});
    put(entry, "loss_a", step.loss_a);
    put(entry, "loss_b", step.loss_b);
    put(entry, "relative", step.relative);
    put(entry, "gradient_norm_relative", step.gradient_norm_relative);
  }
  return list;
}

Json parameters(const Alignment& alignment) {
  Json list = Json::array();
  for (const AlignedParameter& one : alignment.parameters) {
    put(list.emplace_back(Json{{"name", one.name}}), "max_relative", one.max_relative);
  }
  return list;
}

}  // namespace

std::string alignment_json_text(const Alignment& alignment) {
  Json json{{"ok", alignment.ok()},      {"a", alignment.run_a},
            {"b", alignment.run_b},      {"acceptance", acceptance(alignment)},
            {"steps", steps(alignment)}, {"gradient_norm", Json::object()}};
  put(json["gradient_norm"], "max_relative", alignment.gradient_norm_max_relative);
  if (alignment.parameter_step) {
    json["parameter_step"] = *alignment.parameter_step;
    json["parameters"] = parameters(alignment);
  } else {
    json["parameters_missing"] = alignment.parameters_missing;
  }
  if (!alignment.warnings.empty()) json["warnings"] = alignment.warnings;
  return json.dump(2) + "\n";
}

}  // namespace heteroperf
