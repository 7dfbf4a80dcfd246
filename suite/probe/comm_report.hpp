#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "suite/probe/comm_request.hpp"

namespace heteroperf {

/// One way of calling: out of place or in place.
struct CommTiming {
  CallTime time;
  double algbw = 0, busbw = 0;         ///< GB/s, as nccl-tests
  std::optional<std::uint64_t> wrong;  ///< elements, over all ranks
};

/// The measurements at one size.
struct CommResult {
  Bytes bytes{0};  ///< S after rounding
  std::size_t elements = 0;
  Choice choice;
  WireFormat wire = WireFormat::fp32;  ///< the format that really travels between clusters
  CommTiming timing;
  std::optional<CommTiming> in_place;
  /// Between clusters, of one call, all ranks together; absent with one cluster.
  std::optional<BridgeTraffic> traffic;
  std::optional<double> link_utilization;  ///< busiest cluster's bytes / time / its bridges' rate
  std::optional<double> largest_error, rms_error;  ///< with a compressed wire only
};

/// The findings of one `comm` command.
struct CommReport {
  CommRequest request;
  int ranks = 0;
  std::string transport;
  std::string path;  ///< Communicator::path()
  RankClusters clusters;
  std::vector<std::string> hosts;    ///< by rank
  std::vector<std::string> devices;  ///< by rank, with their library; empty where they are CPUs
  std::vector<CommResult> results;
  std::optional<PaceReport> pace;  ///< says how well all ranks together kept to modelled links
  bool ended = false;              ///< every size was measured
  std::optional<Error> failure;
  std::vector<int> failed_ranks;

  /// "complete", "partial" (under way, or stopped by the user), "failed".
  const char* status() const;
  /// Elements that were not what they should be, over all sizes.
  std::uint64_t wrong_elements() const;
  /// Against what was asked of the ranks, once all sizes are measured.
  struct Verdict {
    const char* name;    ///< "pass", "regression" (below --min-bw) or "wrong"
    std::string reason;  ///< empty: pass
  };
  Verdict verdict() const;
  bool emulated() const { return request.pace.has_value(); }
  double best_busbw() const;
};

std::string comm_json_text(const CommReport& report);
/// Lines for people before the first row.
std::string comm_heading(const CommReport& report);
enum class CommForm { table, csv };
/// The last result as a row, the first one after the names of the columns.
std::string comm_row(const CommReport& report, CommForm form);

}  // namespace heteroperf
