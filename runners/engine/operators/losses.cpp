// The loss over whole rows of logits. One pass over a row gives its loss and the log of its softmax
// sum, from which the backward pass makes the gradient in a second pass.
//
// Nothing as large as the logits is saved beside them: softmax = exp(x − log sum) is made again.
// Where nobody else holds the logits their gradient takes their memory, which for a language model
// is the largest tensor of the step; the backward pass may then run once per forward pass.
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"
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

/// The factor that a loss's gradient begins with.
double upstream_of(const BackwardPass& pass) {
  const at::Tensor& dy = pass.output_gradient;
  return (dy.defined() ? dy.item().toDouble() : 1.0) * pass.context.loss_scale;
}

/// Targets may be missing where it is known how many are not.
NoIndex missing_targets(const PassContext& context) {
  return context.targets ? NoIndex::negative : NoIndex::refused;
}

/// The part that both cross entropies share: the gradient of the logits, of all classes or of a
/// part of them, from the logits, the targets and the log of each softmax sum.
class LossOperator : public Operator {
 public:
  LossOperator(const CrossEntropy& attributes, VocabularyPart part, Overwrite logits)
      : attributes_(attributes), part_(part), logits_(logits) {}

 protected:
  /// Refuses targets that are not one for every row, or not below `classes`.
  static void check_targets(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t classes, const PassContext& context) {
    HETEROPERF_EXPECT(targets.numel() == matrix_of(logits).rows);
    check_indices(targets, classes, "target", missing_targets(context));
  }

  CrossEntropy attributes_;
  VocabularyPart part_;  ///< all of the classes where it names none

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor& logits = pass.saved[0];
    const Matrix m = matrix_of(logits);
    const CrossEntropyTerms terms{attributes_.label_smoothing,
                                  upstream_of(pass) / counted_targets(pass.context, logits),
                                  part_.first, part_.all};
    at::Tensor gradient = logits_ == Overwrite::allowed ? logits : uninitialised_like(logits);
    run_kernel(&KernelTable::cross_entropy_backward, m, terms, logits, pass.saved[1], pass.saved[2],
               gradient);
    pass.sink->put(0, std::move(gradient));
  }

  Overwrite logits_;
};

/// Inputs: logits {…, classes} and targets. The output {1}, of the accumulation type, is the mean
/// over this micro-batch's targets that count; its gradient is multiplied by context.loss_scale. An
/// undefined output gradient stands for 1. Saves logits, targets and the log of each softmax sum.
class CrossEntropyOperator final : public LossOperator {
 public:
  using LossOperator::LossOperator;

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext& context) override {
    const at::Tensor logits = inputs[0].contiguous(), targets = inputs[1].contiguous();
    const Matrix m = matrix_of(logits);
    check_targets(logits, targets, m.columns, context);
    const at::Tensor losses = empty_accumulators({m.rows}, logits);
    const at::Tensor log_sums = uninitialised_like(losses);
    const CrossEntropyTerms terms{attributes_.label_smoothing, 1.0};
    run_kernel(&KernelTable::cross_entropy, m, terms, logits, targets, losses, log_sums);
    saved = {logits, targets, log_sums};
    return mean(losses, counted_targets(context, logits));
  }

 private:
  /// The sum is made in double; on a device it stays there.
  static at::Tensor mean(const at::Tensor& losses, double count) {
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
                     const PassContext& context) override {
    const at::Tensor logits = inputs[0].contiguous(), targets = inputs[1].contiguous();
    check_targets(logits, targets, part_.all, context);
    const at::Tensor tops = largest(logits), sums = sum(logits, targets, tops);
    // Themselves on the host.
    const at::Tensor host_sums = sums.cpu(), host_tops = tops.cpu(), host_targets = targets.cpu();
    const at::Tensor loss = empty({1}, host_sums);
    const double count = counted_targets(context, logits);
    AT_DISPATCH_FLOATING_TYPES(loss.scalar_type(), "finish", [&] {
      finish<scalar_t>(host_sums, host_targets, host_tops, count, loss);
    });
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
  void finish(const at::Tensor& sums, const at::Tensor& targets, const at::Tensor& tops,
              double count, const at::Tensor& loss) const {
    const auto* s = sums.const_data_ptr<Scalar>();
    const auto* target = targets.const_data_ptr<std::int64_t>();
    auto* top = tops.data_ptr<Scalar>();
    const auto smoothing = static_cast<Scalar>(attributes_.label_smoothing);
    const auto classes = static_cast<Scalar>(part_.all);
    double total = 0.0;
    for (std::int64_t row = 0; row < tops.numel(); ++row, s += sums_per_row) {
      const Scalar log_sum = std::log(s[0]);
      const Scalar target_loss = log_sum - s[2], mean_loss = log_sum - s[1] / classes;
      if (target[row] >= 0) {
        total += static_cast<double>(target_loss + smoothing * (mean_loss - target_loss));
      }
      top[row] += log_sum;
    }
    *loss.data_ptr<Scalar>() = static_cast<Scalar>(total / count);
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

// Losses that compare vectors: with targets, and with each other.
//
// The contrastive loss (InfoNCE: van den Oord et al., arXiv:1807.03748; both ways: Radford et al.,
// arXiv:2103.00020, figure 3) takes the similarities S = τ â b̂ᵀ of all pairs of unit vectors as
// logits, row by row and column by column, and the pair's own place as the target. So a sample's
// loss depends on all samples of its set, which several micro-batches and ranks may hold. Each rank
// has the rows of S of its own samples:
//
//   1. the vectors b̂ of all ranks are gathered;
//   2. a softmax over a row is local; one over a column needs the greatest entry and the sum of all
//      ranks' rows;
//   3. with G = (softmax over rows + softmax over columns − 2 · identity) / 2, the gradient of its
//      own â is τ G b̂, and that of all b̂ a summand, τ Gᵀ â, which is summed and scattered.
//
// No product is done twice, whatever the number of ranks. The gradients are complete before the
// first backward pass, which only scales them. Everything is in the accumulation type: cosines
// times a hundred would lose the loss in bf16.

namespace {

/// Inputs: predictions {…, features} and targets of the same extents. Saves the differences.
class SquaredErrorOperator final : public Operator {
 public:
  explicit SquaredErrorOperator(at::ScalarType type) : type_(type) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext& context) override {
    const at::Tensor& x = inputs[0];
    const at::ScalarType type = accumulation_type(x.scalar_type());
    const at::Tensor difference = x.to(type) - inputs[1].to(type).view(x.sizes());
    difference.masked_fill_(at::isnan(inputs[1].view(x.sizes()).narrow(-1, 0, 1)), 0);
    saved = {difference};
    return (at::sum(difference.square()) / counted_targets(context, x)).view({1});
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor& difference = pass.saved[0];
    const double scale = 2 * upstream_of(pass) / counted_targets(pass.context, difference);
    pass.sink->put(0, (difference * scale).to(type_));
  }

  at::ScalarType type_;
};

/// The samples of a set by rank, whose rows lie one rank after another.
class RankedRows {
 public:
  /// `own`: this rank's rows. A null group: it has all of them. Collective, as are all calls.
  RankedRows(Communicator* group, const at::Tensor& own)
      : group_(group), own_(own.size(0)), all_(own_) {
    if (group_ == nullptr) return;
    const at::TensorOptions indices = own.options().dtype(at::kLong);
    const at::Tensor here = at::full({1}, own_, indices);
    at::Tensor everywhere = at::empty({group_->size()}, indices);
    through_host([&](HostCopies& copies) {
      group_->all_gather(buffer_of(copies.of(here)), buffer_of(copies.of(everywhere)));
    });
    everywhere = on_host(everywhere);
    all_ = 0;
    for (int r = 0; r < group_->size(); ++r) {
      rows_.push_back(everywhere.const_data_ptr<std::int64_t>()[r]);
      if (r < group_->rank().value()) first_ += rows_.back();
      all_ += rows_.back();
    }
  }

  std::int64_t first() const { return first_; }
  std::int64_t all() const { return all_; }

  /// {all, width} from this rank's {own, width}.
  at::Tensor gather(const at::Tensor& own) const {
    if (group_ == nullptr) return own;
    const at::Tensor all = at::empty({all_, own.size(1)}, own.options());
    const std::vector<std::size_t> counts = elements(own.size(1));
    through_host([&](HostCopies& copies) {
      group_->all_gather(buffer_of(copies.of(own.contiguous())), buffer_of(copies.of(all)), counts);
    });
    return all;
  }
  /// This rank's {own, width} of the sum of all ranks' {all, width}.
  at::Tensor sum(const at::Tensor& all) const {
    if (group_ == nullptr) return all;
    const at::Tensor own = at::empty({own_, all.size(1)}, all.options());
    const std::vector<std::size_t> counts = elements(all.size(1));
    through_host([&](HostCopies& copies) {
      group_->reduce_scatter(buffer_of(copies.of(all.contiguous())), buffer_of(copies.of(own)),
                             counts, Reduction::sum);
    });
    return own;
  }
  /// The logarithm of the sum of exp over all ranks' rows {own, all}: {all}.
  at::Tensor log_sum_exp(const at::Tensor& rows) const {
    const at::Tensor greatest =
        own_ > 0 ? at::amax(rows, {0})
                 : at::full({all_}, -std::numeric_limits<double>::infinity(), rows.options());
    if (group_ != nullptr) all_reduce(*group_, greatest, Reduction::max);
    const at::Tensor sum = at::sum((rows - greatest).exp_(), {0});
    if (group_ != nullptr) all_reduce(*group_, sum, Reduction::sum);
    return sum.log_().add_(greatest);
  }

 private:
  template <class Call>
  void through_host(const Call& call) const {
    HostCopies copies(*group_);
    call(copies);
    copies.put_back();
  }
  std::vector<std::size_t> elements(std::int64_t width) const {
    std::vector<std::size_t> counts;
    for (const std::int64_t rows : rows_) counts.push_back(static_cast<std::size_t>(rows * width));
    return counts;
  }

  Communicator* group_;
  std::int64_t own_, all_, first_ = 0;
  std::vector<std::int64_t> rows_;  ///< by rank
};

/// Inputs: two sets of vectors {B, features}, of which those of one number belong together. Saves
/// their gradients {B, features} and that of the scale {1}, of the mean over the pass's samples.
class ContrastiveOperator final : public SetLoss {
 public:
  ContrastiveOperator(at::ScalarType type, std::int64_t features)
      : type_(type), features_(features) {}

  SetScores forward_set(std::span<SetPass> passes, const Tensors& parameters, Mode mode,
                        Communicator* group) override {
    const at::Tensor& scale = parameters[0];
    const auto [a, a_length] = unit(joined(passes, 0, scale));
    const auto [b, b_length] = unit(joined(passes, 1, scale));
    const RankedRows set(group, a);
    const at::Tensor others = set.gather(b);
    const at::Tensor factor = scale.to(a.scalar_type()).exp().clamp_max(largest_scale);
    const at::Tensor s = product(a, others.t()).mul_(factor);
    const at::Tensor rows = at::log_softmax(s, 1), columns = s - set.log_sum_exp(s);
    // A sample's own place is beside the main diagonal where other ranks come first.
    const auto own = [&](const at::Tensor& x) { return x.diagonal(set.first()); };
    const at::Tensor losses = (own(rows) + own(columns)).div_(-2);
    SetScores scores;
    if (mode == Mode::evaluate) {
      const at::Tensor best =
          at::argmax(s, 1) - at::arange(a.size(0), s.options().dtype(at::kLong));
      scores.right = best.eq(set.first());
    }
    Tensors gradients;
    if (mode == Mode::train) {
      const at::Tensor g = rows.exp_().add_(columns.exp_()).div_(2);
      own(g).sub_(1);
      // dS/ds = S, until the factor is as large as it may be.
      const at::Tensor of_scale =
          at::sum(g * s, {1}).mul_(scale.to(a.scalar_type()).exp().le(largest_scale));
      g.mul_(factor);
      gradients = {before_unit(product(g, others), a, a_length),
                   before_unit(set.sum(product(g.t().contiguous(), a)), b, b_length), of_scale};
    }
    std::int64_t first = 0;
    for (SetPass& pass : passes) {
      const std::int64_t count = pass.inputs[0].size(0);
      const auto mean_over = static_cast<double>(std::max<std::int64_t>(count, 1));
      scores.losses.push_back((losses.narrow(0, first, count).sum() / mean_over).view({1}));
      pass.saved.clear();
      for (const at::Tensor& gradient : gradients) {
        pass.saved.push_back(gradient.narrow(0, first, count) / mean_over);
      }
      if (!gradients.empty()) pass.saved[2] = pass.saved[2].sum().view({1});
      first += count;
    }
    return scores;
  }

 private:
  static constexpr double largest_scale = 100;
  static constexpr double shortest = 1e-12;  // of a vector that has a direction

  void gradients(const BackwardPass& pass) override {
    const double upstream = upstream_of(pass);
    if (pass.parameter_gradients != nullptr) {
      accumulate((*pass.parameter_gradients)[0], pass.saved[2] * upstream,
                 pass.context.accumulation);
    }
    for (const std::size_t input : {0, 1}) {
      if (pass.wants(input)) pass.sink->put(input, (pass.saved[input] * upstream).to(type_));
    }
  }

  /// The vectors of all passes one after another, in the accumulation type; {0, features} of none.
  at::Tensor joined(std::span<SetPass> passes, std::size_t input, const at::Tensor& like) const {
    Tensors vectors;
    for (const SetPass& pass : passes) vectors.push_back(pass.inputs[input]);
    const at::ScalarType type = accumulation_type(type_);
    if (vectors.empty()) return at::empty({0, features_}, like.options().dtype(type));
    return at::cat(vectors).to(type);
  }

  struct Unit {
    at::Tensor vectors, lengths;
  };
  static Unit unit(const at::Tensor& x) {
    const at::Tensor lengths = x.square().sum(-1, true).sqrt().clamp_min(shortest);
    return {x / lengths, lengths};
  }

  /// The gradient of x from that of u = x / |x|: (g − u (u · g)) / |x|.
  static at::Tensor before_unit(const at::Tensor& g, const at::Tensor& u,
                                const at::Tensor& lengths) {
    const at::Tensor along = (g * u).sum(-1, true);
    return (g - u * along) / lengths;
  }

  at::ScalarType type_;
  std::int64_t features_;
};

}  // namespace

OperatorPtr make(const SquaredError&, const OperatorPlace& place) {
  return std::make_unique<SquaredErrorOperator>(place.type);
}
OperatorPtr make(const Contrastive&, const OperatorPlace& place) {
  return std::make_unique<ContrastiveOperator>(place.type, place.input()[0]);
}

}  // namespace heteroperf
