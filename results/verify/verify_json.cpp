// `verify`: computes again everything that a folder claims, and compares. For a run that is the
// chain of its journal, the claims of the journal's lines against one another, the documents
// written beside it, the record (value by value and byte by byte) and the columns of samples.h5.
// The runs of baselines, suites and sweeps are verified in the same way, and then the suite's or
// the sweep's document is. Each comparison is one check with its expected and its actual value;
// damage is a failed check and no exception.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "metrics/score.hpp"
#include "results/comparison/parallel_rows.hpp"
#include "results/journal_checks/journal_checks.hpp"
#include "results/packing/run_archive.hpp"
#include "results/record/record.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/samples_h5.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/record/suite_record.hpp"
#include "results/record/verify.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/sha256.hpp"
#include "results/verify/claim_checks_json.hpp"

namespace heteroperf {
namespace {

/// Checks stand in the order in which they are told.
using Checks = std::vector<VerifyCheck>;

constexpr const char* absent = "absent";

/// The values of a record that readers quote; compared one by one so that a mismatch names them.
struct Claim {
  const char* name;
  const char* pointer;
};
constexpr std::array claim_table{Claim{"journal_head", "/hashes/journal_head"},
                                 Claim{"journal_sha256", "/hashes/journal"},
                                 Claim{"config_hash", "/hashes/config"},
                                 Claim{"graph_hash", "/hashes/graph"},
                                 Claim{"status", "/status"},
                                 Claim{"validity", "/validity"},
                                 Claim{"operations", "/operations"},
                                 Claim{"ops_per_second", "/metrics/ops_per_second"},
                                 Claim{"throughput", "/metrics/throughput"},
                                 Claim{"quality", "/metrics/quality"},
                                 Claim{"regulated_score", "/metrics/regulated_score"}};

/// Returns a value as JSON, or "absent".
std::string claim_text(const Json& json) { return json.is_null() ? absent : json.dump(); }

/// Makes a check of two texts, which holds where they are equal.
VerifyCheck equal_check(std::string name, std::string expected, std::string actual) {
  const bool ok = expected == actual;
  return {std::move(name), ok, std::move(expected), std::move(actual)};
}

/// Adds checks to others; their names get `prefix`, the folder that they are about, in front.
void append(Checks more, Checks& checks, const std::string& prefix = {}) {
  for (VerifyCheck& check : more) {
    check.name.insert(0, prefix);
    checks.push_back(std::move(check));
  }
}

/// A file that cannot be read has the reason in place of its hash, which equals no hash.
std::string file_hash(const std::filesystem::path& path) {
  try {
    return std::filesystem::exists(path) ? sha256_file_hex(path.string()) : absent;
  } catch (const Error& error) {
    return error.what();
  }
}

/// A file must hold the text that this event of the journal has, indented; without the event there
/// must be no file.
template <class E>
void check_companion(const char* name, const std::filesystem::path& path, const Journal& journal,
                     JsonText E::*text, Checks& checks) {
  const E* event = journal.last<E>();
  const std::string expected =
      event == nullptr ? absent : sha256_hex(json_indented((event->*text).text, name));
  checks.push_back(equal_check(name, expected, file_hash(path)));
}

/// A record that was judged by another ruleset says other things of the same journal, so it is not
/// compared. Nothing where it is to be compared.
std::optional<VerifyCheck> other_rules(const Json& stored) {
  const Json ruleset = value_at(stored, "/validity/ruleset");
  if (!ruleset.is_string() || ruleset == ruleset_version) return std::nullopt;
  return VerifyCheck{
      "record_ruleset",
      true,
      fmt::format("ruleset {}, which this program has", ruleset_version),
      fmt::format("ruleset {}: record and samples.h5 are not compared; `heteroperf recover` makes "
                  "them anew from the journal",
                  ruleset.get<std::string>()),
      CheckText::words,
      false};
}

/// Says where two texts differ, for texts that are too long to be shown.
std::string first_difference(const std::string& expected, const std::string& actual) {
  const auto [a, b] = std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end());
  return fmt::format("{} bytes, the first different one at {}", actual.size(),
                     a - expected.begin());
}

void check_text(const char* name, const std::string& expected, const std::string& actual,
                Checks& checks) {
  const std::string all = fmt::format("{} bytes", expected.size());
  const bool ok = expected == actual;
  checks.push_back({name, ok, all, ok ? all : first_difference(expected, actual)});
}

/// Values are compared beside the bytes, so that a mismatch names the number that is wrong.
void check_claims(const Json& rebuilt, const Json& stored, Checks& checks) {
  for (const Claim& claim : claim_table) {
    checks.push_back(equal_check(claim.name, claim_text(value_at(rebuilt, claim.pointer)),
                                 claim_text(value_at(stored, claim.pointer))));
    checks.back().text = CheckText::json;
  }
}

/// Runs `work` and returns true; an error that it throws becomes a failed check of this name.
bool succeeds(const std::string& name, const std::string& wanted, Checks& checks, auto&& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    checks.push_back({name, false, wanted, error.what()});
    return false;
  }
}

/// An archive that is missing is no fault, since it can be made again.
void check_samples(const RunFiles& files, const Journal& journal, const std::string& record,
                   Checks& checks) {
  constexpr const char* wanted = "columns of the journal, or no file";
  const bool built = samples_h5_built();
  if (!std::filesystem::exists(files.samples())) {
    checks.push_back({"samples_h5", true, wanted,
                      built ? "absent: `heteroperf recover` makes it again" : "absent"});
  } else if (!built) {
    checks.push_back({"samples_h5", true, wanted, "not looked at: this program has no HDF5"});
  } else {
    checks.push_back(problem_check("samples_h5", "columns of the journal",
                                   compare_samples_h5(files.samples().string(), journal, record)));
  }
}

/// The relation of a folder to the run that is verified.
enum class RunPart { whole, baseline };
void check_run(const RunFiles& files, RunPart part, Checks& checks);

/// Without a journal whose chain holds there is nothing to compare with.
std::optional<Journal> check_journal(const RunFiles& files, Checks& checks) {
  constexpr const char* whole_chain = "an unbroken chain of lines";
  std::optional<Journal> journal;
  succeeds("journal_chain", whole_chain, checks, [&] {
    journal = read_journal(files.journal().string());
    checks.push_back({"journal_chain", true, whole_chain, whole_chain});
  });
  return journal;
}

/// Records of the classes alone that the run's journal has numbers of. A class alone has none.
void check_baselines(const RunFiles& files, const Journal& journal, RunPart part, Checks& checks) {
  const auto baselines = journal.all<BaselineEvent>();
  if (part == RunPart::baseline && !baselines.empty()) {
    throw UserError("a baseline has baselines of its own");
  }
  std::set<std::string> folders;  // check_baseline_lines() tells of one that is named twice
  for (const BaselineEvent* baseline : baselines) {
    if (baseline->record_sha256.empty() || !folders.insert(baseline->folder).second) continue;
    Checks inner;
    check_run({part_of(files.folder, baseline->folder)}, RunPart::baseline, inner);
    append(std::move(inner), checks, baseline->folder + "/");
  }
}

/// Checks that all files of an unpacked run are there as they were.
void check_manifest(const std::filesystem::path& folder, Checks& checks) {
  if (!has_manifest(folder)) return;
  checks.push_back(
      problem_check("manifest", "the files that were packed", manifest_contradictions(folder)));
}

/// The run of a suite says twice which of its workloads it is.
void check_suite_workload(const Journal& journal, Checks& checks) {
  const auto* workload = journal.first<WorkloadEvent>();
  const StartEvent& start = *journal.first<StartEvent>();
  if (!start.suite || workload == nullptr) return;
  checks.push_back(equal_check("suite_workload", workload->name, start.suite_workload));
}

/// Checks the claims of a journal, without what was made of it.
Checks checks_of_claims(const Journal& journal, const std::filesystem::path& folder) {
  Checks checks = check_journal_lines(journal);
  check_suite_workload(journal, checks);
  append(check_baseline_lines(journal, folder), checks);
  return checks;
}

// ---------------------------------------------------------------- records of operators

bool is_operators_record(const std::filesystem::path& record) {
  return std::filesystem::is_regular_file(record) &&
         stated_format(read_run_file(record)) == operators_format;
}

/// Checks that a record of operators follows from the turns that it holds.
void check_operators(const std::filesystem::path& record, Checks& checks) {
  const Json report =
      parse_strict_json(read_run_file(record), record.string(), operators_format, run_file_limits);
  Verification result;
  ClaimChecks claims(result);
  checks.push_back(problem_check("record_json", "valid JSON", ""));
  const auto rows = [&](const char* key) { return report.value(key, Json::array()); };
  const auto least_of = [](std::span<const double> values) {
    return *std::ranges::min_element(values);
  };
  const auto interval_of = [](std::span<const double> values, const Statistic& statistic) {
    const Interval interval = bootstrap_interval(values, statistic);
    return Json{interval.low, interval.high};
  };
  std::vector<TimedPass> passes;
  for (const Json& row : rows("timings")) {
    const std::string place = fmt::format("/timings/{}", passes.size());
    const TimedPass pass{row.at("count"), row.at("samples_s")};
    if (pass.turns_s.empty()) throw UserError(place + " has no turn");
    claims.claim(report, place + "/least_s", least_of(pass.turns_s));
    claims.claim(report, place + "/ci95", interval_of(pass.turns_s, least_of));
    passes.push_back(pass);
  }
  if (const std::vector<double> rates = micro_batch_rates(passes); !rates.empty()) {
    const auto greatest = [](std::span<const double> all) {
      return *std::ranges::max_element(all);
    };
    claims.claim(report, "/metrics/throughput/value", greatest(rates));
    claims.claim(report, "/metrics/throughput/ci95", interval_of(rates, greatest));
  }
  std::size_t number = 0;
  for (const Json& row : rows("operators")) {
    const std::string place = fmt::format("/operators/{}/efficiency", number++);
    if (!row.contains("efficiency")) continue;
    claims.claim(report, place, row.at("least_s").get<double>() / row.at("seconds").get<double>());
  }
  Json least;
  number = 0;
  for (const Json& row : rows("scores")) {
    const auto score_by = [&](const char* key) {
      std::vector<std::optional<double>> efficiencies;
      for (const Json& device : rows("devices")) {
        if (device.at("workload") != row.at("workload") ||
            device.at("precision") != row.at("precision")) {
          continue;
        }
        efficiencies.push_back(device.contains(key) ? device.at(key) : std::optional<double>());
      }
      return performance_portability(efficiencies).value_or(0);
    };
    const std::string place = fmt::format("/scores/{}", number++);
    const double score = score_by("efficiency");
    claims.claim(report, place + "/score", score);
    claims.claim(report, place + "/roofline_score", score_by("roofline_efficiency"));
    least = least.is_null() ? score : std::min(least.get<double>(), score);
  }
  claims.claim(report, "/score", least);
  append(std::move(result.checks), checks);
}

/// Checks in the order of trust: the journal first, then what was made of it.
void check_content(const RunFiles& files, const Journal& journal, RunPart part, Checks& checks) {
  append(checks_of_claims(journal, files.folder), checks);
  check_companion("config_file", files.config(), journal, &ConfigEvent::config, checks);
  check_companion("plan_file", files.plan(), journal, &PlanEvent::plan, checks);
  check_companion("environment_file", files.environment(), journal, &SystemEvent::system, checks);
  check_baselines(files, journal, part, checks);
  const std::string rebuilt = build_record(journal);
  std::string text;
  const auto read = [&] { text = read_run_file(files.record()); };
  if (!succeeds("record_bytes", files.record().filename().string(), checks, read)) return;
  std::optional<VerifyCheck> ruleset;
  succeeds("record_json", "valid JSON", checks, [&] {
    const Json stored = parse_strict_json(text, "record.json", {}, run_file_limits);
    ruleset = other_rules(stored);
    if (!ruleset) check_claims(Json::parse(rebuilt), stored, checks);
  });
  if (ruleset) return checks.push_back(std::move(*ruleset));
  check_text("record_bytes", rebuilt, text, checks);
  check_samples(files, journal, rebuilt, checks);
}

/// A journal on which the computation itself fails is a failed check as well.
void check_run(const RunFiles& files, RunPart part, Checks& checks) {
  if (is_operators_record(files.record())) {
    succeeds("recomputation", "a report that adds up", checks, [&] {
      of_document(files.record(), operators_format,
                  [&] { check_operators(files.record(), checks); });
    });
    return;
  }
  const std::optional<Journal> journal = check_journal(files, checks);
  if (!journal) return;
  succeeds("recomputation", "a journal that adds up", checks,
           [&] { check_content(files, *journal, part, checks); });
}

/// Holds suite.json to the id and the workloads that the journals name, each with its own run.
void check_suite_workloads(const std::filesystem::path& folder, const StoredSuite& suite,
                           Checks& checks) {
  constexpr const char* agrees = "the suite and the workloads that its journals name";
  const SuiteEvidence evidence = look_at_suite(folder, suite.plan, suite.recorded);
  if (const auto& fault = evidence.fault) {
    checks.push_back({"suite_workloads", false, fault->expected, fault->actual});
  } else {
    checks.push_back({"suite_workloads", true, agrees,
                      evidence.silent.empty()
                          ? agrees
                          : "not told: an older program wrote the journal in " + evidence.silent});
  }
}

/// Verifies each workload's run and then the document over them.
void check_suite(const RunFiles& files, Checks& checks) {
  const StoredSuite suite = read_suite_record(files.folder).value();
  const SuitePlan& plan = suite.plan;
  std::set<std::string> seen;  // check_suite_workloads() tells of one that is named twice
  for (const std::string& workload : plan.workloads) {
    if (!seen.insert(workload).second) continue;
    const RunFiles part{files.folder / workload};
    if (!std::filesystem::exists(part.journal()) && !std::filesystem::exists(part.record())) {
      continue;  // not run; suite.json says so, or its bytes differ
    }
    Checks part_checks;
    check_run(part, RunPart::whole, part_checks);
    append(std::move(part_checks), checks, workload + "/");
  }
  check_suite_workloads(files.folder, suite, checks);
  check_text("suite_bytes", build_suite_record(files.folder, plan), read_text_file(files.suite()),
             checks);
}

/// Verifies each of these folders in `folder`, in their order.
void check_parts(const std::filesystem::path& folder, const std::vector<std::string>& parts,
                 Checks& checks) {
  std::vector<Checks> checks_of_part(parts.size());
  in_parallel(parts.size(), [&](std::size_t i) {
    constexpr const char* wanted = "the folder of a complete run";
    try {
      const std::filesystem::path part = part_of(folder, parts[i]);
      if (std::filesystem::exists(part)) {
        checks_of_part[i] = verify(part).checks;
      } else {
        checks_of_part[i].push_back({"folder", false, wanted, "it is not there"});
      }
    } catch (const UserError& error) {
      checks_of_part[i].push_back({"folder", false, wanted, error.what()});
    }
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    append(std::move(checks_of_part[i]), checks, parts[i] + "/");
  }
}

/// Returns true where a configuration has this value of a key. A value that it replaces by one of
/// its own (0, "auto", the path of a file) is not compared.
bool has_value(const Json& config, const std::string& key, const std::string& text) {
  std::string pointer = "/" + key;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  const Json value = value_at(config, pointer);
  if (value.is_boolean()) return text == value.dump();
  if (value.is_string()) {
    return value == text || text == "auto" || text.find_first_of("./") != std::string::npos;
  }
  if (value.is_number_unsigned() && value.dump() == text) return true;
  if (!value.is_number()) return true;
  double wanted = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), wanted);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const bool is_number = error == std::errc() && (rest.empty() || rest == "%");
  return !is_number || wanted == 0 || value == wanted;
}

/// Compares the place that a journal names with the one that sweep.json gives the run. A run that
/// an older program began has no number there and names none. Returns the difference, or "".
std::string other_place(const std::optional<SweepPlace>& named, const SweepPlace& place) {
  if (!named) return place.number == 0 ? "" : "a run whose journal names no sweep";
  if (named->sweep_id != place.sweep_id) return "a run of " + named->sweep_id;
  if (*named == place) return "";
  return fmt::format("run {} of the sweep, {} seed={}", named->number, point_text(named->point),
                     named->seed);
}

/// Holds one journal of a run, and the configuration beside it, to the run's place. Returns the
/// first difference, or "".
std::string other_point(const std::filesystem::path& journal, const SweepPlace& place,
                        const SweepPoint& settings) {
  const std::filesystem::path file = RunFiles{journal.parent_path()}.config();
  const Json config = parse_strict_json(read_run_file(file), file.string());
  for (const auto& [key, value] : settings) {
    if (!has_value(config, key, value)) return fmt::format("a run with another {}", key);
  }
  return other_place(read_journal_start(journal.string()).sweep, place);
}

/// A run stands at the point of the sweep that its journal names and whose settings it had.
VerifyCheck check_point(const std::filesystem::path& folder, const SweepIndex& index,
                        const SweepRun& run) {
  const SweepPlace place = place_of(index, run);
  SweepPoint settings = place.point;
  settings.emplace_back("seed", std::to_string(run.seed));
  const std::string expected = point_text(settings);
  VerifyCheck check{run.folder + "/point", true, expected, expected, CheckText::words};
  if (run.number == 0) {
    check.actual = "its settings: an older program wrote the journal, which names no place";
  }
  for (const std::filesystem::path& journal : journals_in(folder / run.folder)) {
    const std::string difference = other_point(journal, place, settings);
    if (difference.empty()) continue;
    check.ok = false;
    check.actual = difference;
  }
  return check;
}

/// Every run that ended, in its folder; what is still missing is no damage.
Checks check_sweep(const std::filesystem::path& folder) {
  Checks checks;
  check_manifest(folder, checks);
  const std::string text = read_text_file(sweep_file(folder));
  const SweepIndex index = parse_sweep(text, sweep_file(folder).string());
  std::vector<std::string> complete;
  for (const SweepRun& run : index.runs) {
    if (run.state == SweepRunState::complete) complete.push_back(run.folder);
  }
  check_parts(folder, complete, checks);
  for (const SweepRun& run : index.runs) {
    if (run.state != SweepRunState::complete) continue;
    succeeds(run.folder + "/point", "the run's config.json", checks,
             [&] { checks.push_back(check_point(folder, index, run)); });
  }
  check_text("sweep_bytes", sweep_text_as_written(text, index), text, checks);
  return checks;
}

/// Names of the folders in `folder` that are runs, suites or sweeps; none where it is one itself.
std::vector<std::string> runs_in(const std::filesystem::path& folder) {
  const auto holds_run = [](const std::filesystem::path& path) {
    const RunFiles files{path};
    return std::filesystem::exists(files.journal()) || std::filesystem::exists(files.record()) ||
           std::filesystem::exists(files.suite()) || is_sweep_folder(path);
  };
  std::vector<std::string> names;
  if (!std::filesystem::is_directory(folder) || holds_run(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_symlink() && holds_run(entry.path())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A value of the record as it stands there, prose as text.
Json check_value(const std::string& text, CheckText kind) {
  if (kind == CheckText::words) return text;
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

}  // namespace

bool Verification::ok() const {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const VerifyCheck& c) { return c.ok; });
}

bool Verification::compared() const {
  return std::all_of(checks.begin(), checks.end(), [](const VerifyCheck& c) { return c.compared; });
}

std::string Verification::to_json() const {
  Json json = new_document("heteroperf-verification");
  json["ok"] = ok();
  json["checks"] = Json::array();
  for (const VerifyCheck& check : checks) {
    json["checks"].push_back({{"name", check.name},
                              {"ok", check.ok},
                              {"expected", check_value(check.expected, check.text)},
                              {"actual", check_value(check.actual, check.text)}});
    if (!check.compared) json["checks"].back()["compared"] = false;
  }
  return json_indented(json);
}

std::string first_wrong_content(const Journal& journal, const std::filesystem::path& folder) {
  for (const VerifyCheck& check : checks_of_claims(journal, folder)) {
    if (!check.ok)
      return fmt::format("{} should be {}, not {}", check.name, check.expected, check.actual);
  }
  return {};
}

Verification verify(const std::filesystem::path& path) {
  if (const auto sweep = sweep_folder_of(path)) return {check_sweep(*sweep)};
  Verification verification;
  if (const auto runs = runs_in(path); !runs.empty()) {
    check_parts(path, runs, verification.checks);
    return verification;
  }
  const RunFiles files = open_run_folder(path);
  check_manifest(files.folder, verification.checks);
  if (!std::filesystem::exists(files.suite())) {
    check_run(files, RunPart::whole, verification.checks);
  } else {
    succeeds("suite_json", "a readable suite.json", verification.checks,
             [&] { check_suite(files, verification.checks); });
  }
  return verification;
}

}  // namespace heteroperf
