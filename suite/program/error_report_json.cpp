// Messages quote files and commands of users, which may hold broken UTF-8; the document replaces
// it, since a report of an error may not fail itself.
#include "suite/program/error_report_json.hpp"

#include "results/text/document.hpp"

namespace heteroperf {

std::string error_report_text(const Error& error) {
  Document document{"heteroperf-error"};
  add_error(document, error);
  return json_text(document);
}

}  // namespace heteroperf
