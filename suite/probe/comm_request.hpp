#pragma once

#include <CLI/App.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/selection/selection.hpp"
#include "suite/ranks/rank_session.hpp"

namespace heteroperf {

/// The measurement that one `comm` command asks for.
struct CommRequest {
  CaseShape shape;  ///< `bytes` is each size in turn
  std::vector<Bytes> sizes;
  RankSession session;
  std::string algorithm;             ///< as given
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
  CommRequest request(const std::vector<std::string>& sets) const;

 private:
  std::vector<Bytes> sizes(ProblemList& problems) const;
  void set_sum(CommRequest& request, ProblemList& problems) const;
  void set_way(CommRequest& request, ProblemList& problems) const;

  std::string collective_, first_ = "8", last_ = "64M", type_ = "f32", reduction_ = "sum";
  std::string transport_, algorithm_ = "auto", wire_ = "fp32", clusters_ = "auto";
  std::string host_path_, timeout_s_, join_timeout_s_;  ///< as given
  std::string pace_, out_;
  double factor_ = 2;
  std::optional<double> least_busbw_;
  std::optional<int> ranks_;
  int root_ = 0, iterations_ = 0, warmup_ = 5;
  bool check_ = false, checksum_ = false, csv_ = false;
};

}  // namespace heteroperf
