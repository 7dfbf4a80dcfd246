#include "tests/unit/runners/engine/gradient_cases.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"
#include "runners/engine/gradients/sum_plan.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf::test {
namespace {

using Ranks = std::vector<int>;

StageReplica replica(const Ranks& ranks, std::int64_t micro_batch, int direction = 0) {
  StageReplica made;
  for (const int rank : ranks) made.ranks.emplace_back(rank);
  made.micro_batch = micro_batch;
  made.direction = direction;
  return made;
}

/// Stages begin at the named nodes; the first at the graph's.
Plan plan_of(const ModelGraph& graph, const std::vector<std::string>& cuts,
             std::vector<std::vector<StageReplica>> replicas) {
  Plan plan;
  plan.stages.resize(cuts.size() + 1);
  StageId stage;
  for (const Node& node : graph.nodes()) {
    if (stage.index() < cuts.size() && node.name == cuts[stage.index()]) ++stage;
    plan.stages[stage].nodes.push_back(node.name);
  }
  for (const StageId s : plan.stages.ids()) {
    plan.stages[s].replicas = std::move(replicas[s.index()]);
  }
  return plan;
}

GradientCase make(std::string name, ModelGraph graph, const std::vector<std::string>& cuts,
                  std::vector<std::vector<StageReplica>> replicas) {
  Plan plan = plan_of(graph, cuts, std::move(replicas));
  return {std::move(name), std::move(graph), std::move(plan)};
}

/// What a schedule would say: by segment, second directions behind the first ones.
std::vector<RankRole> roles_of(const Plan& plan) {
  std::vector<RankRole> roles(static_cast<std::size_t>(plan.ranks()));
  const int stages = static_cast<int>(plan.stages.size());
  for (const int direction : {0, 1}) {
    for (const StageId s : plan.stages.ids()) {
      const auto& replicas = plan.stages[s].replicas;
      for (const ReplicaId r : replicas.ids()) {
        if (replicas[r].direction != direction) continue;
        for (std::size_t i = 0; i < replicas[r].ranks.size(); ++i) {
          roles[replicas[r].ranks[i].index()].parts.push_back(
              {SegmentId(s.value() + direction * stages), s, r, static_cast<int>(i)});
        }
      }
    }
  }
  return roles;
}

double drawn(const GradientCase& given, std::uint64_t step, StageId stage, ReplicaId replica,
             NodeId node, std::size_t index, std::int64_t element) {
  const auto key =
      random_bits(step, static_cast<std::uint64_t>(stage.value() * 1000 + replica.value()),
                  static_cast<std::uint64_t>(node.value()) * 8 + index);
  const auto& replicas = given.plan.stages[stage].replicas;
  const auto share = static_cast<double>(replicas[replica].micro_batch) /
                     static_cast<double>(given.plan.micro_batch_samples());
  return share * (to_unit(random_bits(key, static_cast<std::uint64_t>(element))) - 0.5);
}

/// Number in the full parameter of every element of a shard, in the order of the contiguous shape.
std::vector<std::int64_t> full_elements(const Shape& full, const ParameterShard& shard) {
  std::vector<std::int64_t> elements;
  for (std::int64_t i = 0; i < element_count(full); ++i) {
    std::int64_t inner = 1;
    for (std::size_t d = shard.dim + 1; d < full.size(); ++d) inner *= full[d];
    const std::int64_t row = i / inner % full[shard.dim];
    bool held = shard.whole();
    for (const auto& interval : shard.intervals) {
      held = held || (row >= interval.first && row < interval.first + interval.count);
    }
    if (held) elements.push_back(i);
  }
  return elements;
}

const GradientFamily& family_of(const std::vector<GradientFamily>& families,
                                const StagedGraph& staged, const HeldParameter& held,
                                StageId stage) {
  for (const GradientFamily& family : families) {
    if (family.is_tied() && staged.tied[family.tied].owner == held.node && held.index == 0) {
      return family;
    }
  }
  return *std::find_if(families.begin(), families.end(), [&](const GradientFamily& family) {
    return !family.is_tied() && family.stages.front() == stage;
  });
}

const GradientFamily::Copy& copy_of(const GradientFamily& family, RankId rank) {
  return *std::find_if(family.copies.begin(), family.copies.end(), [&](const auto& copy) {
    return std::find(copy.ranks.begin(), copy.ranks.end(), rank) != copy.ranks.end();
  });
}

double sum_of(const GradientCase& given, const GradientFamily& family, std::uint64_t step,
              NodeId node, std::size_t index, std::int64_t element) {
  double sum = 0;
  for (std::size_t c = 0; c < family.copies.size(); ++c) {
    const auto& copy = family.copies[c];
    const double own = drawn(given, step, copy.stage, copy.replica, node, index, element);
    sum = c == 0 ? own : sum + own;
  }
  return sum;
}

}  // namespace

std::vector<GradientCase> gradient_cases() {
  const auto one = [](const Ranks& ranks) { return std::vector<StageReplica>{replica(ranks, 4)}; };
  const std::string cut = "block1.norm1";
  std::vector<GradientCase> cases;
  cases.push_back(make("one rank", tiny_gpt(), {}, {one({0})}));
  cases.push_back(make("dp 3:1", tiny_cnn(), {}, {{replica({0}, 3), replica({1}, 1)}}));
  cases.push_back(
      make("dp 5:2:1", tiny_gpt(), {}, {{replica({0}, 5), replica({1}, 2), replica({2}, 1)}}));
  cases.push_back(make("tp2 dp2", tiny_gpt(), {}, {{replica({0, 1}, 2), replica({2, 3}, 2)}}));
  cases.push_back(make("tp 2 and 1", tiny_gpt(), {}, {{replica({0, 1}, 3), replica({2}, 1)}}));
  cases.push_back(make("tp 1, 4 and 2", tiny_gpt(), {},
                       {{replica({6}, 1), replica({0, 1, 2, 3}, 4), replica({4, 5}, 2)}}));
  cases.push_back(make("dp 3 and 1", tiny_gpt(), {cut},
                       {{replica({0}, 2), replica({1}, 1), replica({2}, 1)}, one({3})}));
  cases.push_back(
      make("two directions", tiny_gpt(), {cut},
           {{replica({0}, 4), replica({1}, 4, 1)}, {replica({1}, 4), replica({0}, 4, 1)}}));
  cases.push_back(
      make("tied within a stage", tiny_llama(), {}, {{replica({0}, 1), replica({1}, 1)}}));
  cases.push_back(make("tied", tiny_llama(), {cut}, {one({0}), one({1})}));
  cases.push_back(make("tied, dp 2 and 1", tiny_llama(), {cut},
                       {{replica({0}, 3), replica({1}, 1)}, one({2})}));
  cases.push_back(
      make("tied, two directions", tiny_llama(), {cut},
           {{replica({0}, 4), replica({1}, 4, 1)}, {replica({1}, 4), replica({0}, 4, 1)}}));
  cases.push_back(make("tied, tp 2 and 1", tiny_llama(), {cut}, {one({0, 1}), one({2})}));
  cases.push_back(make("tied, both stages on a rank, dp 2", tiny_llama(), {cut},
                       {{replica({0}, 3), replica({1}, 1)}, {replica({0}, 3), replica({1}, 1)}}));
  cases.push_back(make("two directions meet", tiny_gpt(), {"block0.norm2", cut},
                       {{replica({0}, 4), replica({2}, 4, 1)},
                        {replica({1}, 4), replica({1}, 4, 1)},
                        {replica({2}, 4), replica({0}, 4, 1)}}));
  cases.push_back(
      make("pp2 tp2 dp2", tiny_llama(), {cut},
           {{replica({0, 1}, 1), replica({2, 3}, 1)}, {replica({4, 5}, 1), replica({6, 7}, 1)}}));
  return cases;
}

GradientRig::GradientRig(const GradientCase& the_case, Communicator& world,
                         const ReductionConfig& config)
    : given(the_case),
      rank(world.rank()),
      staged(cut_graph(given.graph, given.plan)),
      share(rank_share(given.graph, staged, given.plan,
                       roles_of(given.plan).at(world.rank().index()))),
      store(given.graph, share.parameters, Precision::fp64, 7),
      reducer(world, given.graph, staged, given.plan, share, store, config) {}

void GradientRig::draw(std::uint64_t step) {
  const auto families = gradient_families(staged, given.plan);
  for (std::size_t o = 0; o < store.count(); ++o) {
    const HeldParameter& held = store.place(o).held;
    const GradientFamily& family =
        family_of(families, staged, held, share.parts[held.part].role.stage);
    const GradientFamily::Copy& copy = copy_of(family, rank);
    const Shape& full = given.graph.node(held.node).parameters[held.index].shape;
    const at::Tensor values = at::empty(held.shape, store.master().options());
    double* value = values.mutable_data_ptr<double>();
    for (const std::int64_t element : full_elements(full, held.shard)) {
      *value++ = drawn(given, step, copy.stage, copy.replica, held.node, held.index, element);
    }
    at::Tensor(store.gradient(held.node, held.index)).copy_(values);
  }
}

void GradientRig::reduce_all() {
  for (std::size_t part = 0; part < share.parts.size(); ++part) reducer.reduce(part);
  for (std::size_t part = 0; part < share.parts.size(); ++part) reducer.reduce_tied(part);
}

void GradientRig::expect_sums(std::uint64_t step) const {
  const auto families = gradient_families(staged, given.plan);
  const auto owned = reducer.owned();
  const auto owns = [&](std::int64_t at) {
    return std::any_of(owned.begin(), owned.end(), [&](const ArenaRange& range) {
      return at >= range.begin && at < range.end;
    });
  };
  const double* arena = store.reduced_gradient().const_data_ptr<double>();
  for (std::size_t o = 0; o < store.count(); ++o) {
    const ParameterStore::Place& place = store.place(o);
    const HeldParameter& held = place.held;
    const StageId stage = share.parts[held.part].role.stage;
    const GradientFamily& family = family_of(families, staged, held, stage);
    const Shape& full = given.graph.node(held.node).parameters[held.index].shape;
    const at::Tensor expected = at::empty(held.shape, store.master().options());
    double* value = expected.mutable_data_ptr<double>();
    for (const std::int64_t element : full_elements(full, held.shard)) {
      *value++ = sum_of(given, family, step, held.node, held.index, element);
    }
    // In the order of memory, as the arena is.
    at::Tensor placed = store.gradient(held.node, held.index).clone();
    placed.copy_(expected);
    const auto* sums = static_cast<const double*>(placed.const_data_ptr());
    for (std::int64_t i = 0; i < place.count; ++i) {
      if (!owns(place.offset + i)) continue;
      ASSERT_EQ(arena[place.offset + i], sums[i])
          << given.name << ": " << given.graph.node(held.node).name << " " << i;
    }
  }
}

double expected_square_sum(const GradientCase& given, std::uint64_t step) {
  const StagedGraph staged = cut_graph(given.graph, given.plan);
  const auto families = gradient_families(staged, given.plan);
  double sum = 0;
  for (std::size_t n = 0; n < given.graph.nodes().size(); ++n) {
    const NodeId id(static_cast<std::int32_t>(n));
    for (std::size_t i = 0; i < given.graph.node(id).parameters.size(); ++i) {
      const Shape& shape = given.graph.node(id).parameters[i].shape;
      const GradientFamily& family =
          family_of(families, staged, {id, i, shape, {}, 0}, staged.stage_of[n]);
      for (std::int64_t e = 0; e < element_count(shape); ++e) {
        const double g = sum_of(given, family, step, id, i, e);
        sum += g * g;
      }
    }
  }
  return sum;
}

std::string train_checked(const GradientCase& given, Communicator& world,
                          const ReductionConfig& config, int zero_stage) {
  GradientCase variant = given;
  variant.plan.zero_stage = zero_stage;
  GradientRig rig(variant, world, config);
  OptimizerRecipe recipe;
  recipe.kind = OptimizerKind::adamw;
  recipe.weight_decay = 0.1;
  recipe.decay_matrices_only = true;
  Optimizer optimizer(recipe, rig.store, rig.reducer.owned());
  for (std::uint64_t step = 0; step < 2; ++step) {
    rig.draw(step);
    rig.reduce_all();
    rig.reducer.wait();
    rig.expect_sums(step);
    double square_sum = rig.reducer.own_square_sum();
    world.all_reduce(std::span<double>(&square_sum, 1));
    const double expected = expected_square_sum(given, step);
    EXPECT_NEAR(square_sum, expected, 1e-12 * expected) << given.name;
    optimizer.update(0.01, 1.0);
    rig.reducer.share_parameters();
  }
  return rig.store.fingerprint();
}

}  // namespace heteroperf::test
