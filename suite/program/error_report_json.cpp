// Messages quote files and commands of users, which may hold broken UTF-8; it is replaced, since a
// report of an error may not fail itself.
#include "suite/program/error_report_json.hpp"

#include "metrics/base/strict_json.hpp"
#include "results/text/error_object_json.hpp"

namespace heteroperf {

std::string error_report_text(const Error& error) {
  Json report = new_document("heteroperf-error");
  report["error"] = error_object(error);
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heteroperf
