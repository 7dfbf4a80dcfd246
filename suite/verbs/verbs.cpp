// The table of verbs, in the order of --help: what a newcomer needs first comes first. Each maker
// is defined in the file of its verb, so a new verb adds its maker here and nothing else. All of
// them print their answers in the same way.
#include "suite/program/verb.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "results/text/document.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {

std::unique_ptr<Verb> make_align_verb(), make_baseline_verb(), make_comm_verb(),
    make_compare_verb(), make_count_verb(), make_doctor_verb(), make_export_verb(),
    make_gate_verb(), make_help_verb(), make_history_verb(), make_list_verb(), make_ops_verb(),
    make_pack_verb(), make_plan_verb(), make_probe_verb(), make_rank_verb(), make_recover_verb(),
    make_report_verb(), make_resume_verb(), make_run_verb(), make_schedule_verb(), make_show_verb(),
    make_simulate_verb(), make_verify_verb(), make_version_verb();

std::vector<std::unique_ptr<Verb>> all_verbs() {
  std::vector<std::unique_ptr<Verb>> verbs;
  for (auto make : {make_doctor_verb,   make_list_verb,     make_count_verb,  make_plan_verb,
                    make_schedule_verb, make_simulate_verb, make_comm_verb,   make_probe_verb,
                    make_ops_verb,      make_run_verb,      make_resume_verb, make_verify_verb,
                    make_show_verb,     make_recover_verb,  make_align_verb,  make_export_verb,
                    make_pack_verb,     make_compare_verb,  make_gate_verb,   make_baseline_verb,
                    make_history_verb,  make_rank_verb,     make_report_verb, make_help_verb,
                    make_version_verb}) {
    verbs.push_back(make());
  }
  return verbs;
}

int terminal_width() {
  constexpr int least = 40;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= least;
  return known ? size.ws_col : 0;
}

TextStyle style_of(const GlobalOptions& options) {
  return {options.color ? Colour::on : Colour::off, static_cast<std::size_t>(terminal_width())};
}

DocumentForm form_of(const GlobalOptions& options) {
  return options.json ? DocumentForm::json : DocumentForm::console;
}

void print(const Document& document, const GlobalOptions& options) {
  if (options.reader) return options.reader(document);
  fmt::print("{}", document_text(document, form_of(options), style_of(options)));
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    fmt::print(stderr, "heteroperf: warning: {}\n", line_text(warning));
  }
}

/// Messages quote files and commands of users, which may hold broken UTF-8; the document replaces
/// it, since a report of an error may not fail itself.
std::string error_report_text(const Error& error) {
  Document document{"heteroperf-error"};
  add_error(document, error);
  return json_text(document);
}

}  // namespace heteroperf
