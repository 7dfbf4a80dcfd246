// Pipeline schedules on emulated devices: the step that was measured beside the simulator's, and
// whether schedules come in the order that was predicted.
//
//   paced_schedules_bench [--ranks 2,4,8] [--steps N] [--dilation D] [--links GBIT] [SCHEDULE...]
//
// A gpt of 16 blocks, 2 micro-batches of one sample per rank, equal devices; `--links` 0: links
// that cost next to nothing. Without a dilation each training finds its own (`pace=auto`). A step
// counts from its start to its end on the wall clock, over the dilation; the median of the steps
// after the one that set it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/times/stage_times.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

constexpr int warm_up = 3;  // cold, the one that sets the dilation, the first with it

struct Arguments {
  std::vector<int> ranks{2, 4, 8};
  int steps = 8;
  double dilation = 0, links_gbit = 0;
  std::vector<std::string> schedules;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word.rfind("--", 0) != 0) {
      arguments.schedules.push_back(word);
      continue;
    }
    if (++i == count) throw UserError(word + " lacks a value");
    if (word == "--steps") {
      arguments.steps = std::atoi(words[i]);
    } else if (word == "--dilation") {
      arguments.dilation = std::atof(words[i]);
    } else if (word == "--links") {
      arguments.links_gbit = std::atof(words[i]);
    } else if (word == "--ranks") {
      arguments.ranks.clear();
      std::istringstream list(words[i]);
      for (std::string n; std::getline(list, n, ',');) arguments.ranks.push_back(std::stoi(n));
    } else {
      throw UserError("unknown option " + word);
    }
  }
  if (arguments.schedules.empty()) {
    for (const Generator& one : generators()) arguments.schedules.push_back(one.name);
  }
  return arguments;
}

/// Equal paced devices, equal links among them.
Cluster devices(int ranks, double gbit) {
  Cluster cluster;
  cluster.name = "equal devices";
  DeviceClass device;
  device.name = "device";
  device.kind = DeviceKind::paced;
  device.rates = {{"fp32", OpsPerSecond(5e8)}};
  cluster.classes.push_back(device);
  for (int r = 0; r < ranks; ++r) cluster.ranks.push_back({"device", "", "all", {}});
  Link link;
  link.from = link.to = "all";
  link.curve =
      LinkCurve(Seconds(gbit > 0 ? 50e-6 : 1e-9), BytesPerSecond(gbit > 0 ? gbit * 1e9 / 8 : 1e15));
  link.source = "given";
  cluster.links.push_back(link);
  return cluster;
}

struct Result {
  std::string schedule;
  double predicted_s = 0, measured_s = 0, dilation = 0, late = 0;
};

Result measure(const Arguments& arguments, const std::string& schedule, int ranks) {
  const ModelGraph graph = test::gpt(16);
  TrainingSpec spec = test::small_training(graph, Precision::fp32);
  EvenPlanRequest request;
  request.pipeline = ranks;
  request.micro_batches = 2 * ranks;
  request.schedule = schedule;
  ScheduleRequest bare;
  bare.ranks = ranks;
  bare.micro_batches = 4 * ranks;
  bare.costs = uniform_costs(ranks, 1, 1, 1, 0);
  bare.most_evaluations = 1;
  request.chunks = find_generator(schedule).make(bare).chunks;
  const TrainingTask task{graph, spec.precision, spec.recipe.kind};
  spec.ready = std::make_shared<const ReadyPlan>(task, even_plan(graph, request),
                                                 devices(ranks, arguments.links_gbit));
  Result result;
  result.schedule = schedule;
  result.predicted_s = spec.ready->predicted().step_time_s;
  spec.pacing = Pacing{*spec.ready->times, arguments.dilation,
                       static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  run_on_threads(ranks, {}, [&](World& world) {
    const auto session = start_training(spec, *world.communicator);
    std::vector<double> steps;
    for (int i = 0; i < warm_up + arguments.steps; ++i) {
      const StepReport report = session->step();
      if (i < warm_up) continue;
      steps.push_back(static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9);
    }
    if (world.communicator->rank() != RankId(0)) return;
    const PacingReport pacing = *session->pacing();
    result.dilation = pacing.dilation;
    result.measured_s = median(steps) / pacing.dilation;
    result.late = static_cast<double>(pacing.late) / static_cast<double>(pacing.operations);
  });
  return result;
}

/// Pairs predicted to differ by more than 3 points, and those of them measured the other way.
void compare_order(const std::vector<Result>& results) {
  int pairs = 0, wrong = 0;
  for (const Result& a : results) {
    for (const Result& b : results) {
      if (b.predicted_s < 1.03 * a.predicted_s) continue;
      ++pairs;
      if (b.measured_s > a.measured_s) continue;
      ++wrong;
      fmt::print("  out of order: {} before {}\n", b.schedule, a.schedule);
    }
  }
  fmt::print("  order: {} of {} pairs that differ by more than 3 points as predicted\n",
             pairs - wrong, pairs);
}

void run(const Arguments& arguments) {
  for (const int ranks : arguments.ranks) {
    fmt::print("{} ranks\n  {:<18} {:>12} {:>12} {:>8} {:>9} {:>6}\n", ranks, "schedule",
               "predicted ms", "measured ms", "error", "dilation", "late");
    std::vector<Result> results;
    for (const std::string& schedule : arguments.schedules) {
      try {
        results.push_back(measure(arguments, schedule, ranks));
      } catch (const UserError& error) {
        fmt::print("  {:<18} {}\n", schedule, error.what());
        continue;
      }
      const Result& r = results.back();
      fmt::print("  {:<18} {:>12.3f} {:>12.3f} {:>+7.2f}% {:>9.2f} {:>5.1f}%\n", r.schedule,
                 r.predicted_s * 1e3, r.measured_s * 1e3, 100 * (r.measured_s / r.predicted_s - 1),
                 r.dilation, 100 * r.late);
      std::fflush(stdout);
    }
    compare_order(results);
  }
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** words) {
  try {
    heteroperf::run(heteroperf::parse(count, words));
    return 0;
  } catch (const heteroperf::Error& error) {
    fmt::print(stderr, "paced_schedules_bench: {}\n", error.what());
    return 1;
  }
}
