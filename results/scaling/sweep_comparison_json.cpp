// This file writes the comparison of two sweeps as JSON. Each point carries the whole document of
// its comparison, with the same keys as a comparison of two runs, so that one reader serves for
// both.

#include <nlohmann/json.hpp>

#include "metrics/base/strict_json.hpp"
#include "results/scaling/sweep_comparison.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {

std::string sweep_comparison_json_text(const SweepComparison& comparison) {
  Json json{{"_format", "heteroperf-sweep-comparison"},
            {"_version", 1},
            {"verdict", to_string(comparison.verdict)},
            {"points", Json::array()},
            {"only_a", Json::array()},
            {"only_b", Json::array()}};
  for (const PointComparison& compared : comparison.points) {
    Json& entry = json["points"].emplace_back(
        Json{{"point", utf8_text(compared.point)}, {"workload", utf8_text(compared.workload)}});
    entry.update(Json::parse(comparison_json_text(compared.comparison)));
  }
  for (const std::string& point : comparison.only_a) json["only_a"].push_back(utf8_text(point));
  for (const std::string& point : comparison.only_b) json["only_b"].push_back(utf8_text(point));
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace), "the comparison");
}

}  // namespace heteroperf
