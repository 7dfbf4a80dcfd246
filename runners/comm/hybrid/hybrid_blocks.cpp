// Collectives whose vector is made of one block per rank.
#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"
#include "runners/comm/hybrid/hybrid_setup.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {

void HybridGroup::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == total_of(counts));
  if (cluster_count() == 1) return world_->all_gather(mine, all, counts);
  if (all.count == 0) return;
  convert(mine, part_of(all, block_of(counts, self())));
  const LanePlan& plan = plans_->broadcasts();
  const std::size_t segment = longest_segment(all.type, WireFormat::fp32);
  PipelineCall call = call_over(plan, plans_->cut_blocks(plan, counts, segment));
  call.result = all;
  // Segments of all clusters alternate.
  call.window *= cluster_count();
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                 Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == total_of(counts));
  const WireFormat wire = bridge_wire(config_, all.type, reduction);
  if (cluster_count() == 1) return world_->reduce_scatter(all, mine, counts, reduction);
  if (all.count == 0) return;
  const DataType partial = partial_type(all.type, reduction);
  if (partial == DataType::i64 && all.type != partial) {
    const std::size_t width = size_of(partial);
    std::byte* const memory =
        scratch_.slot(scratch_slots::partial, (all.count + mine.count) * width);
    const MutableBuffer wide(memory, all.count, partial);
    const MutableBuffer reduced(memory + all.count * width, mine.count, partial);
    convert(all, wide);
    reduce_scatter(wide, reduced, counts, Reduction::sum);
    return finish(reduced, mine, reduction, size());
  }
  const LanePlan& plan = plans_->reductions();
  PipelineCall call =
      call_over(plan, plans_->cut_own_block(plan, counts, longest_segment(all.type, wire), self()));
  call.mine = all;
  call.result = mine;
  call.reduction = reduction;
  call.wire = wire;
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                             Counts from_each) {
  world_->all_to_all(mine, to_each, theirs, from_each);
  for (std::size_t to = 0; to < ranks(); ++to) {
    count_sent(RankId(static_cast<std::int32_t>(to)), to_each[to] * size_of(mine.type));
  }
}

}  // namespace heteroperf
