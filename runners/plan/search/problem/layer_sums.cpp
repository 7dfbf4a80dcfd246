// Prefix sums over the layers, so that times and bytes of any range cost two look-ups.
//
// Times, kept tensors and parameters add up over a range, so the table holds at each layer the sum
// of all before it. The largest pass does not add up, and a maximum over a range has no prefix
// form. It is therefore taken from the layers at both ends and from the largest inner layer of the
// whole model: an upper estimate, exact where the inner layers are alike, and on the safe side
// elsewhere.
#include "runners/plan/search/problem/layer_sums.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

std::vector<LayerTimes> prefix_sums(const std::vector<LayerTimes>& layers) {
  std::vector<LayerTimes> sums;
  if (layers.empty()) return sums;
  sums.resize(layers.size() + 1);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerTimes &a = sums[l], &b = layers[l];
    sums[l + 1] = {a.forward_s + b.forward_s, a.input_gradient_s + b.input_gradient_s,
                   a.weight_gradient_s + b.weight_gradient_s, a.attention_s + b.attention_s};
  }
  return sums;
}

}  // namespace

LayerSums::LayerSums(const PlanningProblem& problem) : problem_(problem) {
  for (const DevicePool& pool : problem.pools) {
    auto& of_pool = times_.emplace_back();
    for (const auto& of_degree : pool.times) {
      auto& by_samples = of_pool.emplace_back();
      for (const auto& layers : of_degree) by_samples.push_back(prefix_sums(layers));
    }
  }
  for (const auto& of_degree : problem.bytes) {
    auto& by_samples = bytes_.emplace_back();
    auto& inner = inner_extra_.emplace_back();
    for (const std::vector<LayerBytes>& layers : of_degree) {
      auto& sums = by_samples.emplace_back(layers.size() + 1);
      auto& most = inner.emplace_back();
      for (std::size_t l = 0; l < layers.size(); ++l) {
        sums[l].extra = layers[l].extra;
        for (std::size_t r = 0; r < 3; ++r) {
          sums[l + 1].kept[r] = sums[l].kept[r] + layers[l].kept[r];
          sums[l + 1].split[r] = sums[l].split[r] + layers[l].split[r];
          if (l > 0 && l + 1 < layers.size()) most[r] = std::max(most[r], layers[l].extra[r]);
        }
      }
    }
  }
  const auto add_up = [](const std::vector<std::vector<double>>& from,
                         std::vector<std::vector<double>>& to) {
    for (const std::vector<double>& of_degree : from) {
      auto& sums = to.emplace_back(1, 0.0);
      for (const double value : of_degree) sums.push_back(sums.back() + value);
    }
  };
  add_up(problem.parameters, parameters_);
  add_up(problem.frozen_bytes, frozen_bytes_);
}

bool LayerSums::known(int pool, int degree, std::int64_t samples) const {
  return samples >= 1 && samples <= problem_.most_samples &&
         !times_[pool][degree][samples - 1].empty();
}

/// The buffers are those of the ends of the range, and of the fullest layer within the model.
double LayerSums::extra(int degree, std::int64_t samples, Range range,
                        std::size_t recomputation) const {
  const auto& sums = bytes(degree, samples);
  double most =
      std::max(sums[range.first].extra[recomputation], sums[range.end - 1].extra[recomputation]);
  if (range.end - range.first > 2) {
    most = std::max(most, inner_extra_[degree][samples - 1][recomputation]);
  }
  return most;
}

double LayerSums::parameters(int degree, Range range) const {
  const auto& sums = parameters_[degree];
  return sums[range.end] - sums[range.first];
}

double LayerSums::state_memory(int degree, Range range, int state_replicas) const {
  double elements = parameters(degree, range);
  if (has_tied_copy(range)) elements += problem_.tied_parameters[degree];
  double bytes = elements * (problem_.weight_bytes + problem_.optimizer_bytes / state_replicas);
  if (!frozen_bytes_.empty()) {
    bytes += frozen_bytes_[degree][range.end] - frozen_bytes_[degree][range.first];
  }
  return bytes;
}

double LayerSums::least_memory(int degree, std::int64_t samples, Range range,
                               const Holding& holding) const {
  const auto& sums = bytes(degree, samples);
  const auto kept_by = [&](Recomputation r) {
    const auto i = static_cast<std::size_t>(r);
    return sums[range.end].kept[i] - sums[range.first].kept[i];
  };
  const bool full = holding.recomputation == Recomputation::full;
  double split = 0;
  if (holding.split_backward) {
    const auto r = static_cast<std::size_t>(holding.recomputation);
    split = sums[range.end].split[r] - sums[range.first].split[r];
  }
  // A stage that recomputes keeps the input of its first layer, and is whole again in B.
  const double whole = std::max(kept_by(full ? Recomputation::none : holding.recomputation), split);
  const auto f = static_cast<std::size_t>(Recomputation::full);
  const double input = sums[range.first + 1].kept[f] - sums[range.first].kept[f];
  const double kept = full ? std::min(whole, std::max(split, input)) : whole;
  return state_memory(degree, range, holding.state_replicas) + (holding.in_flight - 1) * kept +
         whole;
}

/// Counts messages in both directions over both ends of the range.
double LayerSums::messages(std::int64_t samples, Range range) const {
  double boundary = 0;
  if (range.first > 0) {
    boundary +=
        problem_.activation_bytes[range.first - 1][0] + problem_.gradient_bytes[range.first - 1][0];
  }
  if (range.end < problem_.layers) {
    boundary +=
        problem_.activation_bytes[range.end - 1][0] + problem_.gradient_bytes[range.end - 1][0];
  }
  return boundary * static_cast<double>(samples);
}

double LayerSums::memory(int degree, std::int64_t samples, Range range,
                         const Holding& holding) const {
  const auto as_run =
      holding.recomputation == Recomputation::full ? Recomputation::none : holding.recomputation;
  return least_memory(degree, samples, range, holding) +
         extra(degree, samples, range, static_cast<std::size_t>(as_run)) + messages(samples, range);
}

LayerSums::Activations LayerSums::activations(int degree, std::int64_t samples, Range range,
                                              Recomputation recomputation) const {
  const auto& sums = bytes(degree, samples);
  const LayerBytes &a = sums[range.first], &b = sums[range.end];
  const bool full = recomputation == Recomputation::full;
  const auto r = static_cast<std::size_t>(recomputation);
  const std::size_t as_run = full ? 0 : r;
  Activations result;
  const double whole = b.kept[as_run] - a.kept[as_run];
  result.kept = full ? std::min(whole, sums[range.first + 1].kept[r] - a.kept[r]) : whole;
  result.split = b.split[r] - a.split[r];
  result.passing = whole - result.kept + extra(degree, samples, range, as_run);
  result.messages = messages(samples, range);
  return result;
}

}  // namespace heteroperf
