// An error as JSON, for programs that call this one. An error has one or more problems; each has
// its own text, reason and suggestion under `details`, and the suggestions stand once more as
// `hints`, which a caller can show without knowing the details.
#include "results/text/error_object_json.hpp"

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
