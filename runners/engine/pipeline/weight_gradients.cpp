// An operator writes the gradient of one micro-batch into a buffer: the first one of a step
// overwrites it, the others add. In bf16 the buffer is too coarse for a sum, so each micro-batch
// overwrites it and the sum is collected in float32. After the step's last micro-batch the gradient
// is final and may be summed over the replicas while the backward pass goes on.
#include "runners/engine/pipeline/weight_gradients.hpp"

#include <algorithm>

#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {

WeightGradients::WeightGradients(ParameterStore& store, GradientReducer* reducer, StepClock* clock)
    : store_(store),
      reducer_(reducer),
      clock_(clock),
      summands_(store.count()),
      groups_(store.count()) {
  begin_step();
}

void WeightGradients::begin_step() {
  written_.assign(store_.count(), false);
  collected_.assign(store_.count(), false);
  summands_left_ = summands_;
}

// A gradient in bf16 is that of one micro-batch: float32 has the sum.
void WeightGradients::begin_pass(const std::vector<std::size_t>& ordinals, bool last) {
  last_pass_ = last;
  if (store_.collects()) overwrite(ordinals);
}

void WeightGradients::overwrite(const std::vector<std::size_t>& ordinals) {
  for (const std::size_t ordinal : ordinals) written_[ordinal] = false;
}

// An operator writes all its gradients in one way. Those that it meets for the first time are
// zeroed where another one (of a weight tied to an earlier operation's) is to be added to.
Accumulation WeightGradients::prepare(const std::vector<std::size_t>& ordinals,
                                      const Tensors& gradients) {
  const bool any_written = std::any_of(ordinals.begin(), ordinals.end(),
                                       [&](std::size_t ordinal) { return written_[ordinal]; });
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (any_written && !written_[ordinals[i]]) gradients[i].zero_();
    written_[ordinals[i]] = true;
  }
  return any_written ? Accumulation::add : Accumulation::overwrite;
}

void WeightGradients::finish(std::size_t ordinal) {
  store_.collect_gradient(ordinal,
                          collected_[ordinal] ? Accumulation::add : Accumulation::overwrite);
  collected_[ordinal] = true;
  if (!last_pass_ || reducer_ == nullptr) return;
  if (summands_left_[ordinal] > 0 && --summands_left_[ordinal] == 0) {
    const ParameterStore::Place& place = store_.place(ordinal);
    const SumLap timed(clock_);
    all_reduce(*groups_[ordinal], store_.reduced_gradient().narrow(0, place.offset, place.count),
               Reduction::sum);
  }
  reducer_->ready(ordinal);
}

}  // namespace heteroperf
