#include "runners/engine/gradients/gradient_reducer.hpp"

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/concurrent_use.hpp"
#include "runners/engine/gradients/sum_plan.hpp"
#include "runners/engine/gradients/sum_queue.hpp"
#include "runners/engine/parameters/square_sum.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t none = ~std::size_t{0};

/// Enough of them to begin early, few enough that their latency does not tell. The same on all
/// ranks.
std::size_t bucket_size(const ReductionConfig& config, const ModelGraph& graph, const Plan& plan) {
  if (config.bucket_bytes > 0) return config.bucket_bytes;
  constexpr std::size_t least = 64u << 10, most = 4u << 20, of_a_stage = 8;
  const std::size_t all = static_cast<std::size_t>(count_graph(graph).parameters) * sizeof(float);
  return std::clamp(all / plan.stages.size() / of_a_stage, least, most);
}

bool tensor_parallel(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [](const PlanStage& stage) {
    return std::any_of(stage.replicas.begin(), stage.replicas.end(),
                       [](const StageReplica& r) { return r.ranks.size() > 1; });
  });
}

}  // namespace

class GradientReducer::Implementation {
 public:
  Implementation(Communicator& world, const ModelGraph& graph, const StagedGraph& staged,
                 const Plan& plan, const RankShare& share, ParameterStore& store,
                 const ReductionConfig& config)
      : store_(store), sliced_(plan.zero_stage > 0) {
    const std::vector<GradientFamily> families = gradient_families(staged, plan);
    GradientGroups groups(world, config.devices, families);
    SumPlan sums = plan_sums(graph, staged, plan, world.rank(), store, families, groups,
                             bucket_size(config, graph, plan));
    owned_ = sliced_ ? std::move(sums.owned) : std::vector<ArenaRange>{{0, store.elements()}};
    counted_ = std::move(sums.counted);
    note_parts(share, sums);

    std::vector<SumQueue::Entry> entries;
    sum_of_.assign(store.count(), none);
    for (SumPlan::Sum& sum : sums.sums) {
      for (const std::size_t ordinal : sum.parameters) sum_of_[ordinal] = entries.size();
      entries.push_back({std::move(sum.sum), sum.parameters.size()});
    }
    reason_ = config.overlap == ReductionConfig::Overlap::off ? "switched off"
              : entries.empty()                               ? "nothing is summed on this rank"
              : config.devices != nullptr && tensor_parallel(plan)
                  ? "groups of one GPU take turns: it also sums for tensor parallelism"
                  : one_thread_reason(world);
    queue_ = std::make_unique<SumQueue>(
        groups.release(), std::move(entries),
        reason_.empty() ? SumQueue::Runner::own_thread : SumQueue::Runner::caller, config.memory);
    begin_step();
  }

  void ready(std::size_t ordinal) {
    if (!shared_.at(ordinal)) set_final(ordinal);
  }
  void reduce(std::size_t part) {
    for (const std::size_t ordinal : parameters_of_.at(part)) set_final(ordinal);
  }
  void reduce_tied(std::size_t part) {
    for (const std::size_t ordinal : tied_of_.at(part)) {
      if (missing_parts_[ordinal] > 0 && --missing_parts_[ordinal] == 0) set_final(ordinal);
    }
  }
  void wait() {
    for (std::size_t ordinal = 0; ordinal < final_.size(); ++ordinal) set_final(ordinal);
    queue_->finish_step();
    begin_step();
  }
  void trace_to(std::vector<LaneSpan>* lanes) { queue_->trace_to(lanes); }
  void share_parameters() {
    if (!sliced_ || queue_->size() == 0) return;
    queue_->share();
    store_.publish();
  }

  const std::vector<ArenaRange>& owned() const { return owned_; }
  const std::vector<ArenaRange>& counted() const { return counted_; }
  double own_square_sum() const { return square_sum(store_.reduced_gradient(), counted_); }
  const SumQueue& queue() const { return *queue_; }
  const std::string& overlap_reason() const { return reason_; }

 private:
  void note_parts(const RankShare& share, const SumPlan& sums) {
    const std::size_t parts = share.parts.size();
    parameters_of_.resize(parts);
    tied_of_.resize(parts);
    shared_.resize(store_.count());
    parts_using_.resize(store_.count());
    for (std::size_t ordinal = 0; ordinal < store_.count(); ++ordinal) {
      for (std::size_t part = 0; part < parts; ++part) {
        const std::vector<int>& users = sums.users[ordinal];
        const int stage = share.parts[part].role.stage;
        if (std::find(users.begin(), users.end(), stage) == users.end()) continue;
        (sums.tied[ordinal] ? tied_of_ : parameters_of_)[part].push_back(ordinal);
        ++parts_using_[ordinal];
      }
      shared_[ordinal] = sums.tied[ordinal] || parts_using_[ordinal] > 1;
    }
  }

  void begin_step() {
    final_.assign(store_.count(), false);
    missing_parts_ = parts_using_;
  }

  void set_final(std::size_t ordinal) {
    if (final_.at(ordinal)) return;
    final_[ordinal] = true;
    if (sum_of_[ordinal] != none) queue_->parameter_final(sum_of_[ordinal]);
  }

  ParameterStore& store_;
  bool sliced_;
  std::vector<ArenaRange> owned_, counted_;
  std::vector<std::vector<std::size_t>> parameters_of_, tied_of_;  ///< ordinals, by part
  std::vector<std::size_t> sum_of_;                                ///< by ordinal
  std::vector<bool> shared_;  ///< by ordinal: no single part of this rank can call it final
  std::vector<int> parts_using_, missing_parts_;
  std::vector<bool> final_;
  std::string reason_;
  std::unique_ptr<SumQueue> queue_;
};

GradientReducer::GradientReducer(Communicator& world, const ModelGraph& graph,
                                 const StagedGraph& staged, const Plan& plan,
                                 const std::vector<RankRole>& roles, const RankShare& share,
                                 ParameterStore& store, const ReductionConfig& config) {
  HETEROPERF_EXPECT(static_cast<int>(roles.size()) == world.size());
  implementation_ =
      std::make_unique<Implementation>(world, graph, staged, plan, share, store, config);
}
GradientReducer::~GradientReducer() = default;

void GradientReducer::ready(std::size_t ordinal) { implementation_->ready(ordinal); }
void GradientReducer::reduce(std::size_t part) { implementation_->reduce(part); }
void GradientReducer::reduce_tied(std::size_t part) { implementation_->reduce_tied(part); }
void GradientReducer::wait() { implementation_->wait(); }
std::vector<GradientReducer::Range> GradientReducer::owned() const {
  return implementation_->owned();
}
const std::vector<ArenaRange>& GradientReducer::counted() const {
  return implementation_->counted();
}
void GradientReducer::trace_to(std::vector<LaneSpan>* lanes) { implementation_->trace_to(lanes); }
void GradientReducer::share_parameters() { implementation_->share_parameters(); }
double GradientReducer::own_square_sum() const { return implementation_->own_square_sum(); }
double GradientReducer::busy_s() const { return implementation_->queue().busy_s(); }
double GradientReducer::exposed_s() const { return implementation_->queue().exposed_s(); }
const std::string& GradientReducer::overlap_reason() const {
  return implementation_->overlap_reason();
}
std::size_t GradientReducer::sums() const { return implementation_->queue().size(); }
std::size_t GradientReducer::sums_done() const { return implementation_->queue().done(); }

}  // namespace heteroperf
