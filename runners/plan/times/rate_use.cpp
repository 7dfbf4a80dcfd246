// This file says how much of a plan's predicted computing time rests on measurements.
//
// All passes of all stages and replicas over a step are timed as stage_times() does, and summed by
// class, operation, shape and basis. Every rank of a replica counts, so the seconds are device
// seconds, not the step's. A two-way schedule gives each direction its share of the micro-batches.
// Recomputation is a second forward pass of what is made again.
#include "runners/plan/times/rate_use.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "runners/plan/times/stage_work.hpp"

namespace heteroperf {
namespace {

using Sums =
    std::map<std::tuple<std::string, std::string, std::string, RateBasis>, RateUse::Operation>;

/// Adds `times` passes of an operation on a device.
void add(const ClassRates& rates, const std::string& device, const FusedWork& work,
         TrainingPass pass, double samples, double times, Sums& sums) {
  const PassTime time = pass_time(rates, device, work, pass, samples);
  if (time.seconds <= 0) return;
  const RateBasis basis = !time.measured              ? RateBasis::analytic
                          : time.measured->same_shape ? RateBasis::measured
                                                      : RateBasis::other_shape;
  const std::string& name = work.pass_entries[static_cast<std::size_t>(pass)];
  const std::string shape = work.of(pass, samples).shape.text();
  RateUse::Operation& sum = sums[{device, name, shape, basis}];
  sum.device_class = device;
  sum.operation = name;
  sum.basis = basis;
  sum.shape = shape;
  sum.seconds += time.seconds * times;
  if (time.measured) sum.source = time.measured->entry->source;
}

}  // namespace

double RateUse::seconds() const {
  double sum = 0;
  for (const Operation& operation : operations) sum += operation.seconds;
  return sum;
}

double RateUse::fraction(RateBasis basis) const {
  double sum = 0;
  for (const Operation& operation : operations)
    sum += operation.basis == basis ? operation.seconds : 0;
  const double all = seconds();
  return all > 0 ? sum / all : 0;
}

RateUse rate_use(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                 const Cluster& cluster, Precision precision) {
  const ClassRates rates(cluster, precision);
  StageWorkTable works(graph, staged, precision);
  Sums sums;
  for (const StageId stage : plan.stages.ids()) {
    const auto& replicas = plan.stages[stage].replicas;
    const Recomputation again = plan.stages[stage].recomputation;
    std::set<int> directions;
    for (const StageReplica& replica : replicas) directions.insert(replica.direction);
    // Each replica of a direction runs every pass so often in a step.
    const double passes =
        static_cast<double>(plan.micro_batches) / static_cast<double>(directions.size());
    for (const StageReplica& replica : replicas) {
      const auto degree = static_cast<int>(replica.ranks.size());
      const auto samples = static_cast<double>(replica.micro_batch);
      for (int index = 0; index < degree; ++index) {
        const std::string& device = cluster.ranks[replica.ranks[index].index()].device_class;
        for (const FusedWork& work : works.of(stage, degree, index, replica.part).operations) {
          const bool twice =
              again == Recomputation::full || (again == Recomputation::selective && work.attention);
          for (const TrainingPass pass : training_passes) {
            const double times = pass == TrainingPass::forward && twice ? 2 * passes : passes;
            add(rates, device, work, pass, samples, times, sums);
          }
        }
      }
    }
  }
  RateUse use;
  for (auto& [key, operation] : sums) use.operations.push_back(std::move(operation));
  std::ranges::stable_sort(use.operations, std::ranges::greater{}, &RateUse::Operation::seconds);
  return use;
}

}  // namespace heteroperf
