#include "runners/plan/vtrain/vtrain_time.hpp"

#include <algorithm>
#include <cmath>

namespace heteroperf {
namespace {

/// Of GPT-2, padded as Megatron pads it.
constexpr double vocabulary = 51200;
constexpr double bytes_per_activation = 2, bytes_per_gradient = 4;
/// Forward, its repetition, and a backward of twice the work.
constexpr double passes_of_layer = 4, passes_of_head = 3;
/// Sums over tensor-parallel ranks: two in each of forward, its repetition and backward.
constexpr double sums_of_layer = 6;
/// Elements read and written per token and hidden unit, and per pair of attention (Korthikanti et
/// al. 2022 count 34 and 5 bytes kept).
constexpr double elements_of_token = 34, elements_of_pair = 5;
constexpr int devices_of_node = 8;
/// How sharply the larger of two times decides.
constexpr double sharpness = 4;
/// Of leaving the start by a factor e.
constexpr double penalty = 0.002;

double larger(double a, double b) {
  return std::pow(std::pow(a, sharpness) + std::pow(b, sharpness), 1 / sharpness);
}

double sum_s(const VtrainRow& row, const VtrainMachine& machine, double bytes) {
  if (row.tensor == 1) return 0;
  const auto ranks = static_cast<double>(row.tensor);
  const double rate =
      row.tensor > devices_of_node ? machine.network_bytes_per_s : machine.sum_bytes_per_s;
  return machine.sum_latency_s * std::log2(ranks) + 2 * (ranks - 1) / ranks * bytes / rate;
}

}  // namespace

const std::vector<VtrainMember>& vtrain_members() {
  using M = VtrainMachine;
  static const std::vector<VtrainMember> all = {&M::rate,
                                                &M::small_rows,
                                                &M::element_s,
                                                &M::launch_s,
                                                &M::tensor_launch,
                                                &M::sum_latency_s,
                                                &M::sum_bytes_per_s,
                                                &M::network_bytes_per_s,
                                                &M::replica_bytes_per_s,
                                                &M::update_s,
                                                &M::micro_batch_s,
                                                &M::step_s};
  return all;
}

double vtrain_step_s(const VtrainRow& row, const VtrainMachine& machine) {
  const auto h = static_cast<double>(row.hidden), s = static_cast<double>(row.sequence),
             b = static_cast<double>(row.micro_batch), t = static_cast<double>(row.tensor),
             stages = static_cast<double>(row.pipeline),
             micro_batches = static_cast<double>(row.micro_batches());
  const double layers = static_cast<double>(row.layers) / stages;
  const double tokens = b * s, elements = tokens * h;
  const double slow = 1 + machine.small_rows / tokens;
  const double products = passes_of_layer * (24 * elements * h + 4 * elements * s) / t;
  const double pairs = static_cast<double>(row.heads) * s * tokens;
  const double compute =
      products / machine.rate * slow +
      machine.element_s * (elements_of_token * elements + elements_of_pair * pairs / t);
  const double launch = machine.launch_s * (row.tensor > 1 ? machine.tensor_launch : 1);
  const double layer = larger(compute, launch) +
                       sums_of_layer * sum_s(row, machine, bytes_per_activation * elements);
  const double head = passes_of_head * 2 * elements * vocabulary / t / machine.rate;
  double stage = layers * layer + machine.micro_batch_s;
  if (row.pipeline > 1) {
    const double ranks = row.devices > devices_of_node ? t : 1;
    stage += 2 * bytes_per_activation * elements / ranks / machine.network_bytes_per_s;
  }
  const double parameters = (12 * h * h * layers + vocabulary * h) / t;
  double step = (micro_batches + stages - 1) * stage +
                head * (row.pipeline > 1 ? 0.5 * (micro_batches + 1) : micro_batches);
  if (row.data > 1) {
    const auto replicas = static_cast<double>(row.data);
    step += 2 * (replicas - 1) / replicas * parameters * bytes_per_gradient /
            machine.replica_bytes_per_s;
  }
  return step + parameters * machine.update_s + machine.step_s;
}

VtrainMachine calibrate_vtrain(const std::vector<VtrainRow>& rows, const VtrainMachine& start,
                               const std::vector<VtrainMember>& free) {
  const auto loss = [&](const VtrainMachine& machine) {
    double sum = 0;
    for (const VtrainRow& row : rows) {
      sum += std::abs(std::log(vtrain_step_s(row, machine) / row.step_s));
    }
    sum /= static_cast<double>(rows.size());
    for (const VtrainMember member : free) {
      const double away = std::log(machine.*member / (start.*member));
      sum += penalty * away * away;
    }
    return sum;
  };
  VtrainMachine best = start;
  double least = loss(best);
  for (double step = 0.5; step > 1e-3;) {
    bool moved = false;
    for (const VtrainMember member : free) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        VtrainMachine next = best;
        next.*member *= factor;
        const double own = loss(next);
        if (own >= least - 1e-9) continue;
        least = own;
        best = next;
        moved = true;
      }
    }
    if (!moved) step *= 0.6;
  }
  return best;
}

double vtrain_error(const std::vector<VtrainRow>& rows, const VtrainMachine& machine) {
  double sum = 0;
  for (const VtrainRow& row : rows) {
    sum += std::abs(vtrain_step_s(row, machine) / row.step_s - 1);
  }
  return sum / static_cast<double>(rows.size());
}

VtrainSplit split_rows(const std::vector<VtrainRow>& rows, std::size_t every) {
  VtrainSplit split;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (i % every == 0 ? split.calibration : split.rest).push_back(rows[i]);
  }
  return split;
}

}  // namespace heteroperf
