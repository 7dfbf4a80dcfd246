#include <nlohmann/json.hpp>

#include "suite/verbs/doctor_report.hpp"

namespace heteroperf {

std::string doctor_json_text(const DoctorReport& report) {
  using Json = nlohmann::ordered_json;
  Json checks = Json::array();
  for (const DoctorCheck& check : report.checks) {
    checks.push_back({{"name", check.name},
                      {"status", to_string(check.status)},
                      {"found", check.found},
                      {"need", check.need},
                      {"hint", check.hint}});
  }
  Json backends = Json::object();
  for (const auto& [name, status] : report.backends) {
    Json one{{"built", status.built}, {"usable", status.usable}, {"version", status.version}};
    if (!status.reason.empty()) one["reason"] = status.reason;
    backends[name] = std::move(one);
  }
  return Json{{"_format", "heteroperf-doctor"},
              {"_version", 1},
              {"checks", checks},
              {"backends", backends}}
             .dump(2) +
         "\n";
}

}  // namespace heteroperf
