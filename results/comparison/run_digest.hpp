#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "metrics/statistics.hpp"
#include "results/record/ruleset.hpp"
#include "results/text/document.hpp"

namespace heteroperf {

/// Exact: the same for every run of one program on one machine, so any difference counts.
enum class MetricKind { exact, statistical };
constexpr std::array<const char*, 2> value_names(MetricKind) { return {"exact", "statistical"}; }
/// Says which way is better; `equal` means that any difference is a defect.
enum class MetricDirection { higher, lower, equal };
constexpr std::array<const char*, 3> value_names(MetricDirection) {
  return {"higher", "lower", "equal"};
}

/// A number of a record.
struct RecordMetric {
  const char* name;
  Unit unit;  ///< the throughput has the unit of its record
  MetricKind kind;
  MetricDirection direction;
  const char* pointer;      ///< in record.json; of a list its largest number
  const char* family = "";  ///< its name in OpenMetrics without the unit; empty: not exported
  const char* help = "";
  bool has_interval = false;  ///< its 95 % interval stands beside it as `ci95`
};

/// All of them, in the order in which they are exported.
std::span<const RecordMetric> record_metrics();
/// The place of a metric in record_metrics(); the name is one of them.
std::size_t metric_place(std::string_view name);
/// The names of those that runs are compared by, the headline first.
std::span<const char* const> compared_metrics();
/// Finds one of those, or a metric of operators. Throws UserError that names the nearest one.
const RecordMetric& compared_metric(const std::string& name);

/// Reports of operators have metrics of their own: "operator:DEVICE/PRECISION/WORKLOAD/NAME/SHAPE/
/// PASS", the seconds of a pass, and the fractions "efficiency:DEVICE/PRECISION/WORKLOAD" and
/// "portability:WORKLOAD".
bool is_operator_metric(std::string_view name);

/// A metric's value in one record: `text` as stored (operation counts are beyond a double),
/// `number` where it is one, and its own interval.
struct MetricValue {
  std::string text;
  std::optional<double> number;
  std::optional<Interval> ci95 = {};
  friend bool operator==(const MetricValue&, const MetricValue&) = default;
};

/// True when `head` is worse than `base`: in the metric's direction, or, where the metric may only
/// be equal or a value is no number, when they differ at all.
bool is_worse(const RecordMetric& metric, const MetricValue& base, const MetricValue& head);

/// A metric's value for a document: operation counts as decimal text, exact values as they are
/// stored, medians as numbers. `kind` is what it was judged as, `unit` what the record's throughput
/// counts.
Datum metric_datum(const RecordMetric& metric, MetricKind kind, const MetricValue& value,
                   const std::string& unit);

/// head / base of an exact metric; nothing where one is no number above 0, or where they differ by
/// less than a double can tell.
std::optional<double> exact_ratio(const MetricValue& base, const MetricValue& head);
/// "equal", "+1.5 %", or "differs" where there is no percentage that could be shown.
std::string exact_change_text(const MetricValue& base, const MetricValue& head);
/// "-6.0 % [-6.9, -5.2]" of a ratio and its interval.
std::string change_with_interval(double ratio, const std::optional<Interval>& ci95);

/// Values of a record by their JSON pointers.
using RecordLeaves = std::map<std::string, std::string>;
/// Empty where there is none.
std::string leaf_at(const RecordLeaves& leaves, const std::string& path);

/// One field of what must be equal for two runs to be compared.
struct KeyField {
  std::string name, value;
  friend bool operator==(const KeyField&, const KeyField&) = default;
};

/// A class of devices in a record.
struct DeviceShare {
  std::string device_class;
  std::uint64_t count = 0;
  std::uint64_t threads = 1;  ///< a rank on such a device has so many
};

/// The parts of one record that comparing, ranking and tracking need. `data_fingerprint` is that of
/// seed 0 where the data are made from a seed.
struct RunDigest {
  std::filesystem::path record;  ///< the file
  std::string run_id, created_utc, status, git_commit, program_version, reproduce;
  std::string workload, size, precision, graph_hash, data_fingerprint, unit, host;
  std::uint64_t ranks = 0, seed = 0;
  std::uint64_t nodes = 0;  ///< hosts of the ranks; 0: not recorded
  std::optional<std::uint64_t> samples_per_step;
  std::vector<DeviceShare> devices;
  std::uint64_t cores = 0;  ///< logical CPUs that its ranks may use, of all hosts; 0: not recorded
  /// Ranks by the model of their GPU as its driver names it; empty: none is recorded.
  std::map<std::string, std::uint64_t> gpus;
  bool emulated = false;
  std::string severity;   ///< "closed", "review", "open", "invalid"
  bool rankable = false;  ///< only closed runs are
  std::string ruleset;
  std::vector<std::string> reasons;  ///< "duration: at least 300 s measured, found 6.1 s"
  /// workload, ruleset, precision, scale class, build type.
  std::vector<KeyField> key;
  /// The metrics in the order of record_metrics(); absent ones are empty.
  std::vector<std::optional<MetricValue>> metrics{record_metrics().size()};
  /// The metrics of operators by their names; there are some in reports of operators alone.
  std::map<std::string, std::optional<MetricValue>, std::less<>> operator_metrics;
  /// Says how well the error behind the regulated score is known: by "100 wrong answers", or where
  /// there are fewer by all "10000 answers" that there are.
  std::string error_basis;
  std::optional<double> modelled_samples_per_s;  ///< on emulated devices, in modelled time
  std::string quality_name;
  /// Leaves of system, program, scale, config, plan_summary and seeds that say what ran where;
  /// gpus_text() as /system/gpus where there is one.
  RecordLeaves environment;
  /// Leaves of the record's workload but its hash: what is trained, on what.
  RecordLeaves workload_leaves;
  std::string record_sha256, journal_sha256;

  const std::optional<MetricValue>& metric(std::string_view name) const;
  /// The order of runs: by date, and those of one second by their names.
  auto by_date() const { return std::tie(created_utc, run_id); }
  /// The value of a metric, and the interval that the run itself gives.
  std::optional<double> number(std::string_view name) const;
  std::optional<Interval> ci95(std::string_view name) const;
  /// The unit of a metric in this record: only the record knows what a workload counts.
  std::string unit_of(const RecordMetric& metric) const;
  std::string key_text() const;  ///< all fields, one after another
  std::uint64_t device_count() const;
  std::map<std::string, std::uint64_t> class_counts() const;  ///< devices by class
  /// One leaf of the environment; empty: not there.
  std::string leaf(const std::string& path) const { return leaf_at(environment, path); }
  std::string gpus_text() const;  ///< "1 x NVIDIA A100 + 3 x NVIDIA H200"
};

/// Reads record.json of a run, or a report of operators that has times. Throws UserError with the
/// path where it is missing, malformed, of another version, or lacks what every record has.
RunDigest read_run_digest(const std::filesystem::path& record);
RunDigest parse_run_digest(const std::string& text, const std::filesystem::path& record);

/// The configuration that a run was given, without what changes no measurement: its seed, its
/// folder, logs and traces.
RecordLeaves configuration_of(const RunDigest& run);

/// True when a leaf of a configuration changes no measurement.
bool is_without_effect(const std::string& path);

/// The set-up of a run: its configuration, what became of it (plan summary, groups), and its
/// scale (ranks, transport, devices with their threads). Equal for repetitions.
RecordLeaves setup_of(const RunDigest& run);

/// A leaf of two records that differs; an empty text: not there.
struct EnvironmentDifference {
  std::string path, a, b;
};
std::vector<EnvironmentDifference> leaf_differences(const RecordLeaves& a, const RecordLeaves& b);
std::vector<EnvironmentDifference> environment_differences(const RunDigest& a, const RunDigest& b);

/// The paths at which not all of these are alike; an absent leaf counts as an empty one.
std::set<std::string> differing_paths(const std::vector<const RecordLeaves*>& all);

/// The machines of a run in words, as "2 x AMD EPYC 7763, 256 CPUs, NVIDIA H200": CPU
/// (sockets, model, logical CPUs; the host's name where a record lacks one of them) and models of
/// GPUs, several in their proportions. Hosts of one cluster have names of their own, so this tells
/// machines apart: scales with another text are no scales of one system.
std::string machines_text(const RunDigest& run);
/// The same for scales that are held against one another; empty of emulated devices, which are what
/// their description says, on any machine.
std::string scaled_machines(const RunDigest& run);

/// " (4 x NVIDIA H200)", after the classes of a run's devices: ranks by the model of their GPU;
/// empty where there is none, or where the classes say it already.
std::string gpus_beside_classes(const RunDigest& run);

/// "2 x cpu + 1 x cuda (1 x NVIDIA H200)": the run's devices by class, and the models of GPUs that
/// the classes do not say; `times` stands between count and class.
std::string devices_text(const RunDigest& run, const std::string& times);

}  // namespace heteroperf
