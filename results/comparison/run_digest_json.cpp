// Reads the parts of record.json that comparing, ranking and tracking need. A record is the
// finished result of a run; records of older programs lack some fields, so a field that not all
// have is optional here, and one that every record has is read with at(), which ends in an error
// that names the file.
//
// The *key* holds what must be equal for two runs to be compared, and the *environment* everything
// else that says what ran where, flattened to leaves (a path and a text). Leaves that are new in
// every run, such as the load or the process's id, are left out, because two runs of one machine
// would never agree.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/score.hpp"
#include "results/comparison/run_digest.hpp"
#include "results/journal_checks/run_outline.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

std::string text_at(const Json& json, const char* pointer) {
  const Json value = value_at(json, pointer);
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Intervals are stored as a pair, low before high, beside their value.
std::optional<Interval> interval_of(const Json& json, const RecordMetric& metric) {
  const std::string place = metric.pointer;
  const Json value = value_at(json, place.substr(0, place.rfind('/')) + "/ci95");
  if (!metric.has_interval || value.is_null()) return std::nullopt;
  return Interval{value.at(0).get<double>(), value.at(1).get<double>()};
}

/// The number that all of a text makes up; nothing where a part of it is left over. Counts are
/// stored as decimal strings.
std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const char* const all = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), all, number);
  const bool whole = error == std::errc() && end == all && std::isfinite(number);
  return whole ? std::optional(number) : std::nullopt;
}

/// The value of a metric in a record; the largest one of a list, such as the memory of the fullest
/// rank. A fingerprint is no number, even one that has decimal digits alone.
std::optional<MetricValue> metric_at(const Json& record, const RecordMetric& metric) {
  Json value = value_at(record, metric.pointer);
  if (value.is_array() && !value.empty()) value = *std::max_element(value.begin(), value.end());
  if (value.is_null() || value.is_structured()) return std::nullopt;
  const std::string text = value.is_string()         ? value.get<std::string>()
                           : value.is_number_float() ? json_number(value.get<double>())
                                                     : value.dump();
  return MetricValue{text, metric.unit == Unit::none ? std::nullopt : number_of(text),
                     interval_of(record, metric)};
}

/// True for a run that moved by turns with another one. Caches that it shares, and its pauses, make
/// it another measurement than a run that is alone, so its key says so.
bool moved_by_turns(const Json& record) {
  const Json reasons = value_at(record, "/validity/reasons");
  return std::any_of(reasons.begin(), reasons.end(),
                     [](const Json& reason) { return text_at(reason, "/rule") == "lockstep"; });
}

/// The devices that a rate belongs to, as "2 x cpu of 1 thread".
std::string scale_class(const Json& record) {
  const std::string text = joined(value_at(record, "/scale/devices"), ", ", [](const Json& device) {
    return fmt::format("{} x {} of {} thread{}{}", device.at("count").dump(),
                       device.at("class").get<std::string>(), device.at("threads").dump(),
                       device.at("threads") == 1 ? "" : "s",
                       device.at("emulated") == true ? ", emulated" : "");
  });
  return moved_by_turns(record) ? text + ", by turns" : text;
}

/// The order of the fields is part of the key's text, whose hash names saved baselines: it must not
/// change. The build type is the last one.
void read_key(const Json& record, RunDigest& digest) {
  digest.key = {{"workload.hash", text_at(record, "/workload/hash")},
                {"validity.ruleset", digest.ruleset},
                {"workload.precision", digest.precision},
                {"scale", scale_class(record)},
                {"program.build_type", text_at(record, "/program/build_type")}};
}

/// Variables that every run has anew, or that are a matter of the moment, make no difference
/// between two environments.
constexpr std::array volatile_leaves{"/system/facts/load_average_1min",
                                     "/system/facts/uptime_s",
                                     "/system/memory/available_bytes",
                                     "/system/process",
                                     "/program/argv",
                                     "/config/out",
                                     "/system/binding"};

/// Adds the leaves below `path`. An answer of the machine is an object with its value, or with the
/// reason why there is none; both count as one leaf. Lists are one leaf as well.
void flatten(const Json& json, const std::string& path, RecordLeaves& leaves) {
  if (std::ranges::find(volatile_leaves, path) != volatile_leaves.end()) return;
  if (json.is_object() && json.contains("value")) {
    leaves[path] = text_at(json, "/value");
  } else if (json.is_object() && json.contains("status") && json.contains("reason")) {
    leaves[path] = "unavailable";
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) flatten(value, path + '/' + key, leaves);
  } else {
    leaves[path] = json.is_string() ? json.get<std::string>() : json.dump();
  }
}

/// From the process's environment only those variables are taken that change what libraries and
/// kernels do.
void read_environment(const Json& record, RunDigest& digest) {
  for (const char* section : {"/system", "/program", "/scale", "/config", "/plan_summary",
                              "/products/choice", "/seeds"}) {
    const Json value = value_at(record, section);
    if (!value.is_null()) flatten(value, section, digest.environment);
  }
  if (!digest.gpus.empty()) digest.environment["/system/gpus"] = digest.gpus_text();
  flatten(value_at(record, "/workload"), "/workload", digest.workload_leaves);
  digest.workload_leaves.erase("/workload/hash");
  const Json variables = value_at(record, "/system/process/environment");
  if (!variables.is_object()) return;
  for (const char* prefix :
       {"OMP_", "MKL_", "ATEN_", "DNNL_", "ONEDNN_", "NCCL_", "CUDA_", "LD_PRELOAD"}) {
    for (const auto& [name, value] : variables.items()) {
      if (name.rfind(prefix, 0) == 0) flatten(value, "/environment/" + name, digest.environment);
    }
  }
}

void read_identity(const Json& record, RunDigest& digest) {
  digest.run_id = record.at("run_id").get<std::string>();
  digest.created_utc = record.at("created_utc").get<std::string>();
  digest.status = record.at("status").get<std::string>();
  digest.git_commit = text_at(record, "/program/git_commit");
  digest.program_version = text_at(record, "/program/version");
  digest.reproduce = text_at(record, "/reproduce");
  digest.workload = text_at(record, "/workload/name");
  digest.size = text_at(record, "/workload/size");
  digest.precision = text_at(record, "/workload/precision");
  digest.graph_hash = text_at(record, "/workload/graph_hash");
  digest.data_fingerprint = text_at(record, "/workload/data_kind");
  if (digest.data_fingerprint.empty()) {
    digest.data_fingerprint = text_at(record, "/workload/data_fingerprint");
  }
  digest.unit = text_at(record, "/metrics/throughput/unit");
  digest.host = text_at(record, "/system/host/value");
  const Json samples = value_at(record, "/workload/samples_per_step");
  if (samples.is_number_unsigned()) digest.samples_per_step = samples.get<std::uint64_t>();
  const Json seed = value_at(record, "/seeds/run");
  if (seed.is_number()) digest.seed = whole_number<std::uint64_t>(seed);
}

/// Counts hosts, the CPUs that the ranks on each of them may use together, and models of GPUs.
/// Records without `gpu_name` name a rank's GPU as its device.
void read_hosts(const Json& record, RunDigest& digest) {
  std::map<std::string, CpuRanges> hosts;
  for (const Json& rank : value_at(record, "/system/binding")) {
    add_listed_cpus(text_at(rank, "/cpus"), hosts[text_at(rank, "/host")]);
    if (!rank.is_object() || !rank.contains("gpu")) continue;
    std::string gpu = text_at(rank, "/gpu_name");
    if (gpu.empty()) gpu = text_at(rank, "/device");
    if (!gpu.empty()) ++digest.gpus[gpu];
  }
  digest.nodes = hosts.size();
  for (const auto& [host, cpus] : hosts) digest.cores += count_cpus(cpus);
}

void read_scale(const Json& record, RunDigest& digest) {
  const Json scale = value_at(record, "/scale");
  if (scale.is_null()) return;
  digest.ranks = whole_number<std::uint64_t>(scale.at("ranks"));
  read_hosts(record, digest);
  digest.emulated = scale.at("emulated").get<bool>();
  for (const Json& device : scale.at("devices")) {
    digest.devices.push_back({device.at("class").get<std::string>(),
                              whole_number<std::uint64_t>(device.at("count")),
                              whole_number<std::uint64_t>(device.at("threads"))});
  }
}

void read_validity(const Json& record, RunDigest& digest) {
  const Json& validity = record.at("validity");
  digest.severity = validity.at("class").get<std::string>();
  digest.rankable = validity.at("rankable").get<bool>();
  digest.ruleset = validity.at("ruleset").get<std::string>();
  for (const Json& reason : validity.at("reasons")) {
    digest.reasons.push_back(fmt::format("{}: {}, found {}", text_at(reason, "/rule"),
                                         text_at(reason, "/expected"), text_at(reason, "/actual")));
  }
}

/// With enough wrong answers the error is known equally well for all; with fewer it depends on how
/// many answers there were, so scores on other numbers of answers do not compare.
std::string error_basis_of(const Json& score) {
  if (!score.contains("wrong")) return {};
  if (whole_number<std::uint64_t>(score.at("wrong")) >= enough_wrong_answers) {
    return fmt::format("{} wrong answers", enough_wrong_answers);
  }
  return fmt::format("{} answers", whole_number<std::uint64_t>(score.at("answers")));
}

void read_metrics(const Json& record, RunDigest& digest) {
  for (const RecordMetric& metric : record_metrics()) {
    digest.metrics[metric_place(metric.name)] = metric_at(record, metric);
  }
  digest.error_basis = error_basis_of(value_at(record, "/metrics/regulated_score"));
  const Json modelled = value_at(record, "/prediction/measured/samples_per_s");
  if (digest.emulated && !modelled.is_null()) digest.modelled_samples_per_s = modelled;
  digest.quality_name = text_at(record, "/metrics/quality/name");
}

// ---------------------------------------------------------------- reports of operators

/// "cpu/fp32/llm-micro", of a row of a report; of several devices "fp32/llm-micro".
std::string place_of(const Json& row) {
  std::string place = text_at(row, "/precision") + "/" + text_at(row, "/workload");
  if (row.contains("device")) place.insert(0, text_at(row, "/device") + "/");
  std::replace(place.begin(), place.end(), ' ', '-');
  return place;
}

void add_operator_metric(const std::string& name, const Json& value,
                         std::optional<Interval> interval, RunDigest& digest) {
  if (value.is_null()) return;
  const double number = value.get<double>();
  digest.operator_metrics[name] = MetricValue{json_number(number), number, interval};
}

/// A report has the sections of a record that say who measured what and where. Times of another
/// machine say nothing about the program, so the machine is a part of the key here.
void read_operators(const Json& report, RunDigest& digest) {
  for (const Json& row : value_at(report, "/timings")) {
    const Json interval = value_at(row, "/ci95");
    add_operator_metric(
        fmt::format("operator:{}/{}/{}/{}", place_of(row), text_at(row, "/operator"),
                    text_at(row, "/shape"), text_at(row, "/pass")),
        row.at("least_s"),
        interval.is_null()
            ? std::nullopt
            : std::optional(Interval{interval.at(0).get<double>(), interval.at(1).get<double>()}),
        digest);
  }
  for (const Json& row : value_at(report, "/devices")) {
    add_operator_metric("efficiency:" + place_of(row), value_at(row, "/efficiency"), {}, digest);
  }
  for (const Json& row : value_at(report, "/scores")) {
    add_operator_metric("portability:" + place_of(row), value_at(row, "/score"), {}, digest);
  }
  if (digest.operator_metrics.empty()) {
    throw UserError("the report holds no times", "a check of operators has none",
                    "Run `heteroperf ops` without --check");
  }
  digest.key.push_back({"machine", machines_text(digest)});
}

RunDigest digest_of(const Json& record, const std::filesystem::path& path) {
  RunDigest digest;
  digest.record = path;
  read_identity(record, digest);
  read_validity(record, digest);
  read_scale(record, digest);
  read_metrics(record, digest);
  read_key(record, digest);
  read_environment(record, digest);
  digest.journal_sha256 = text_at(record, "/hashes/journal");
  return digest;
}

}  // namespace

RunDigest parse_run_digest(const std::string& text, const std::filesystem::path& record) {
  const bool operators = stated_format(text) == operators_format;
  const char* const format = operators ? operators_format : record_format;
  const Json json = parse_stored_document(text, record.string(), format);
  return of_document(record, format, [&] {
    RunDigest digest = digest_of(json, record);
    if (operators) read_operators(json, digest);
    digest.record_sha256 = sha256_hex(text);
    return digest;
  });
}

RunDigest read_run_digest(const std::filesystem::path& record) {
  return parse_run_digest(read_run_file(record), record);
}

}  // namespace heteroperf
