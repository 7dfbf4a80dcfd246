// Refuses a run that would end in the out-of-memory killer before it has written anything. Memory
// of a host is shared by its ranks: the mean demand is held against the mean share, so a pipeline
// whose first stage is larger than its last passes as long as the host holds both. A GPU belongs to
// its own ranks, so each of them is held against its device and the fullest is named.
#include "suite/run/memory_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// A memory and what is to lie in it, in bytes. `available` is 0 where the size is not known;
/// nothing is refused then.
struct MemoryDemand {
  std::string where;
  double needed = 0, available = 0;
  double fullness() const { return available > 0 ? needed / available : 0; }
};

MemoryDemand host_demand(const std::vector<double>& needed_bytes,
                         const std::vector<RankBinding>& bindings, std::uint64_t host_bytes) {
  MemoryDemand demand{"per rank", 0, static_cast<double>(host_bytes)};
  std::size_t ranks = 0;
  for (std::size_t r = 0; r < bindings.size(); ++r) {
    if (bindings[r].gpu) continue;
    demand.needed += needed_bytes[r];
    ++ranks;
  }
  demand.needed /= static_cast<double>(std::max<std::size_t>(1, ranks));
  return demand;
}

/// The demand of the rank whose GPU is the fullest. Without any GPU it is a demand of 0 bytes,
/// which is never refused.
MemoryDemand gpu_demand(const std::vector<double>& needed_bytes,
                        const std::vector<RankBinding>& bindings) {
  MemoryDemand fullest;
  for (std::size_t r = 0; r < bindings.size(); ++r) {
    const RankBinding& binding = bindings[r];
    if (!binding.gpu) continue;
    MemoryDemand demand{
        fmt::format("on the GPU of rank {} ({} of {})", r, binding.device, binding.host),
        needed_bytes[r], static_cast<double>(binding.gpu_memory_bytes)};
    if (demand.fullness() > fullest.fullness()) fullest = std::move(demand);
  }
  return fullest;
}

}  // namespace

void check_memory(const Workload& workload, const std::vector<double>& needed_bytes,
                  const std::vector<RankBinding>& bindings, std::uint64_t host_bytes,
                  ProblemList& problems) {
  HETEROPERF_EXPECT(needed_bytes.size() == bindings.size());
  for (const MemoryDemand& demand :
       {host_demand(needed_bytes, bindings, host_bytes), gpu_demand(needed_bytes, bindings)}) {
    if (demand.fullness() <= 1) continue;
    problems.add(fmt::format("{} of size {} needs {} {}", workload.name, workload.size,
                             rounded_byte_size(demand.needed), demand.where),
                 rounded_byte_size(demand.available) + " available",
                 "Use fewer --ranks, a smaller --micro-batch or a smaller --size");
  }
}

}  // namespace heteroperf
