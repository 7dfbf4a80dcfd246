#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/statistics.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/document.hpp"
#include "runners/cluster/rank_device.hpp"
#include "runners/engine/engine.hpp"

namespace heteroperf {

/// The wishes of who calls `ops`.
struct OperatorsRequest {
  std::vector<std::string> workloads;  ///< "llm", "image"; empty: both
  std::string size, model;             ///< llm's and image's; empty: micro and resnet18
  std::vector<std::string> devices{"cpu"}, precisions;  ///< no precision: fp32, and bf16 to check
  bool check = false, quick = false, score = false;
  std::uint64_t seed = 1;           ///< the operands of a check are drawn from it
  std::optional<int> threads = {};  ///< none: all usable cores

  /// Adds everything that cannot be asked.
  void validate(ProblemList& problems) const;
  /// With what is taken where nothing was named.
  std::vector<std::string> named_workloads() const, named_precisions() const;
  std::vector<std::string> sized_workloads() const;  ///< "llm micro"
  std::string size_of(const std::string& workload) const;
  int usable_threads() const;
  /// The words of the command line behind the program's name, " ops llm …", but no files.
  std::string words() const;
};

/// An operator of a device in a precision. Only what was asked for is there.
struct OperatorRow {
  std::string name, device, precision;
  std::string status;  ///< "native", "substituted", "missing" or "wrong"
  std::vector<std::string> substituted;
  std::optional<double> ops_per_second, efficiency, roofline_efficiency, seconds, least_s;
  std::optional<double> worst_error, factor, absolute_error, relative_error, nmse, bias;
  std::optional<std::uint64_t> cases, results;
  std::vector<std::uint64_t> units;
  std::optional<bool> repeatable;
  std::vector<std::string> wrong;
};

/// A device on a workload's step: the sum of the least times over the sum of ours.
struct DeviceEfficiency {
  std::string workload, device, precision;
  std::optional<double> efficiency;  ///< none: the device lacks an operator
  std::optional<double> roofline_efficiency;
  std::optional<double> compared;  ///< the share of our time in what LibTorch has an operator for
};

/// A pass of an operator at one shape of a workload.
struct OperatorTiming {
  std::string workload, device, precision, name, shape;
  std::string pass;         ///< "forward" or "backward"
  std::uint64_t count = 0;  ///< so often in a micro-batch
  double least_s = 0;       ///< the shortest sample, as other programs only lengthen them
  std::optional<Interval> ci95;
  std::vector<double> samples_s;  ///< a median of each turn of the measurement
};

struct OperatorReport {
  RunName name;  ///< as a record
  std::vector<OperatorRow> operators;
  std::vector<DeviceEfficiency> devices;
  std::vector<OperatorTiming> timings;
  std::string libtorch, gpu;  ///< its version; the GPU's name, where there is one
  /// The times as entries of the efficiency matrix that plans read.
  EfficiencyMatrix matrix;

  bool is_right() const;
};

/// Checks and times the operators of one device in this process, which must be the only one that
/// it computes on. Throws UserError for a device that this machine lacks.
OperatorReport report_operators(const OperatorsRequest& request, const RankDevice& device,
                                const std::function<void(const std::string&)>& progress);

Document operators_document(const OperatorsRequest& request, const OperatorReport& report);
/// Reads the JSON of a document of another process and adds it.
void add_operators(const std::string& json, const std::string& where, OperatorReport& report);
std::string operators_junit(const OperatorReport& report);

}  // namespace heteroperf
