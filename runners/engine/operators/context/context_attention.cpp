// Attention of context-parallel ranks, each of which has a part of every sequence (SequencePart).
//
// Queries, outputs and what the backward pass keeps stay with their rank; keys and values go round
// the ranks as a ring (Liu, Zaharia & Abbeel 2023, arXiv:2310.01889): while a rank holds its
// queries against one part's keys, that part goes to the rank behind it and the next one comes from
// the rank before. Messages of long sequences so take no time of their own while they are shorter
// than the work on a block. Outputs of blocks are joined by the logarithms of their softmax sums l1
// and l2: with l = log(exp l1 + exp l2) the output is o1 exp(l1 - l) + o2 exp(l2 - l). The
// gradients of a block follow from l and the joined output alone (Dao 2023, arXiv:2307.08691,
// section 2.3), so nothing else is kept; keys and values go round a second time rather than being
// kept, and the sum of their gradients goes round behind them, to which every rank adds its
// queries' share.
//
// In zig-zag order a part is two chunks. Under a causal mask its own keys need the mask, and no
// other part does: of an earlier rank's chunks the first lies before all own queries and the second
// behind them; a later rank's both lie between the own two. So all blocks of other parts have the
// same number of pairs.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// Rows {B, T, heads · head_dim} as {B, heads, T, head_dim}: a view.
at::Tensor as_heads(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.unflatten(2, {rows.size(2) / head_dim, head_dim}).transpose(1, 2);
}
/// The opposite.
at::Tensor rows_of_heads(const at::Tensor& heads) { return heads.transpose(1, 2).flatten(2); }

/// The number of the rank before.
int before(const Communicator& group, int rank) { return (rank + group.size() - 1) % group.size(); }

/// A tensor on its way to the rank behind while one with so many positions comes from the rank
/// before. Nobody writes to it before end().
class Passing {
 public:
  Passing(Communicator& group, const at::Tensor& tensor, std::int64_t positions, int tag)
      : copies_(group), outgoing_(tensor) {
    incoming_ = at::empty({tensor.size(0), positions, tensor.size(2)}, tensor.options());
    const int ranks = group.size(), self = group.rank().value();
    receive_ =
        group.start_receive(buffer_of(copies_.of(incoming_)), RankId(before(group, self)), tag);
    send_ = group.start_send(buffer_of(copies_.of(outgoing_)), RankId((self + 1) % ranks), tag);
    send_->test();  // a transport that gathers messages begins with them
  }

  /// Waits for both; the tensor that came.
  at::Tensor end() {
    receive_->wait();
    send_->wait();
    copies_.put_back();
    return incoming_;
  }

 private:
  HostCopies copies_;
  at::Tensor outgoing_, incoming_;
  std::unique_ptr<Transfer> receive_, send_;
};

/// Calls visit(block, index of the rank that it is from) for every rank's block: this rank's, then
/// that of the rank before, and so on. `part`: this rank's. Collective.
template <class Visit>
void for_each_block(Communicator& group, const SequencePart& part, at::Tensor block,
                    const Visit& visit) {
  const std::int64_t own = block.size(1);
  int owner = group.rank().value();
  for (int step = 1; step <= group.size(); ++step) {
    const int next = before(group, owner);
    std::optional<Passing> passing;
    if (step < group.size()) passing.emplace(group, block, part.positions_of(next, own), 0);
    visit(block, owner);
    if (passing) block = passing->end();
    owner = next;
  }
}

/// The sums of tensors that go round, each to be with its rank in the end.
class PassingSums {
 public:
  /// `part`: this rank's, of `own` positions.
  PassingSums(Communicator& group, const SequencePart& part, std::int64_t own,
              const at::TensorOptions& options)
      : group_(group), part_(part), positions_(own), options_(options) {}

  /// Called for the blocks of for_each_block() in its order: add(sum) gets the sum so far for the
  /// block's rank, zeros of this shape at first.
  template <class Add>
  void add_to(int owner, at::IntArrayRef sizes, const Add& add) {
    const bool own = owner == group_.rank().value();
    const at::Tensor sum = own || !passing_ ? at::zeros(sizes, options_) : passing_->end();
    add(sum);
    if (own) {
      own_ = sum;
    } else {
      const std::int64_t next = part_.positions_of(before(group_, owner), positions_);
      passing_.emplace(group_, sum, next, 1);
    }
  }
  /// The sum of this rank's own block over all ranks.
  at::Tensor own() { return passing_ ? own_.add_(passing_->end()) : own_; }

 private:
  Communicator& group_;
  SequencePart part_;
  std::int64_t positions_;
  at::TensorOptions options_;
  std::optional<Passing> passing_;
  at::Tensor own_;
};

/// Queries against one block of keys, or against several, joined.
struct BlockOutput {
  at::Tensor output;   ///< {B, heads, T, head_dim}
  at::Tensor log_sum;  ///< {B, heads, T}: of each softmax sum
};

/// Joins what more keys give for `all`'s queries behind the first `skipped` ones.
void join(const BlockOutput& all, const BlockOutput& more, std::int64_t skipped) {
  const std::int64_t count = more.log_sum.size(2);
  const at::Tensor log_sum = all.log_sum.narrow(2, skipped, count);
  const at::Tensor both = at::logaddexp(log_sum, more.log_sum);
  const auto weight = [&](const at::Tensor& one) { return one.sub(both).exp_().unsqueeze(-1); };
  all.output.narrow(2, skipped, count)
      .mul_(weight(log_sum))
      .addcmul_(more.output.to(all.output.scalar_type()), weight(more.log_sum));
  log_sum.copy_(both);
}

/// Scores of a block, of which a causal one leaves later keys out; heads of keys serve neighbours.
at::Tensor scores_of(const AttentionParts& parts, const at::Tensor& key, bool causal) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(parts.query.size(3)));
  const at::ScalarType type = accumulation_type(parts.query.scalar_type());
  const at::Tensor scores = at::matmul(parts.query, key.transpose(2, 3)).to(type).mul(scale);
  if (!causal) return scores;
  const at::Tensor later =
      at::ones({scores.size(2), scores.size(3)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

std::int64_t heads_per_key(const AttentionParts& parts) {
  return parts.query.size(1) / parts.key.size(1);
}

/// `written_out`: by products of whole matrices, on any device.
BlockOutput attend(const AttentionParts& parts, bool causal, bool written_out) {
  const CountedCall counted("heteroperf::attention", {parts.query, parts.key, parts.value, causal});
  if (!written_out) {
    auto [output, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        parts.query, parts.key, parts.value, 0.0, causal, std::nullopt);
    return {output, log_sum};
  }
  const at::Tensor key = parts.key.repeat_interleave(heads_per_key(parts), 1);
  const at::Tensor value = parts.value.repeat_interleave(heads_per_key(parts), 1);
  const at::Tensor scores = scores_of(parts, key, causal);
  const at::Tensor log_sum = scores.logsumexp(-1);
  const at::Tensor p = scores.sub(log_sum.unsqueeze(-1)).exp().to(value.scalar_type());
  return {at::matmul(p, value), log_sum};
}

/// Gradients that one block gives, from output and softmax sums over all blocks of the queries.
AttentionParts block_gradients(const at::Tensor& dy, const AttentionParts& parts,
                               const BlockOutput& all, bool causal, bool written_out) {
  const CountedCall counted("heteroperf::attention_backward",
                            {dy, parts.query, parts.key, parts.value, causal});
  if (!written_out) {
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, parts.query, parts.key, parts.value, all.output, all.log_sum, 0.0, causal,
        std::nullopt);
    return {query, key, value};
  }
  const at::Tensor key = parts.key.repeat_interleave(heads_per_key(parts), 1);
  const at::Tensor value = parts.value.repeat_interleave(heads_per_key(parts), 1);
  const at::Tensor p =
      scores_of(parts, key, causal).sub(all.log_sum.unsqueeze(-1)).exp().to(dy.scalar_type());
  const at::Tensor own = dy.mul(all.output).sum(-1, true);
  const double scale = 1.0 / std::sqrt(static_cast<double>(parts.query.size(3)));
  const at::Tensor ds = at::matmul(dy, value.transpose(2, 3)).sub(own).mul(p).mul(scale);
  const auto summed = [&](const at::Tensor& gradient) {
    return gradient.unflatten(1, {parts.key.size(1), heads_per_key(parts)}).sum(2);
  };
  return {at::matmul(ds, key), summed(at::matmul(ds.transpose(2, 3), parts.query)),
          summed(at::matmul(p.transpose(2, 3), dy))};
}

class ContextAttention final : public Operator {
 public:
  ContextAttention(const Attention& attributes, Communicator& group)
      : a_(attributes), group_(group) {
    HETEROPERF_EXPECT(group.size() == a_.part.parts && group.rank().value() == a_.part.index);
    HETEROPERF_EXPECT(!a_.causal || a_.part.order == SequenceOrder::zig_zag);
  }

  /// Saves the packed input, the output, and the logarithm of each softmax sum {B, heads, T}.
  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor packed = as_operand(inputs[0].contiguous());
    const at::ScalarType type = packed.scalar_type();
    BlockOutput all;
    for_each_block(group_, a_.part, keys_of(packed), [&](const at::Tensor& block, int owner) {
      const Pairs pairs = pairs_with(owner, packed.size(1));
      const BlockOutput one =
          attend_to(pairs, queries_of(packed, pairs), block.narrow(1, 0, pairs.keys));
      if (all.output.defined()) return join(all, one, pairs.skipped);
      // Blocks are joined in float32 or wider.
      all = {one.output.to(accumulation_type(type)), one.log_sum};
    });
    at::Tensor output = rows_of_heads(all.output).to(type);
    saved = {packed, output, all.log_sum};
    return output;
  }

 private:
  static constexpr ProductOperator op = ProductOperator::attention;

  /// The part of a block that has weight: own queries behind the first `skipped`, against the
  /// block's first `keys`.
  struct Pairs {
    std::int64_t skipped = 0, keys = 0;
    bool causal = false;
  };

  std::int64_t query_width() const { return a_.heads * a_.head_dim; }
  std::int64_t key_width() const { return a_.kv_heads * a_.head_dim; }

  /// `own`: positions of a part.
  Pairs pairs_with(int owner, std::int64_t own) const {
    if (owner == a_.part.index || !a_.causal) {
      return {0, a_.part.positions_of(owner, own), a_.causal};
    }
    if (owner < a_.part.index) return {0, own / 2, false};
    return {own / 2, own, false};
  }

  at::Tensor keys_of(const at::Tensor& packed) const {
    return packed.narrow(2, query_width(), 2 * key_width()).contiguous();
  }
  /// The rows of a tensor of this rank that pairs have.
  static at::Tensor rows_of(const at::Tensor& own, const Pairs& pairs) {
    return own.narrow(1, pairs.skipped, own.size(1) - pairs.skipped);
  }
  at::Tensor queries_of(const at::Tensor& packed, const Pairs& pairs) const {
    return rows_of(packed, pairs).narrow(2, 0, query_width());
  }
  AttentionParts parts_of(const at::Tensor& queries, const at::Tensor& keys) const {
    const auto half = [&](std::int64_t first) {
      return as_heads(keys.narrow(2, first, key_width()), a_.head_dim);
    };
    return {as_heads(queries, a_.head_dim), half(0), half(key_width())};
  }

  BlockOutput attend_to(const Pairs& pairs, const at::Tensor& queries,
                        const at::Tensor& keys) const {
    at::Tensor log_sum;
    const at::Tensor output = made(queries, keys, [&](const at::Tensor& a, const at::Tensor& b) {
      const BlockOutput one = attend(parts_of(a, b), pairs.causal, writes_out(a));
      log_sum = one.log_sum;
      return rows_of_heads(one.output);
    });
    return {as_heads(output, a_.head_dim), log_sum.to(output.device())};
  }

  /// As the active device makes it of operands in its format.
  template <class Make>
  static at::Tensor made(const at::Tensor& a, const at::Tensor& b, const Make& make) {
    return active_device().makes_as_host(op) ? make(a, b) : device_product(op, a, b, make);
  }

  // The ranks exchange in the type of the tensors, whatever each of them computes in.
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor &packed = pass.saved[0], &output = pass.saved[1], &log_sums = pass.saved[2];
    const at::Tensor dy = pass.output_gradient.contiguous();
    const auto summed = packed.options().dtype(accumulation_type(packed.scalar_type()));
    const at::Tensor query_gradient = at::zeros_like(output, summed);
    PassingSums key_gradients(group_, a_.part, packed.size(1), summed);
    for_each_block(group_, a_.part, keys_of(packed), [&](const at::Tensor& block, int owner) {
      const Pairs pairs = pairs_with(owner, packed.size(1));
      at::Tensor of_keys;
      const auto make = [&](const at::Tensor& g, const at::Tensor& keys) {
        const auto as_g = [&](const at::Tensor& tensor) { return tensor.to(g.options()); };
        const BlockOutput all{as_heads(as_g(rows_of(output, pairs)), a_.head_dim),
                              log_sums.narrow(2, pairs.skipped, g.size(1)).to(g.device())};
        const AttentionParts got = block_gradients(as_heads(g, a_.head_dim),
                                                   parts_of(as_g(queries_of(packed, pairs)), keys),
                                                   all, pairs.causal, writes_out(g));
        of_keys = at::cat({rows_of_heads(got.key), rows_of_heads(got.value)}, 2);
        return rows_of_heads(got.query);
      };
      rows_of(query_gradient, pairs)
          .add_(made(rows_of(dy, pairs), block.narrow(1, 0, pairs.keys), make));
      key_gradients.add_to(owner, block.sizes(), [&](const at::Tensor& sum) {
        sum.narrow(1, 0, pairs.keys).add_(of_keys.to(sum.options()));
      });
    });
    const at::ScalarType type = dy.scalar_type();
    pass.sink->put(0, at::cat({query_gradient.to(type), key_gradients.own().to(type)}, 2));
  }

  /// LibTorch's kernel for the host serves where the host computes in its usual way.
  static bool writes_out(const at::Tensor& operand) {
    return operand.is_cuda() || !active_device().makes_as_host(op);
  }

  Attention a_;
  Communicator& group_;
};

}  // namespace

OperatorPtr make_context_attention(const Attention& attributes, Communicator& group) {
  return std::make_unique<ContextAttention>(attributes, group);
}

}  // namespace heteroperf
