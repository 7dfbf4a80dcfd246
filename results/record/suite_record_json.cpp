// Writes and reads suite.json, the record of several workloads that were run one after another. It
// takes a few values out of each workload's record, with the record's hash, and adds the suite's
// own score: the sum of all operations over the sum of all windows. That score needs every workload
// of the ruleset, each with a valid run; windows of unequal length stand against it, as a workload
// with a short one weighs little. A suite is judged by rules of its own beside the classes of its
// workloads. The document ends with the hash of its own text, since journals of older programs do
// not name their suite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "metrics/score.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/record/suite_record.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/sha256.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr double equal_windows = 0.1;  // windows may differ by this share

/// The values that a suite takes from one workload's record.
struct Part {
  std::string folder;
  Json entry;
  RunStatus status = RunStatus::partial;
  Severity severity = Severity::invalid;
  bool rankable = false;
  std::string ruleset;  ///< the one that judged its record; empty without a record
  std::optional<WindowTotal> total;
  std::optional<Estimate> ops;
};

/// Returns the value that a record at `path` names; `noun` says of what kind it is.
template <class Enum>
Enum parse_word(const std::string& word, const std::string& path, const char* noun) {
  if (const auto value = find_value<Enum>(word)) return *value;
  throw UserError(fmt::format("{}: '{}' is no {}", path, word, noun));
}

/// Leaves the part without a total where the record has no score or no window.
void read_scores(const Json& record, Part& part) {
  const Json ops = value_at(record, "/metrics/ops_per_second");
  const Json window = value_at(record, "/metrics/window_s");
  if (ops.is_null() || window.is_null()) return;
  const Ops strict = Ops::parse(record.at("operations").at("window_strict").get<std::string>());
  part.total = WindowTotal{strict, Seconds(window.get<double>())};
  part.ops = Estimate{ops.at("value").get<double>(), std::nullopt};
  if (ops.contains("ci95")) part.ops->ci95 = Interval{ops.at("ci95").at(0), ops.at("ci95").at(1)};
  part.entry["ops_per_second"] = ops;
  part.entry["window_s"] = window;
  part.entry["window_strict"] = strict.to_string();
}

/// Takes over what the suite needs of one record; a missing key is a UserError with the path.
void read_record(const std::string& path, Part& part) {
  const std::string text = read_run_file(path);
  const Json record = parse_stored_document(text, path, record_format);
  try {
    part.status = parse_word<RunStatus>(record.at("status"), path, "status");
    part.severity =
        parse_word<Severity>(record.at("validity").at("class"), path, "class of validity");
    part.rankable = record.at("validity").at("rankable");
    part.ruleset = record.at("validity").at("ruleset").get<std::string>();
    for (const std::string key : {"name", "size"}) {
      const Json value = value_at(record, "/workload/" + key);
      if (!value.is_null()) part.entry[key] = value;
    }
    part.entry["status"] = to_string(part.status);
    part.entry["class"] = to_string(part.severity);
    part.entry["record_sha256"] = sha256_hex(text);
    read_scores(record, part);
  } catch (const Json::exception& error) {
    throw UserError(path + " misses a key or has a wrong type", plain_json_words(error.what()),
                    way_out(record_format, path));
  }
}

/// A workload without a record has not run, or has not ended: it stays partial and invalid.
Part read_part(const std::filesystem::path& folder, const std::string& name) {
  Part part;
  part.folder = name;
  part.entry = {{"folder", name}};
  const RunFiles files{folder / name};
  if (std::filesystem::exists(files.record())) {
    read_record(files.record().string(), part);
  } else {
    part.entry["status"] = to_string(part.status);
  }
  return part;
}

/// A reason for each workload whose own run is not `closed`.
std::vector<Reason> class_reasons(const std::vector<Part>& parts) {
  std::vector<Reason> reasons;
  for (const Part& part : parts) {
    if (part.severity == Severity::closed) continue;
    reasons.push_back({"workload", part.severity, part.folder, "closed",
                       part.entry.contains("class") ? to_string(part.severity) : "no record",
                       "See this workload's own record."});
  }
  return reasons;
}

/// Each workload must have the same window, or a short one would weigh little.
std::optional<Reason> unequal_windows(const std::vector<Part>& parts) {
  double shortest = INFINITY, longest = 0;
  for (const Part& part : parts) {
    if (!part.total) continue;
    shortest = std::min(shortest, part.total->window.value());
    longest = std::max(longest, part.total->window.value());
  }
  if (longest <= shortest * (1 + equal_windows)) return std::nullopt;
  return Reason{"equal_windows",
                Severity::open,
                "window_s",
                fmt::format("windows within {:.0f} %", 100 * equal_windows),
                fmt::format("{:.1f} to {:.1f} s", shortest, longest),
                "Give the suite a longer --duration, not --steps: each window begins after its own "
                "warm-up and ends with a whole step."};
}

/// Σ operations / Σ seconds is the mean of the rates weighted by window, and the workloads'
/// errors are independent: the half widths add in quadrature.
std::optional<Interval> combined_interval(const std::vector<Part>& parts, double value) {
  double seconds = 0, below = 0, above = 0;
  for (const Part& part : parts) seconds += part.total->window.value();
  for (const Part& part : parts) {
    if (!part.ops->ci95) return std::nullopt;
    const double weight = part.total->window.value() / seconds;
    const double low = weight * (part.ops->value - part.ops->ci95->low);
    const double high = weight * (part.ops->ci95->high - part.ops->value);
    below += low * low;
    above += high * high;
  }
  return Interval{value - std::sqrt(below), value + std::sqrt(above)};
}

/// The verdict of the rules on the suite as a whole. `ruleset` is that of all records, or this
/// program's where they differ.
struct SuiteRules {
  std::string ruleset;
  bool earlier = false;              ///< which asked nothing of the suite as such
  bool whole = true;                 ///< no workload is missing
  std::vector<Reason> reasons = {};  ///< against the suite as such
};

/// The ruleset of all records there are; this program's where they differ, or there is none.
std::string ruleset_of(const std::vector<Part>& parts) {
  std::string common;
  for (const Part& part : parts) {
    if (part.ruleset.empty() || part.ruleset == common) continue;
    if (!common.empty()) return ruleset_version;
    common = part.ruleset;
  }
  return common.empty() ? ruleset_version : common;
}

/// Suites that an earlier ruleset judged, and that no journal names, keep that verdict.
SuiteRules judge_suite(const std::filesystem::path& folder, const SuitePlan& plan,
                       const std::vector<Part>& parts) {
  SuiteRules rules{ruleset_of(parts)};
  const SuiteEvidence evidence = look_at_suite(folder, plan);
  rules.earlier = !evidence.named && rules.ruleset != ruleset_version;
  if (rules.earlier) return rules;
  rules.whole = is_whole_suite(plan.workloads);
  if (!rules.whole) {
    rules.reasons.push_back({"whole_suite", Severity::open, "workloads",
                             fmt::format("{}", fmt::join(suite_workloads, " ")),
                             fmt::format("{}", fmt::join(plan.workloads, " ")),
                             "Run it without naming a workload."});
  }
  if (!evidence.silent.empty()) {
    rules.reasons.push_back({"named_suite", Severity::open, evidence.silent,
                             "a journal that names its suite", "it names none",
                             "An older program wrote it: run the suite again."});
  }
  return rules;
}

/// Writes no score where one workload is missing, has no window or is invalid.
void put_score(Json& json, const std::vector<Part>& parts) {
  std::vector<WindowTotal> totals;
  Ops operations;
  for (const Part& part : parts) {
    if (!part.total || part.severity == Severity::invalid) return;
    totals.push_back(*part.total);
    operations += part.total->operations;
  }
  if (totals.empty()) return;
  const double value = suite_ops_per_second(totals).value();
  double window_s = 0;
  for (const WindowTotal& total : totals) window_s += total.window.value();
  Json ops{{"value", value}};
  put(ops, "ci95", combined_interval(parts, value));
  ops["convention"] = "strict";
  json["metrics"] = {{"ops_per_second", std::move(ops)}, {"window_s", window_s}};
  json["operations"] = {{"window_strict", operations.to_string()}};
}

/// The suite's class is the worst of its workloads' and of its own rules. All workloads must be
/// rankable for the suite to be; a fault of the suite itself makes it `open` at least.
Json validity_section(const std::vector<Part>& parts, const SuiteRules& rules) {
  Validity validity{parts.empty() ? Severity::invalid : Severity::closed, class_reasons(parts)};
  bool rankable = !parts.empty();
  for (const Part& part : parts) {
    validity.severity = std::max(validity.severity, part.severity);
    rankable = rankable && part.rankable;
  }
  std::vector<Reason> of_suite = rules.reasons;
  if (auto windows = unequal_windows(parts)) of_suite.push_back(std::move(*windows));
  for (Reason& reason : of_suite) {
    validity.severity = std::max(validity.severity, Severity::open);
    rankable = rankable && rules.earlier;
    validity.reasons.push_back(std::move(reason));
  }
  return validity_json(validity, rankable, rules.ruleset);
}

/// The line of a document that begins at `start`, cut for a message.
std::string line_at(const std::string& text, std::size_t start) {
  constexpr std::size_t longest = 100;
  std::string line = text.substr(start, text.find('\n', start) - start);
  line.erase(0, line.find_first_not_of(' '));
  if (line.ends_with(',')) line.pop_back();
  return line.empty() ? "absent" : line_text(line.substr(0, longest));
}

/// A suite is as complete as the worst of its workloads; a partial list of them is partial.
RunStatus worst_status(const std::vector<Part>& parts, const SuiteRules& rules) {
  if (parts.empty()) return RunStatus::failed;
  RunStatus status = rules.whole ? RunStatus::complete : RunStatus::partial;
  for (const Part& part : parts) status = std::max(status, part.status);
  return status;
}

}  // namespace

std::string build_suite_record(const std::filesystem::path& folder, const SuitePlan& plan) {
  std::vector<Part> parts;
  for (const std::string& name : plan.workloads) parts.push_back(read_part(folder, name));
  const SuiteRules rules = judge_suite(folder, plan, parts);
  Json json = new_document(suite_format);
  json["run_id"] = plan.run_id;
  json["created_utc"] = plan.created_utc;
  json["status"] = to_string(worst_status(parts, rules));
  json["validity"] = validity_section(parts, rules);
  if (rules.whole) put_score(json, parts);
  json["workloads"] = Json::array();
  for (Part& part : parts) json["workloads"].push_back(std::move(part.entry));
  // Journals of older programs do not name their suite: the document vouches for itself.
  json["document_sha256"] = sha256_hex(json_indented(json.dump(), "the suite's record"));
  return json_indented(json.dump(), "the suite's record");
}

std::string write_suite_record(const std::filesystem::path& folder, const SuitePlan& plan) {
  std::string text = build_suite_record(folder, plan);
  write_file_atomically(RunFiles{folder}.suite(), text);
  return text;
}

/// Names of workloads are names of folders, so each is refused where it leads out of the suite's.
std::optional<StoredSuite> read_suite_record(const std::filesystem::path& folder) {
  const std::filesystem::path path = RunFiles{folder}.suite();
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json json = read_stored_document(path, suite_format);
  try {
    StoredSuite suite;
    suite.plan.run_id = json.at("run_id").get<std::string>();
    suite.plan.created_utc = json.at("created_utc").get<std::string>();
    for (const Json& part : json.at("workloads")) {
      suite.plan.workloads.push_back(part.at("folder").get<std::string>());
      part_of(folder, suite.plan.workloads.back());
      if (part.contains("record_sha256")) suite.recorded.push_back(suite.plan.workloads.back());
    }
    return suite;
  } catch (const Json::exception& error) {
    throw UserError(path.string() + " misses a key or has a wrong type",
                    plain_json_words(error.what()), way_out(suite_format));
  }
}

std::string suite_contradiction(const std::filesystem::path& folder) {
  const StoredSuite stored = read_suite_record(folder).value();
  if (const auto fault = look_at_suite(folder, stored.plan, stored.recorded).fault) {
    return fmt::format("expected {}, found {}", fault->expected, fault->actual);
  }
  const std::string said = read_text_file(RunFiles{folder}.suite());
  const std::string given = build_suite_record(folder, stored.plan);
  if (said == given) return {};
  // The line of the first difference tells more than its byte.
  const auto end = std::mismatch(said.begin(), said.end(), given.begin(), given.end()).first;
  const auto number = 1 + std::count(said.begin(), end, '\n');
  const std::size_t start = std::string(said.begin(), end).rfind('\n') + 1;
  return fmt::format("line {} is {}, its runs give {}", number, line_at(said, start),
                     line_at(given, start));
}

/// A journal that names no suite could be of any run of that workload.
std::string why_no_suite_score(const std::filesystem::path& folder) {
  const SuitePlan plan = read_suite_record(folder).value().plan;
  if (!is_whole_suite(plan.workloads)) {
    return fmt::format("a partial suite: it has {} of {}", fmt::join(plan.workloads, " "),
                       fmt::join(suite_workloads, " "));
  }
  const std::string silent = look_at_suite(folder, plan).silent;
  if (silent.empty()) return {};
  return fmt::format(
      "the journal in {} does not name its suite, so that workloads may have been exchanged: an "
      "older program wrote it",
      silent);
}

}  // namespace heteroperf
