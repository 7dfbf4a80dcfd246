#include "results/error_object_json.hpp"

#include "metrics/base/strict_json.hpp"

namespace heteroperf {

nlohmann::ordered_json error_object(const Error& error) {
  Json hints = Json::array();
  Json details = Json::array();
  for (const Problem& problem : error.problems()) {
    if (!problem.suggestion.empty()) hints.push_back(problem.suggestion);
    details.push_back(
        {{"problem", problem.problem}, {"why", problem.why}, {"suggestion", problem.suggestion}});
  }
  return {{"kind", to_string(error.kind())},
          {"message", error.what()},
          {"hints", hints},
          {"details", details}};
}

}  // namespace heteroperf
