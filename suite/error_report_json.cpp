#include "suite/error_report_json.hpp"

#include <nlohmann/json.hpp>

namespace heteroperf {

std::string error_report_text(const Error& error) {
  using Json = nlohmann::ordered_json;
  Json hints = Json::array();
  Json details = Json::array();
  for (const Problem& problem : error.problems()) {
    if (!problem.suggestion.empty()) hints.push_back(problem.suggestion);
    details.push_back(
        {{"problem", problem.problem}, {"why", problem.why}, {"suggestion", problem.suggestion}});
  }
  const Json report{{"error",
                     {{"kind", to_string(error.kind())},
                      {"message", error.what()},
                      {"hints", hints},
                      {"details", details}}}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heteroperf
