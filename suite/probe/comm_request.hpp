#pragma once

#include <CLI/App.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/selection/selection.hpp"
#include "suite/config/flag_options.hpp"
#include "suite/ranks/rank_session.hpp"

namespace heteroperf {

/// The measurement that one `comm` command asks for.
struct CommRequest {
  CaseShape shape;  ///< `bytes` is each size in turn
  std::vector<Bytes> sizes;
  RankSession session;
  std::string algorithm = "auto";    ///< as given
  std::vector<SelectionRule> rules;  ///< empty: auto
  WireFormat wire = WireFormat::fp32;
  std::vector<std::string> labels;  ///< one per rank; empty: found out
  std::optional<Cluster> pace;
  int iterations = 0, warmup = 5;
  bool check = false, checksum = false;
  std::optional<double> least_busbw;  ///< GB/s
};

/// "sum", "min", "max", "avg".
const char* reduction_name(Reduction reduction);

/// The flags of `comm`.
class CommFlags {
 public:
  void declare(CLI::App& command);
  bool csv() const { return csv_; }
  const std::string& out() const { return out_; }
  /// Throws UserError with everything that cannot be.
  /// `sets`: of --set, keys of comm.*.
  CommRequest request(const std::vector<std::string>& sets);

 private:
  std::vector<Bytes> sizes(ProblemList& problems) const;
  void set_sum(ProblemList& problems);
  void set_way(ProblemList& problems);

  CommRequest request_;  ///< the parser puts here what needs no more reading
  std::string collective_, first_ = "8", last_ = "64M", type_ = "f32", reduction_ = "sum";
  std::string transport_, wire_ = "fp32", clusters_ = "auto";
  std::string pace_, out_;
  FlagOptions keys_;  ///< the keys of comm.*
  double factor_ = 2;
  std::optional<int> ranks_;
  int root_ = 0;
  bool csv_ = false;
};

}  // namespace heteroperf
