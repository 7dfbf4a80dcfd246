// The loss over whole rows of logits. One pass over a row gives its loss and the log of its softmax
// sum, from which the backward pass makes the gradient in a second pass.
//
// Nothing as large as the logits is saved beside them: softmax = exp(x − log sum) is made again.
// Where nobody else holds the logits their gradient takes their memory, which for a language model
// is the largest tensor of the step; the backward pass may then run once per forward pass.
#include <ATen/Dispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// The sum of a host tensor in double, in the order of memory.
template <class Scalar>
double sum_of(const at::Tensor& values) {
  const auto* v = values.const_data_ptr<Scalar>();
  double sum = 0.0;
  for (std::int64_t i = 0; i < values.numel(); ++i) sum += static_cast<double>(v[i]);
  return sum;
}

/// The part that both losses share: the gradient of the logits, of all classes or of a part of
/// them, from the logits, the targets and the log of each softmax sum.
class LossOperator : public Operator {
 public:
  LossOperator(const CrossEntropy& attributes, VocabularyPart part, Overwrite logits)
      : attributes_(attributes), part_(part), logits_(logits) {}

 protected:
  CrossEntropy attributes_;
  VocabularyPart part_;  ///< all of the classes where it names none

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor &dy = pass.output_gradient, &logits = pass.saved[0];
    const Matrix m = matrix_of(logits);
    const double upstream = dy.defined() ? dy.item().toDouble() : 1.0;
    const CrossEntropyTerms terms{attributes_.label_smoothing,
                                  upstream * pass.context.loss_scale / static_cast<double>(m.rows),
                                  part_.first, part_.all};
    at::Tensor gradient = logits_ == Overwrite::allowed ? logits : uninitialised_like(logits);
    run_kernel(&KernelTable::cross_entropy_backward, m, terms, logits, pass.saved[1], pass.saved[2],
               gradient);
    pass.sink->put(0, std::move(gradient));
  }

  Overwrite logits_;
};

/// Inputs: logits {…, classes} and targets. The output {1}, of the accumulation type, is the mean
/// over this micro-batch's targets; its gradient is multiplied by context.loss_scale. An undefined
/// output gradient stands for 1. Saves logits, targets and the log of each softmax sum.
class CrossEntropyOperator final : public LossOperator {
 public:
  using LossOperator::LossOperator;

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor logits = inputs[0].contiguous(), targets = inputs[1].contiguous();
    const Matrix m = matrix_of(logits);
    HETEROPERF_EXPECT(targets.numel() == m.rows);
    check_indices(targets, m.columns, "target");
    const at::Tensor losses = empty_accumulators({m.rows}, logits);
    const at::Tensor log_sums = uninitialised_like(losses);
    const CrossEntropyTerms terms{attributes_.label_smoothing, 1.0};
    run_kernel(&KernelTable::cross_entropy, m, terms, logits, targets, losses, log_sums);
    saved = {logits, targets, log_sums};
    return mean(losses);
  }

 private:
  /// The sum is made in double; on a device it stays there.
  static at::Tensor mean(const at::Tensor& losses) {
    const auto count = static_cast<double>(losses.numel());
    if (losses.is_cuda()) {
      return at::sum(losses, at::kDouble).div_(count).to(losses.scalar_type()).view({1});
    }
    at::Tensor loss = empty({1}, losses);
    AT_DISPATCH_FLOATING_TYPES(losses.scalar_type(), "mean", [&] {
      *loss.data_ptr<scalar_t>() = static_cast<scalar_t>(sum_of<scalar_t>(losses) / count);
    });
    return loss;
  }
};

}  // namespace

OperatorPtr make(const CrossEntropy& attributes, const OperatorPlace&, Overwrite logits) {
  return std::make_unique<CrossEntropyOperator>(attributes, VocabularyPart{}, logits);
}

// The loss where every rank has the logits of some classes: README.md has the formula.
//
// No rank sees a whole row, so the softmax is made in two steps. The ranks agree on the largest
// logit of every row, which keeps exponentials finite, and then add three sums per row. From these
// every rank has the same loss and the log of the softmax sum; the gradient of its own logits
// follows without another exchange. Sums are finished on the host, for there are only three numbers
// per row.

namespace {

/// Cross entropy where the ranks of a group have the logits of some classes each (Shoeybi et al.
/// 2019, arXiv:1909.08053, section 3). Two collectives in the forward pass: the largest logit of
/// every row, then its sums. Otherwise as the whole operator; saves local logits, targets and the
/// log of each softmax sum.
class VocabularyCrossEntropyOperator final : public LossOperator {
 public:
  VocabularyCrossEntropyOperator(const CrossEntropy& attributes, VocabularyPart part,
                                 Communicator& group, Overwrite logits)
      : LossOperator(attributes, part, logits), group_(group) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor logits = inputs[0].contiguous(), targets = inputs[1].contiguous();
    const Matrix m = matrix_of(logits);
    HETEROPERF_EXPECT(targets.numel() == m.rows);
    check_indices(targets, part_.all, "target");
    const at::Tensor tops = largest(logits), sums = sum(logits, targets, tops);
    const at::Tensor host_sums = sums.cpu(), host_tops = tops.cpu();  // themselves on the host
    const at::Tensor loss = empty({1}, host_sums);
    AT_DISPATCH_FLOATING_TYPES(loss.scalar_type(), "finish",
                               [&] { finish<scalar_t>(host_sums, host_tops, loss); });
    saved = {logits, targets, host_tops.to(logits.device())};
    return loss.to(logits.device());
  }

 private:
  static constexpr std::int64_t sums_per_row = 3;  // of the kernel softmax_sums

  /// The largest logit of every row over all classes. Collective.
  at::Tensor largest(const at::Tensor& logits) const {
    const Matrix m = matrix_of(logits);
    const at::Tensor tops = empty_accumulators({m.rows}, logits);
    run_kernel(&KernelTable::row_top, m, logits, tops);
    all_reduce(group_, tops, Reduction::max);
    return tops;
  }

  /// The three sums of every row over all classes. Collective.
  at::Tensor sum(const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& tops) const {
    const Matrix m = matrix_of(logits);
    const at::Tensor sums = empty_accumulators({m.rows, sums_per_row}, logits);
    run_kernel(&KernelTable::softmax_sums, m, part_.first, logits, targets, tops, sums);
    all_reduce(group_, sums, Reduction::sum);
    return sums;
  }

  /// The mean loss, by the formula of the whole operator's kernel; `tops` become the logs of the
  /// softmax sums.
  template <class Scalar>
  void finish(const at::Tensor& sums, const at::Tensor& tops, const at::Tensor& loss) const {
    const auto* s = sums.const_data_ptr<Scalar>();
    auto* top = tops.data_ptr<Scalar>();
    const auto smoothing = static_cast<Scalar>(attributes_.label_smoothing);
    const auto classes = static_cast<Scalar>(part_.all);
    double total = 0.0;
    for (std::int64_t row = 0; row < tops.numel(); ++row, s += sums_per_row) {
      const Scalar log_sum = std::log(s[0]);
      const Scalar target_loss = log_sum - s[2], mean_loss = log_sum - s[1] / classes;
      total += static_cast<double>(target_loss + smoothing * (mean_loss - target_loss));
      top[row] += log_sum;
    }
    *loss.data_ptr<Scalar>() = static_cast<Scalar>(total / static_cast<double>(tops.numel()));
  }

  Communicator& group_;
};

}  // namespace

OperatorPtr make_vocabulary_cross_entropy(const CrossEntropy& attributes, VocabularyPart part,
                                          Communicator& group, Overwrite logits) {
  return std::make_unique<VocabularyCrossEntropyOperator>(attributes, part, group, logits);
}

// Counts right predictions, where every rank has all classes and where each has some of them.
//
// With cut classes every rank finds its own best class. The ranks agree on the largest logit; those
// that have it name their class, the others one that does not exist, and the smallest name wins. So
// of equal logits the lowest class counts, as with whole rows.

namespace {

std::uint64_t count_equal(const at::Tensor& classes, const at::Tensor& targets) {
  const at::Tensor right = classes.eq(targets);
  return static_cast<std::uint64_t>(right.sum().item().toLong());
}

}  // namespace

std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets) {
  return count_equal(at::argmax(logits, -1), targets);
}

std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t first_class, Communicator& group) {
  const at::Tensor best = at::argmax(logits, -1);
  const at::Tensor local = logits.gather(-1, best.unsqueeze(-1))
                               .squeeze(-1)
                               .contiguous()
                               .to(accumulation_type(logits.scalar_type()));
  const at::Tensor top = local.clone();
  all_reduce(group, top, Reduction::max);
  // Ranks below the top name a class that none has.
  const at::Tensor classes = best.add(first_class).contiguous();
  classes.masked_fill_(local.lt(top), std::numeric_limits<std::int64_t>::max());
  all_reduce(group, classes, Reduction::min);
  return count_equal(classes, targets);
}

}  // namespace heteroperf
