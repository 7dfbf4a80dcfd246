// What the engine itself costs, and what it hides.
//
//   engine_bench overhead [ROUNDS]   microseconds per instruction of the program, besides
//                                    operators: from steps of few and of many micro-batches;
//                                    and per INTERACT, from a step with one set and with many
//   engine_bench overlap [ROUNDS] [MODEL]   share of a paced link's gradient reduction that two
//                                    replicas hide behind their backward passes
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/staged_graph.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

constexpr int warm_up = 3;

TrainingSpec planned(const ModelGraph& graph, const EvenPlanRequest& request) {
  TrainingSpec spec = test::small_training(graph, Precision::fp32);
  spec.use_plan(even_plan(graph, request));
  return spec;
}

double seconds(const StepReport& report) {
  return static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9;
}

struct Program {
  std::size_t instructions = 0;
  double outside_s = 0;  ///< of a step: median
};

/// A picture and a text that are held against one another, those of a micro-batch or of the step.
ModelGraph contrasted(ContrastOver over) {
  ModelGraph graph;
  NodeId left = graph.add("picture", Input{InputKind::images, 3, 2, 2, 0}, {}, "left");
  left = graph.add("flat", Flatten{}, {left}, "left");
  left = graph.add("projection", Linear{8, false, {}}, {left}, "left");
  NodeId right = graph.add("text", Input{InputKind::tokens, 0, 0, 0, 4}, {}, "right");
  right = graph.add("table", Embedding{8, 8}, {right}, "right");
  right = graph.add("vector", TakeToken{0}, {right}, "right");
  graph.add("loss", Contrastive{over, 0.07}, {left, right}, "right");
  return graph;
}

/// Seconds of a step that its components' operators and its data do not take.
double beside_operators(const StepReport& report) {
  double left = seconds(report) - report.split.data_s;
  for (const ComponentStep& component : report.components) left -= component.compute_s.value_or(0);
  return left;
}

double beside_computations(const StepReport& report) {
  return seconds(report) - report.split.compute_s - report.split.data_s;
}

Program time_program(const ModelGraph& graph, const EvenPlanRequest& request, int rounds,
                     double (*outside)(const StepReport&)) {
  const TrainingSpec spec = planned(graph, request);
  Program program;
  program.instructions = spec.ready->schedule.programs.front().size();
  run_on_threads(1, {}, [&](World& world) {
    const auto session = start_training(spec, *world.communicator);
    std::vector<double> samples;
    for (int i = 0; i < warm_up + rounds; ++i) {
      const StepReport report = session->step();
      if (i >= warm_up) samples.push_back(outside(report));
    }
    program.outside_s = median(samples);
  });
  return program;
}

void overhead(int rounds) {
  const ModelGraph graph = test::tiny_gpt();
  const auto timed = [&](int micro_batches) {
    return time_program(graph, {.micro_batches = micro_batches}, rounds, beside_computations);
  };
  const Program few = timed(8), many = timed(256);
  const double per_instruction =
      (many.outside_s - few.outside_s) / static_cast<double>(many.instructions - few.instructions);
  fmt::print("{:.2f} us per instruction besides its operators ({} and {} instructions a step)\n",
             per_instruction * 1e6, few.instructions, many.instructions);
  // Both have the same passes in the same order.
  const EvenPlanRequest request{.micro_batch = 2, .micro_batches = 256, .schedule = "gpipe"};
  const auto sets = [&](ContrastOver over) {
    return time_program(contrasted(over), request, rounds, beside_operators).outside_s;
  };
  const double more_s = sets(ContrastOver::micro_batch) - sets(ContrastOver::step);
  fmt::print("{:.2f} us per INTERACT besides its operator\n", more_s / 255 * 1e6);
}

/// Two ranks, one link of `rate` each way.
Cluster two_hosts(BytesPerSecond rate) {
  Cluster cluster;
  cluster.name = "two hosts";
  cluster.classes.emplace_back();
  cluster.classes.back().name = "cpu";
  for (const char* host : {"a", "b"}) cluster.ranks.push_back({"cpu", host, host, {}});
  Link link;
  link.from = "a";
  link.to = "b";
  link.curve = LinkCurve(Seconds(20e-6), rate);
  link.source = "given";
  cluster.links.push_back(link);
  return cluster;
}

constexpr BytesPerSecond no_limit{1e12};

/// Of two replicas: medians over rounds of a step over a link without limit and one over a thin
/// one, on the same code.
struct Replicas {
  double free_s = 0, paced_s = 0;
};

Replicas time_replicas(const TrainingSpec& spec, BytesPerSecond rate, int rounds) {
  Replicas result;
  run_on_threads(2, {}, [&](World& world) {
    const bool first = world.communicator->rank() == RankId(0);
    const auto near =
        make_paced_communicator(world.communicator->split(0, world.communicator->rank().value()),
                                two_hosts(no_limit), world.control);
    const auto far =
        make_paced_communicator(std::move(world.communicator), two_hosts(rate), world.control);
    const auto free = start_training(spec, *near), paced = start_training(spec, *far);
    std::vector<double> free_s, paced_s;
    for (int i = 0; i < warm_up + rounds; ++i) {
      const double own = seconds(free->step()), other = seconds(paced->step());
      if (i < warm_up) continue;
      free_s.push_back(own);
      paced_s.push_back(other);
    }
    if (first) result = {median(free_s), median(paced_s)};
  });
  return result;
}

void overlap(const std::string& model, int rounds) {
  const ModelGraph graph = build_model(model);
  EvenPlanRequest request;
  request.data = 2;
  request.micro_batch = 8;
  request.micro_batches = 1;
  const TrainingSpec spec = planned(graph, request);
  const double bytes = 4.0 * static_cast<double>(count_graph(graph).parameters);
  const Replicas first = time_replicas(spec, no_limit, rounds);
  fmt::print("{:>12} {:>10} {:>10} {:>10} {:>8}\n", "link MB/s", "alone ms", "free ms", "paced ms",
             "hidden");
  for (const double share : {0.1, 0.2, 0.3, 0.4, 0.5}) {
    // A ring of two sends the gradients once each way.
    const double alone_s = share * first.free_s;
    const Replicas timed = time_replicas(spec, BytesPerSecond(bytes / alone_s), rounds);
    fmt::print("{:>12.1f} {:>10.2f} {:>10.2f} {:>10.2f} {:>7.1f}%\n", bytes / alone_s * 1e-6,
               alone_s * 1e3, timed.free_s * 1e3, timed.paced_s * 1e3,
               100 * (1 - (timed.paced_s - timed.free_s) / alone_s));
  }
}

int run(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const int rounds = count > 2 ? std::atoi(words[2]) : 30;
  if (what == "overhead" && rounds > 0) return overhead(rounds), 0;
  const std::string model = count > 3 ? words[3] : "nano";
  if (what == "overlap" && rounds > 0) return overlap(model, rounds), 0;
  fmt::print(stderr, "Usage: engine_bench overhead|overlap [ROUNDS] [MODEL]\n");
  return 2;
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** words) {
  try {
    return heteroperf::run(count, words);
  } catch (const heteroperf::Error& error) {
    fmt::print(stderr, "engine_bench: {}\n", error.what());
    return 1;
  }
}
