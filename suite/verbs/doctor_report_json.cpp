#include <nlohmann/json.hpp>

#include "metrics/base/document_kind.hpp"
#include "results/ruleset.hpp"
#include "suite/verbs/doctor_report.hpp"
#include "suite/version.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json backends_json(const Backends& backends) {
  Json json = Json::object();
  for (const auto& [name, status] : backends) {
    Json one{{"built", status.built}, {"usable", status.usable}, {"version", status.version}};
    if (!status.reason.empty()) one["reason"] = status.reason;
    json[name] = std::move(one);
  }
  return json;
}

}  // namespace

std::string doctor_json_text(const DoctorReport& report) {
  Json checks = Json::array();
  for (const DoctorCheck& check : report.checks) {
    checks.push_back({{"name", check.name},
                      {"status", to_string(check.status)},
                      {"found", check.found},
                      {"need", check.need},
                      {"hint", check.hint}});
  }
  return Json{{"_format", "heteroperf-doctor"},
              {"_version", 1},
              {"checks", checks},
              {"backends", backends_json(report.backends)}}
             .dump(2) +
         "\n";
}

std::string version_json_text(const Backends& parts) {
  Json formats = Json::object();
  for (const DocumentKind& kind : document_kinds()) formats[kind.format] = kind.version;
  return Json{{"_format", "heteroperf-version"}, {"_version", 1},
              {"program", "heteroperf"},         {"version", version_text()},
              {"commit", git_commit()},          {"build", build_text()},
              {"ruleset", ruleset_version},      {"parts", backends_json(parts)},
              {"formats", std::move(formats)}}
             .dump(2) +
         "\n";
}

}  // namespace heteroperf
