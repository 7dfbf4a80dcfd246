#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "metrics/error.hpp"
#include "metrics/json_words.hpp"
#include "metrics/score.hpp"
#include "metrics/text_file.hpp"
#include "results/canonical_json.hpp"
#include "results/ruleset.hpp"
#include "results/run_folder.hpp"
#include "results/sha256.hpp"
#include "results/stored_document_json.hpp"
#include "results/suite_record.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

constexpr double equal_windows = 0.1;  // windows may differ by this share

/// What a suite takes from one workload's record.
struct Part {
  std::string folder;
  Json entry;
  RunStatus status = RunStatus::partial;
  Severity severity = Severity::invalid;
  bool rankable = false;
  std::optional<WindowTotal> total;
  std::optional<Estimate> ops;
};

Severity parse_severity(const std::string& name, const std::string& path) {
  for (const Severity severity :
       {Severity::closed, Severity::review, Severity::open, Severity::invalid}) {
    if (name == to_string(severity)) return severity;
  }
  throw UserError(fmt::format("{}: '{}' is no class of validity", path, name));
}

RunStatus parse_status(const std::string& name, const std::string& path) {
  for (const RunStatus status : {RunStatus::complete, RunStatus::partial, RunStatus::failed}) {
    if (name == to_string(status)) return status;
  }
  throw UserError(fmt::format("{}: '{}' is no status", path, name));
}

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

void read_record(const std::string& path, Part& part) {
  const std::string text = read_run_file(path);
  const Json record = parse_stored_document(text, path, record_format);
  try {
    part.status = parse_status(record.at("status"), path);
    part.severity = parse_severity(record.at("validity").at("class"), path);
    part.rankable = record.at("validity").at("rankable");
    part.entry["name"] = value_at(record, "/workload/name");
    part.entry["size"] = value_at(record, "/workload/size");
    part.entry["status"] = to_string(part.status);
    part.entry["class"] = to_string(part.severity);
    part.entry["record_sha256"] = sha256_hex(text);
    read_scores(record, part);
  } catch (const Json::exception& error) {
    throw UserError(path + " misses a key or has a wrong type", plain_json_words(error.what()),
                    way_out(record_format, path));
  }
  for (const char* key : {"name", "size"}) {
    if (part.entry[key].is_null()) part.entry.erase(key);
  }
}

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

Json reason(const char* rule, Severity severity, const std::string& parameter,
            const std::string& expected, const std::string& actual, const char* hint) {
  return {{"rule", rule},           {"severity", to_string(severity)},
          {"parameter", parameter}, {"expected", expected},
          {"actual", actual},       {"hint", hint}};
}

Json class_reasons(const std::vector<Part>& parts) {
  Json reasons = Json::array();
  for (const Part& part : parts) {
    if (part.severity == Severity::closed) continue;
    reasons.push_back(reason("workload", part.severity, part.folder, "closed",
                             part.entry.contains("class") ? to_string(part.severity) : "no record",
                             "See this workload's own record."));
  }
  return reasons;
}

/// Each workload must have the same window, or a short one would weigh little.
std::optional<Json> unequal_windows(const std::vector<Part>& parts) {
  double shortest = INFINITY, longest = 0;
  for (const Part& part : parts) {
    if (!part.total) continue;
    shortest = std::min(shortest, part.total->window.value());
    longest = std::max(longest, part.total->window.value());
  }
  if (longest <= shortest * (1 + equal_windows)) return std::nullopt;
  return reason("equal_windows", Severity::open, "window_s",
                fmt::format("windows within {:.0f} %", 100 * equal_windows),
                fmt::format("{:.1f} to {:.1f} s", shortest, longest),
                "Give the suite a longer --duration, not --steps: each window begins after its own "
                "warm-up and ends with a whole step.");
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
  if (const auto interval = combined_interval(parts, value)) {
    ops["ci95"] = {interval->low, interval->high};
  }
  ops["convention"] = "strict";
  json["metrics"] = {{"ops_per_second", std::move(ops)}, {"window_s", window_s}};
  json["operations"] = {{"window_strict", operations.to_string()}};
}

Json validity_section(const std::vector<Part>& parts) {
  Severity severity = parts.empty() ? Severity::invalid : Severity::closed;
  bool rankable = !parts.empty();
  for (const Part& part : parts) {
    severity = std::max(severity, part.severity);
    rankable = rankable && part.rankable;
  }
  Json reasons = class_reasons(parts);
  if (const auto windows = unequal_windows(parts)) {
    reasons.push_back(*windows);
    severity = std::max(severity, Severity::open);
  }
  return {{"class", to_string(severity)},
          {"rankable", rankable},
          {"ruleset", ruleset_version},
          {"reasons", std::move(reasons)}};
}

RunStatus worst_status(const std::vector<Part>& parts) {
  RunStatus status = parts.empty() ? RunStatus::failed : RunStatus::complete;
  for (const Part& part : parts) status = std::max(status, part.status);
  return status;
}

}  // namespace

std::string build_suite_record(const std::filesystem::path& folder, const SuitePlan& plan) {
  std::vector<Part> parts;
  for (const std::string& name : plan.workloads) parts.push_back(read_part(folder, name));
  Json json{{"_format", suite_format},
            {"_version", document_version},
            {"run_id", plan.run_id},
            {"created_utc", plan.created_utc},
            {"status", to_string(worst_status(parts))},
            {"validity", validity_section(parts)}};
  put_score(json, parts);
  json["workloads"] = Json::array();
  for (Part& part : parts) json["workloads"].push_back(std::move(part.entry));
  // There is no journal behind run_id and created_utc: the document vouches for itself.
  json["document_sha256"] = sha256_hex(json_indented(json.dump(), "the suite's record"));
  return json_indented(json.dump(), "the suite's record");
}

std::string write_suite_record(const std::filesystem::path& folder, const SuitePlan& plan) {
  std::string text = build_suite_record(folder, plan);
  write_file_atomically(RunFiles{folder}.suite(), text);
  return text;
}

std::optional<SuitePlan> read_suite_plan(const std::filesystem::path& folder) {
  const std::filesystem::path path = RunFiles{folder}.suite();
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json json = read_stored_document(path, suite_format);
  try {
    SuitePlan plan{json.at("run_id"), json.at("created_utc"), {}};
    for (const Json& part : json.at("workloads")) {
      plan.workloads.push_back(part.at("folder").get<std::string>());
      part_of(folder, plan.workloads.back());
    }
    return plan;
  } catch (const Json::exception& error) {
    throw UserError(path.string() + " misses a key or has a wrong type",
                    plain_json_words(error.what()), way_out(suite_format));
  }
}

}  // namespace heteroperf
