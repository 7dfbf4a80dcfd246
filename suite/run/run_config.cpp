#include "suite/run/run_config.hpp"

#include <fmt/format.h>

#include <cmath>

#include "metrics/error.hpp"
#include "suite/catalog.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {
namespace {

struct Range {
  const char* path;
  double value, low, high;
};

void check_ranges(const RunConfig& c, ProblemList& problems) {
  constexpr double many = 1e9;
  const Range ranges[] = {
      {"scale.ranks", double(c.scale.ranks), 0, 1e6},
      {"scale.threads_per_rank", double(c.scale.threads_per_rank), 0, 4096},
      {"batch.micro_batch", double(c.batch.micro_batch), 0, 1e6},
      {"batch.micro_batches", double(c.batch.micro_batches), 0, 1e6},
      {"model.sequence_length", double(c.model.sequence_length), 0, 1e6},
      {"measure.duration_s", c.measure.duration_s, 0.1, 30 * 86400.0},
      {"measure.steps", double(c.measure.steps), 0, many},
      {"measure.warmup_steps", double(c.measure.warmup_steps), 1, many},
      {"measure.evaluation_samples", double(c.measure.evaluation_samples), 1, many},
      {"measure.peak_s", c.measure.peak_s, 0, 60},
      {"automl.group_ranks", double(c.automl.group_ranks), 1, 1e6},
      {"automl.first_rung_steps", double(c.automl.first_rung_steps), 1, many},
      {"automl.reduction", double(c.automl.reduction), 2, 100},
      {"automl.rungs", double(c.automl.rungs), 1, 20},
      {"automl.evaluation_samples", double(c.automl.evaluation_samples), 1, many},
      {"comm.timeout_s", c.comm.timeout_s, 1, 86400},
      {"comm.heartbeat_s", c.comm.heartbeat_s, 0.01, 60},
  };
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      problems.add(fmt::format("{} = {} is out of range", range.path, range.value),
                   fmt::format("{} to {}", range.low, range.high));
    }
  }
  if (c.comm.heartbeat_s * 3 > c.comm.timeout_s) {
    problems.add(fmt::format("comm.heartbeat_s = {} is too long for comm.timeout_s = {}",
                             c.comm.heartbeat_s, c.comm.timeout_s),
                 "three heartbeats must fit the timeout");
  }
}

struct Choice {
  const char* path;
  const std::string& value;
  std::vector<std::string> valid;
};

void check_choices(const RunConfig& c, ProblemList& problems) {
  std::vector<std::string> workloads = workload_names();
  workloads.emplace_back();
  const Choice choices[] = {
      {"workload", c.workload, workloads},
      {"scale.transport", c.scale.transport, {"threads", "mpi"}},
      {"scale.device", c.scale.device, {"cpu"}},
      {"scale.bind", c.scale.bind, {"auto", "none"}},
      {"model.precision", c.model.precision, {"fp32", "bf16", "fp64"}},
      {"optimizer.name", c.optimizer.name, {"", "sgd", "adamw"}},
      {"optimizer.schedule", c.optimizer.schedule, {"", "constant", "linear", "cosine"}},
  };
  for (const Choice& choice : choices) {
    if (std::find(choice.valid.begin(), choice.valid.end(), choice.value) != choice.valid.end()) {
      continue;
    }
    const std::string nearest = nearest_name(choice.value, choice.valid);
    problems.add(fmt::format("{} = '{}' is not known", choice.path, choice.value),
                 fmt::format("one of {}", fmt::join(choice.valid, " ")),
                 nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
  }
}

}  // namespace

void validate(const RunConfig& config) {
  ProblemList problems;
  check_ranges(config, problems);
  check_choices(config, problems);
  problems.throw_if_any();
}

}  // namespace heteroperf
