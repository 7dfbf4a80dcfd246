#include "metrics/base/document_kind.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace heteroperf {
namespace {

constexpr const char* every_run = "Every run's folder has one.";

constexpr DocumentKind kinds[] = {
    {"heteroperf-record", 1, "a run's record", every_run},
    {"heteroperf-journal", 1, "a run's journal", every_run},
    {"heteroperf-config", 1, "a run's configuration", every_run},
    {"heteroperf-plan", 1, "a plan",
     "`heteroperf plan -o FILE` writes one, and the folder of a run of a fixed model has one."},
    {"heteroperf-search-plan", 1, "the plan of a search", ""},
    {"heteroperf-sailor-plan", 1, "a plan of Sailor's",
     "`heteroperf plan --import sailor:FOLDER -o FILE` writes one."},
    {"heteroperf-suite", 1, "a suite's record", "`heteroperf run` without a workload writes one."},
    {"heteroperf-sweep", 1, "a sweep's index", "`heteroperf run --sweep` writes one."},
    {"heteroperf-tuning", 1, "the report of a tuning", "`heteroperf run --tune S` writes one."},
    {"heteroperf-checkpoint", 1, "a checkpoint's index",
     "`heteroperf run --set checkpoint.at_end=true` writes one."},
    {"heteroperf-cluster", 1, "a cluster",
     "`heteroperf probe -o FILE` writes one, and `heteroperf list devices` names shipped ones."},
    {"heteroperf-efficiency", 1, "an efficiency matrix", ""},
    {"heteroperf-graph", 1, "a model's graph",
     "`heteroperf list models` names those without a file."},
    {"heteroperf-schedule", 1, "a schedule",
     "`heteroperf schedule NAME --format json` writes one."},
    {"heteroperf-pipeline-graph", 1, "a pipeline graph", ""},
    {"heteroperf-costs", 1, "a file of costs", ""},
    {"heteroperf-network", 1, "a network", ""},
    {"heteroperf-trace", 1, "a trace",
     "`heteroperf run --trace FILE` and `heteroperf simulate --trace FILE` write one."},
    {"heteroperf-count", 1, "a count of operations", ""},
    {"heteroperf-comm", 1, "a measurement of collectives", ""},
    {"heteroperf-doctor", 1, "a report of `doctor`", ""},
    {"heteroperf-operators", 1, "a report of `ops`", ""},
    {"heteroperf-chip", 1, "an emulated chip", "`heteroperf list devices` names shipped ones."},
    {"heteroperf-comparison", 1, "a comparison of runs", ""},
    {"heteroperf-sweep-comparison", 1, "a comparison of sweeps", ""},
    {"heteroperf-hetero-ratio", 1, "a comparison of a mix with its parts", ""},
    {"heteroperf-gate", 1, "a gate's report", ""},
    {"heteroperf-baselines", 1, "a list of baselines", ""},
    {"heteroperf-history", 1, "a history of runs", ""},
    {"heteroperf-ranking", 1, "a ranking", ""},
    {"heteroperf-pack", 1, "a report of `pack`", ""},
    {"heteroperf-verification", 1, "a verification", ""},
    {"heteroperf-version", 1, "a report of `version`", ""},
    {"heteroperf-list", 1, "a list", ""},
    {"heteroperf-schedules", 1, "a comparison of schedules", ""},
    {"heteroperf-simulation", 1, "a simulation", ""},
    {"heteroperf-alignment", 1, "an alignment of two runs", ""},
    {"heteroperf-export", 1, "an export", ""},
    {"heteroperf-error", 1, "an error", ""},
};

/// Returns the text in quotes, on one line and short, whatever a file holds there.
std::string printable(std::string text) {
  constexpr std::size_t longest = 60;
  if (text.size() > longest) text.replace(longest, text.size(), "...");
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return '"' + text + '"';
}

}  // namespace

std::span<const DocumentKind> document_kinds() { return kinds; }

const DocumentKind* find_document_kind(const std::string& format) {
  const auto row = std::find_if(std::begin(kinds), std::end(kinds),
                                [&](const DocumentKind& kind) { return format == kind.format; });
  return row == std::end(kinds) ? nullptr : row;
}

std::string stated_format(std::string_view text) {
  constexpr std::string_view key = "\"_format\"", space = " \t\r\n";
  std::size_t at = text.find(key);
  const bool is_text = text.find('\0') == std::string_view::npos;
  if (at == std::string_view::npos || !is_text) return {};
  for (const char mark : {':', '"'}) {
    at = text.find_first_not_of(space, mark == ':' ? at + key.size() : at);
    if (at == std::string_view::npos || text[at++] != mark) return {};
  }
  return std::string(text.substr(at, text.find('"', at) - at));
}

void require_stated_format(std::string_view text, const std::string& origin,
                           const std::string& wanted) {
  const std::string stated = stated_format(text);
  if (!stated.empty() && stated != wanted) throw wrong_kind(origin, stated, wanted);
}

UserError wrong_kind(const std::string& origin, const std::string& stated,
                     const std::string& wanted) {
  const DocumentKind *actual = find_document_kind(stated), *expected = find_document_kind(wanted);
  const std::string noun = expected == nullptr ? "a " + wanted : expected->noun;
  const std::string problem =
      actual == nullptr ? fmt::format("{} is not {}", origin, noun)
                        : fmt::format("{} is {}, {} is wanted", origin, actual->noun, noun);
  const std::string but_wanted = expected == nullptr ? "" : fmt::format(", not \"{}\"", wanted);
  const std::string why = stated.empty() ? fmt::format("it has no _format \"{}\"", wanted)
                                         : fmt::format("its _format is {}{}", printable(stated),
                                                       actual == nullptr ? but_wanted : "");
  return {problem, why, expected == nullptr ? "" : expected->origin};
}

}  // namespace heteroperf
