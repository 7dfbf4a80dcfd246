// Closed forms of a pipeline's time against its exact clock, and what depth and coarse wires gain
// on slow links. Three tables:
//   1. random pipelines: 2, 4, 8 or 12 stages, as many to eight times as many micro-batches, speeds
//      spread 0.6 to 1.4, backward twice forward; errors of the formulas, gain of twice the warm-up
//   2. the planner's best drafts on random mixed clusters: error of its own formula, and what its
//      first choice by formula alone would cost
//   3. the search on clusters with slow links: with the schedules' own depths and float32, with
//      depth, with coarse wires, with both
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"
#include "tests/unit/runners/plan/search/random_cluster.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// Of fractions.
class Spread {
 public:
  void add(double value) { values_.push_back(value); }
  std::string text() const {
    double sum = 0;
    for (const double one : values_) sum += one;
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    return fmt::format("{:+6.1f} % ({:+.1f} to {:+.1f})",
                       100 * sum / static_cast<double>(values_.size()), 100 * *least, 100 * *most);
  }

 private:
  std::vector<double> values_;
};

std::vector<ClockStage> random_pipeline(std::mt19937_64& random, double message_s) {
  constexpr int counts[] = {2, 4, 8, 12};
  std::vector<ClockStage> stages(static_cast<std::size_t>(counts[random() % 4]));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double forward_s = 0.6 + 0.8 * static_cast<double>(random() >> 11) * 0x1p-53;
    stages[s] = {forward_s,
                 0,
                 forward_s,
                 forward_s,
                 message_s,
                 message_s,
                 static_cast<int>(stages.size() - 1 - s)};
  }
  return stages;
}

struct Sums {
  double work = 0, messages = 0, slowest = 0, slowest_with_messages = 0;
  explicit Sums(const std::vector<ClockStage>& stages) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const double after = s + 1 < stages.size() ? stages[s].activation_s : 0;
      const double before = s > 0 ? stages[s - 1].gradient_s : 0;
      work += stages[s].work_s();
      messages += after + before;
      slowest = std::max(slowest, stages[s].work_s());
      slowest_with_messages = std::max(slowest_with_messages, stages[s].work_s() + after + before);
    }
  }
};

void formulas() {
  fmt::print(
      "message / forward   (M-1) max t + sum t + sum c    (M-1) max(t+c) + sum t + sum c   "
      "round trips            twice the warm-up\n");
  for (const double message_s : {0.0, 0.1, 0.3, 1.0}) {
    std::mt19937_64 random(1);
    Spread plain, with_messages, own, deeper;
    for (int i = 0; i < 400; ++i) {
      std::vector<ClockStage> stages = random_pipeline(random, message_s);
      const auto count = static_cast<int>(stages.size());
      const int micro_batches =
          count + static_cast<int>(random() % static_cast<unsigned>(7 * count + 1));
      const double exact = pipeline_ends(stages, micro_batches).front();
      const Sums sums(stages);
      const double others = micro_batches - 1;
      plain.add((others * sums.slowest + sums.work + sums.messages) / exact - 1);
      with_messages.add((others * sums.slowest_with_messages + sums.work + sums.messages) / exact -
                        1);
      own.add(pipeline_estimate(stages, micro_batches) / exact - 1);
      for (ClockStage& stage : stages) stage.warm_up = std::min(micro_batches, 2 * stage.warm_up);
      deeper.add(pipeline_ends(stages, micro_batches).front() / exact - 1);
    }
    fmt::print("{:17} {:>30} {:>32} {:>27} {:>26}\n", message_s, plain.text(), with_messages.text(),
               own.text(), deeper.text());
  }
}

PlanningRequest request_for(std::uint64_t seed, const Cluster& cluster) {
  PlanningRequest request;
  request.batch = RandomCluster::batch(seed, static_cast<int>(cluster.ranks.size()));
  return request;
}

void drafts_by_formula(const ModelGraph& graph) {
  Spread error, loss;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Cluster cluster = RandomCluster().draw(seed);
    const GraphProblem problem(graph, cluster, request_for(seed, cluster));
    PlanSearchOptions options;
    options.time_limit_s = 600;
    const SearchOutcome outcome = search_drafts(problem.problem(), options);
    const DraftScorer scorer(problem.problem());
    double first = 0, chosen = 0;
    for (const ScoredDraft& one : outcome.best) {
      const double estimate = scorer.estimate(one.draft).step_time_s;
      error.add(estimate / one.score.step_time_s - 1);
      if (chosen == 0 || estimate < first) first = estimate, chosen = one.score.step_time_s;
    }
    loss.add(chosen / outcome.best.front().score.step_time_s - 1);
  }
  fmt::print(
      "\nbest drafts on 20 random clusters: the formula is off by {}, its first choice takes {} "
      "more\n",
      error.text(), loss.text());
}

double searched_s(const GraphProblem& problem, bool deeper, WireFormat wire) {
  PlanSearchOptions options;
  options.time_limit_s = 600;
  options.moves.deeper_warm_ups = deeper;
  options.moves.coarsest_wire = wire;
  options.moves.schedules = {"1f1b"};
  return search_drafts(problem.problem(), options).best.front().score.step_time_s;
}

/// Two classes of one device each, so that a cut must lie on the link between them.
Cluster slow_link(double bandwidth, double latency_s) {
  Cluster cluster;
  cluster.name = "two devices";
  for (const char* name : {"a", "b"}) {
    DeviceClass device;
    device.name = name;
    device.kind = DeviceKind::paced;
    device.memory = Bytes(3ull << 30);
    device.rates["fp32"] = OpsPerSecond(20e12);
    cluster.classes.push_back(device);
    cluster.efficiency.push_back({name, "memory", "stream", "fp32", OpsPerSecond(1e12), "given"});
    for (int d = 0; d < 4; ++d) cluster.ranks.push_back({name, name, name, {}});
    cluster.links.push_back(
        {name, name, {}, LinkCurve(Seconds(1e-5), BytesPerSecond(50e9)), "given"});
  }
  cluster.links.push_back(
      {"a", "b", {}, LinkCurve(Seconds(latency_s), BytesPerSecond(bandwidth)), "given"});
  return cluster;
}

void slow_links(const ModelGraph& graph) {
  fmt::print(
      "\nlink GB/s   1f1b, fp32      depth       bf16       int8  depth, bf16  depth, int8   (1f1b "
      "= 1)\n");
  for (const double bandwidth : {10e9, 3e9, 1e9, 0.3e9, 0.1e9}) {
    const Cluster cluster = slow_link(bandwidth, 1e-3);
    PlanningRequest request;
    request.batch = 64;
    const GraphProblem problem(graph, cluster, request);
    const double plain = searched_s(problem, false, WireFormat::fp32);
    fmt::print("{:9} {:10.3f} s", bandwidth / 1e9, plain);
    for (const auto& [deeper, wire] :
         {std::pair(true, WireFormat::fp32), std::pair(false, WireFormat::bf16),
          std::pair(false, WireFormat::int8), std::pair(true, WireFormat::bf16),
          std::pair(true, WireFormat::int8)}) {
      fmt::print(" {:10.3f}", searched_s(problem, deeper, wire) / plain);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace heteroperf

int main() {
  heteroperf::formulas();
  heteroperf::drafts_by_formula(heteroperf::build_model("gpt2-xl"));
  heteroperf::slow_links(heteroperf::build_model("gpt2"));
  return 0;
}
