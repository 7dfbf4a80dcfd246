#pragma once

#include <functional>
#include <memory>

#include "runners/comm/benchmark/operation_deadline.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/world.hpp"
#include "suite/probe/comm_report.hpp"

namespace heteroperf {

/// One rank's part of a `comm` command: builds the communicator that was asked for and measures
/// every size. Results are equal on all ranks.
class CommSession {
 public:
  /// Collective. Throws UserError for a request that does not fit the world. `request` and `world`
  /// outlive it.
  CommSession(const CommRequest& request, World& world);

  /// Returns the report with everything that is known before the first size.
  CommReport heading() const;
  /// Collective.
  CommResult measure(Bytes size);
  /// Collective. Nothing when links are not paced.
  std::optional<PaceReport> pace() const;

 private:
  Communicator& harness() const { return *world_.communicator; }
  void check_fit() const;
  void check_memory() const;
  void build_hybrid();
  void build_on_devices();
  /// The settings of a hybrid that do not depend on the transport.
  HybridConfig hybrid_config() const;
  CommTiming time(const CaseShape& shape, const CommResult& result);
  /// Runs the case once more on fresh inputs and counts, over all ranks, elements beyond the
  /// tolerance.
  std::uint64_t wrong_elements(CollectiveCase& test, const Tolerance& tolerance);
  Tolerance tolerance(WireFormat wire) const;
  /// Returns the format in which values travel between clusters in that case.
  WireFormat wire_of(const CaseShape& shape, const Choice& choice) const;
  void measure_traffic(CollectiveCase& test, CommResult& result);

  const CommRequest& request_;
  World& world_;
  RankClusters clusters_;
  std::vector<RankDescriptor> descriptors_;
  std::optional<CostModel> model_;
  std::unique_ptr<Communicator> group_;
  const Communicator* paced_ = nullptr;   ///< inside group_
  HybridCommunicator* hybrid_ = nullptr;  ///< group_, unless the native library does everything
  OperationDeadline deadline_;
  Deviation deviation_;  ///< the last check's, all ranks together
  std::uint64_t seed_ = 0;
};

}  // namespace heteroperf
