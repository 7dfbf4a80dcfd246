// Attention of context-parallel ranks, each of which has a part of every sequence (SequencePart).
//
// Before a pass the ranks gather the keys and values of all positions; queries, outputs and what
// the backward pass keeps stay parts. A causal chunk of queries then has two blocks: all keys
// before it, without a mask, and its own, with the causal one. Their outputs are joined by the
// logarithms of their softmax sums l1 and l2: with l = log(exp l1 + exp l2) the output is
// o1 exp(l1 - l) + o2 exp(l2 - l). The gradients of a block follow from l and the joined output
// alone (Dao 2023, arXiv:2307.08691, section 2.3), so nothing else is kept; keys and values are
// gathered a second time rather than kept whole. Each rank then has a summand of the gradients of
// all keys and values: these are added up, and every rank gets those of its part. A ring that
// passes keys on would hide messages behind blocks, at the price of a message per block.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

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

/// Queries against one block of keys, or against several, joined.
struct BlockOutput {
  at::Tensor output;   ///< {B, heads, T, head_dim}
  at::Tensor log_sum;  ///< {B, heads, T}: of each softmax sum
};

BlockOutput joined(const BlockOutput& a, const BlockOutput& b) {
  const at::Tensor both = at::logaddexp(a.log_sum, b.log_sum);
  const auto weighted = [&](const BlockOutput& one) {
    return one.output.to(both.scalar_type()).mul(one.log_sum.sub(both).exp().unsqueeze(-1));
  };
  return {weighted(a).add(weighted(b)).to(a.output.scalar_type()), both};
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
      : a_(attributes), exchange_(group, attributes.part.order) {
    HETEROPERF_EXPECT(group.size() == a_.part.parts && group.rank().value() == a_.part.index);
  }

  /// Saves the packed input, the output, and the logarithm of each softmax sum {B, heads, T}.
  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor packed = inputs[0].contiguous();
    const at::Tensor keys = exchange_.gather(keys_of(packed));
    if (active_device().makes_as_host(op)) return attend_to(packed, keys, saved);
    return device_product(op, packed, keys, [&](const at::Tensor& rows, const at::Tensor& others) {
      return attend_to(rows, others, saved);
    });
  }

 private:
  static constexpr ProductOperator op = ProductOperator::attention;

  /// Keys that a run of queries is held against, by their positions in the whole sequence.
  struct Block {
    std::int64_t first = 0, count = 0;
    bool causal = false;
  };
  /// A run of this rank's own rows.
  struct Queries {
    std::int64_t first = 0, count = 0;
    std::vector<Block> blocks;
  };

  std::int64_t query_width() const { return a_.heads * a_.head_dim; }
  std::int64_t key_width() const { return 2 * a_.kv_heads * a_.head_dim; }

  std::vector<Queries> queries_of(std::int64_t own) const {
    if (!a_.causal) return {{0, own, {{0, own * a_.part.parts, false}}}};
    std::vector<Queries> all;
    std::int64_t row = 0;
    for (const SequencePart::Chunk& chunk : a_.part.chunks(own)) {
      Queries& queries = all.emplace_back(Queries{row, chunk.count, {}});
      if (chunk.first > 0) queries.blocks.push_back({0, chunk.first, false});
      queries.blocks.push_back({chunk.first, chunk.count, true});
      row += chunk.count;
    }
    return all;
  }

  at::Tensor keys_of(const at::Tensor& packed) const {
    return packed.narrow(2, query_width(), key_width());
  }

  AttentionParts parts_of(const at::Tensor& packed, const at::Tensor& keys, const Queries& queries,
                          const Block& block) const {
    const at::Tensor rows = packed.narrow(1, queries.first, queries.count);
    const at::Tensor others = keys.narrow(1, block.first, block.count);
    const std::int64_t half = key_width() / 2;
    return {as_heads(rows.narrow(2, 0, query_width()), a_.head_dim),
            as_heads(others.narrow(2, 0, half), a_.head_dim),
            as_heads(others.narrow(2, half, half), a_.head_dim)};
  }

  at::Tensor attend_to(const at::Tensor& packed, const at::Tensor& keys, Tensors& saved) const {
    Tensors outputs, log_sums;
    for (const Queries& queries : queries_of(packed.size(1))) {
      BlockOutput all;
      for (const Block& block : queries.blocks) {
        const BlockOutput one =
            attend(parts_of(packed, keys, queries, block), block.causal, writes_out(packed));
        all = all.output.defined() ? joined(all, one) : one;
      }
      outputs.push_back(rows_of_heads(all.output));
      log_sums.push_back(all.log_sum);
    }
    at::Tensor output = at::cat(outputs, 1);
    saved = {packed, output, at::cat(log_sums, 2)};
    return output;
  }

  // The ranks exchange in the type of the tensors, whatever each of them computes in.
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor dy = pass.output_gradient.contiguous();
    const at::ScalarType type = dy.scalar_type();
    const at::Tensor keys = exchange_.gather(keys_of(pass.saved[0]).to(type));
    at::Tensor key_gradient;
    const auto make = [&](const at::Tensor& g, const at::Tensor& others) {
      return gradients_of(g, pass.saved, others, key_gradient);
    };
    const at::Tensor queries =
        active_device().makes_as_host(op) ? make(dy, keys) : device_product(op, dy, keys, make);
    const at::Tensor own = exchange_.sum(key_gradient.to(accumulation_type(type)));
    pass.sink->put(0, at::cat({queries, own.to(type)}, 2));
  }

  /// The gradient of the queries; `key_gradient` becomes the summand of that of all keys and
  /// values.
  at::Tensor gradients_of(const at::Tensor& dy, const Tensors& saved, const at::Tensor& keys,
                          at::Tensor& key_gradient) const {
    const at::Tensor &packed = saved[0], &output = saved[1], &log_sums = saved[2];
    key_gradient =
        at::zeros(keys.sizes(), keys.options().dtype(accumulation_type(keys.scalar_type())));
    Tensors query_gradients;
    for (const Queries& queries : queries_of(packed.size(1))) {
      const auto own = [&](const at::Tensor& rows) {
        return as_heads(rows.narrow(1, queries.first, queries.count), a_.head_dim);
      };
      const BlockOutput all{own(output), log_sums.narrow(2, queries.first, queries.count)};
      at::Tensor query_gradient;
      for (const Block& block : queries.blocks) {
        const AttentionParts got = block_gradients(own(dy), parts_of(packed, keys, queries, block),
                                                   all, block.causal, writes_out(packed));
        query_gradient = query_gradient.defined() ? query_gradient.add(got.query) : got.query;
        const at::Tensor sums = key_gradient.narrow(1, block.first, block.count);
        const std::int64_t half = key_width() / 2;
        sums.narrow(2, 0, half).add_(rows_of_heads(got.key));
        sums.narrow(2, half, half).add_(rows_of_heads(got.value));
      }
      query_gradients.push_back(rows_of_heads(query_gradient));
    }
    return at::cat(query_gradients, 1);
  }

  /// LibTorch's kernel for the host serves where the host computes in its usual way.
  static bool writes_out(const at::Tensor& packed) {
    return packed.is_cuda() || !active_device().makes_as_host(op);
  }

  Attention a_;
  SequenceExchange exchange_;
};

}  // namespace

OperatorPtr make_context_attention(const Attention& attributes, Communicator& group) {
  return std::make_unique<ContextAttention>(attributes, group);
}

}  // namespace heteroperf
