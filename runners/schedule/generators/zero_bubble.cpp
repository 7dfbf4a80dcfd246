// zb-h1, zb-h2 and zb-v. The gradient of the input (B) is what the rank before waits for; the
// gradient of the weights (W) nobody waits for until the step. So B runs early, and W fills what
// would be a bubble: with 1F1B's memory a third of it remains (zb-h1), with twice that memory or on
// a V none (zb-h2, zb-v). Source: arXiv 2401.10241.

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"

namespace heteroperf {
namespace {

constexpr RequestRules h1{"zb-h1"}, h2{"zb-h2"};
constexpr RequestRules zb_v{"zb-v", 2};

/// Does w = k(p−r−1) forwards as warm-up; then F, B and, from the (k(p−1)−w)-th on, the oldest W in
/// turn. Source: arXiv 2401.10241 §2.
Schedule make_handcrafted(const ScheduleRequest& request, const RequestRules& rules, int k) {
  const RequestSizes sizes = check_request(request, rules);
  const int p = sizes.ranks, m = sizes.micro_batches;
  return chain_schedule(request, rules, sizes, ChainPlacement::looped, [=](int r, auto& program) {
    program.reserve(3 * static_cast<std::size_t>(m));
    const int warm_up = k * (p - r - 1), held = k * (p - 1) - warm_up;
    int weights = 0;
    const auto emit = [&](Op op, int i) {
      program.push_back(compute(op, SegmentId(r), MicroBatchId(i)));
    };
    one_forward_one_backward(
        m, warm_up, [&](int i) { emit(Op::forward, i); },
        [&](int i) {
          emit(Op::input_gradient, i);
          if (i >= held) emit(Op::weight_gradient, weights++);
        });
    while (weights < m) emit(Op::weight_gradient, weights++);
  });
}

/// Writes one rank's program over its two stages of a V; micro-batches from m on are left out.
class VProgram {
 public:
  VProgram(int micro_batches, SegmentId first_stage, SegmentId second_stage,
           std::vector<Instruction>& program)
      : end_(micro_batches), stage_{first_stage, second_stage}, program_(program) {
    program_.reserve(6 * static_cast<std::size_t>(micro_batches));
  }
  void forward(int chunk) { emit(Op::forward, chunk, forwards_[chunk]++); }
  void input_gradient(int chunk) { emit(Op::input_gradient, chunk, gradients_[chunk]++); }
  void weight_gradient(int chunk) { emit(Op::weight_gradient, chunk, weights_[chunk]++); }
  void gradients(int chunk) {
    input_gradient(chunk);
    weight_gradient(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk].value(); }
  int pending_weights(int chunk) const { return gradients_[chunk] - weights_[chunk]; }

 private:
  void emit(Op op, int chunk, MicroBatchId micro_batch) {
    if (micro_batch < end_) program_.push_back(compute(op, stage_[chunk], micro_batch));
  }

  MicroBatchId end_;
  SegmentId stage_[2];
  std::vector<Instruction>& program_;
  MicroBatchId forwards_[2], gradients_[2], weights_[2];
};

/// Writes the phases of rank r for n micro-batches: fill the V, then one F, B, W of each chunk in
/// turn, then drain, where the W's that were put off fill the gaps.
void fill_zb_v(int p, int r, int n, VProgram& v) {
  for (int i = 0; i < 2 * (p - r) - 1; ++i) v.forward(0);
  for (int i = 0; i < r; ++i) {
    v.forward(1);
    v.forward(0);
  }
  for (int i = 0; i < p - r; ++i) {
    v.forward(1);
    v.gradients(1);
  }
  while (v.forwards(0) < n || v.forwards(1) < n) {
    if (v.forwards(0) < n) v.forward(0);
    v.gradients(0);
    v.forward(1);
    v.gradients(1);
  }
  for (int i = 0; i < r; ++i) {
    v.input_gradient(0);
    v.input_gradient(1);
  }
  for (int i = 0; i < p - r; ++i) v.gradients(0);
  while (v.pending_weights(1) > 0) v.weight_gradient(1);
  while (v.pending_weights(0) > 0) v.weight_gradient(0);
}

}  // namespace

Schedule make_zb_h1(const ScheduleRequest& request) { return make_handcrafted(request, h1, 1); }
Schedule make_zb_h2(const ScheduleRequest& request) { return make_handcrafted(request, h2, 2); }

/// Has stages r and 2p−1−r on rank r. It is defined for n = max(m, 2p−1) micro-batches; those
/// beyond m are left out. Source: arXiv 2401.10241 §6; phases as in PyTorch's
/// ScheduleZBVZeroBubble.
Schedule make_zb_v(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, zb_v);
  const int p = sizes.ranks, n = std::max(sizes.micro_batches, 2 * p - 1);
  if (2LL * p * n > most_tasks) {
    throw UserError(fmt::format("zb-v for {} ranks", p),
                    fmt::format("its order is that of {} micro-batches on 2 x {} stages; at most "
                                "{} forwards",
                                n, p, most_tasks),
                    "Use at most 5792 ranks.");
  }
  return chain_schedule(request, zb_v, sizes, ChainPlacement::zig_zag, [&](int r, auto& program) {
    VProgram v_program(sizes.micro_batches, SegmentId(r), SegmentId(2 * p - 1 - r), program);
    fill_zb_v(p, r, n, v_program);
  });
}

}  // namespace heteroperf
