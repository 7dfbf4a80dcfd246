#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "metrics/statistics.hpp"
#include "results/comparison/record_metric.hpp"
#include "results/record/ruleset.hpp"

namespace heteroperf {

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

  const std::optional<MetricValue>& metric(std::string_view name) const {
    return metrics[metric_place(name)];
  }
  /// The order of runs: by date, and those of one second by their names.
  auto by_date() const { return std::tie(created_utc, run_id); }
  std::optional<double> number(std::string_view name) const;  ///< the value of a metric
  std::optional<Interval> ci95(
      std::string_view name) const;  ///< the interval that the run itself gives
  /// The unit of a metric in this record: only the record knows what a workload counts.
  std::string unit_of(const RecordMetric& metric) const;
  std::string key_text() const;  ///< all fields, one after another
  std::uint64_t device_count() const;
  std::map<std::string, std::uint64_t> class_counts() const;  ///< devices by class
  std::string leaf(const std::string& path) const {
    return leaf_at(environment, path);
  }                               ///< one leaf of the environment; empty: not there
  std::string gpus_text() const;  ///< "1 x NVIDIA A100 + 3 x NVIDIA H200"
};

/// Reads record.json. Throws UserError with the path where it is missing, malformed, of another
/// version, or lacks what every record has.
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
