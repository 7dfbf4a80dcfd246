// Attention over packed rows of queries, keys and values, over the keys and values of another
// sequence, and the rotation of queries and keys by their position. On the host LibTorch's flash
// attention runs or ours (own_attention.cpp); on a device device_attention() chooses.
//
// A row has all query heads, then all key heads, then all value heads, side by side, as one linear
// makes them. Attention reads them as strided views, so nothing is copied on the way in; the
// gradients of the three parts are packed back into rows. Tables that depend on positions alone
// (ALiBi's biases, cosines and sines) are made for the first micro-batch of a length and kept.
#include <ATen/Dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/own_products.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

at::Tensor host_table(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type));
}

/// Calls body(double*) or body(float*) on a host table of an accumulation type.
template <class Body>
void fill(const at::Tensor& table, const Body& body) {
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "fill",
                             [&] { body(table.data_ptr<scalar_t>()); });
}

/// Rows as {B, heads, T, head_dim}: a view.
at::Tensor heads_of(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.view({rows.size(0), rows.size(1), rows.size(2) / head_dim, head_dim}).transpose(1, 2);
}
/// {B, heads, T, head_dim} → {B, T, heads · head_dim}; a view of what the kernels return.
at::Tensor merge(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), -1});
}

// On a device that adds terms in an order of its own the tokens of a sequence change places, and so
// do the numbers within each head. Attention is the same function of tokens in any order if its
// mask follows them, causal or not. So all of its sums run in the drawn order: scores over a head's
// numbers, softmax and outputs over keys, gradients over queries.

enum class Move { there, back };
at::Tensor moved(const at::Tensor& rows, std::int64_t head_dim, Move move) {
  at::Tensor heads = rows.reshape({rows.size(0), rows.size(1), -1, head_dim});
  for (const std::int64_t axis : {1, 3}) {
    const auto order = active_device().sum_order(heads.size(axis));
    if (!order) continue;
    heads = heads.index_select(axis, move == Move::there ? *order : order->argsort());
  }
  return heads.reshape(rows.sizes()).contiguous();
}

/// Attention on packed rows, read and written in place. Saves the packed input, the output and the
/// log of each softmax sum; on a device what device_attention() saves.
class AttentionOperator final : public Operator {
 public:
  explicit AttentionOperator(const Attention& attributes) : a_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor packed = inputs[0].contiguous();
    if (packed.is_cuda() && active_device().makes_as_host(op)) {
      const AttentionParts parts = split(packed);
      saved = {packed};
      return merge(device_attention(parts, a_.causal, bias(packed), saved));
    }
    if (!active_device().makes_as_host(op)) return device_forward(packed, saved);
    const auto way = way_of(packed);
    if (way == ProductWay::libtorch) return library_forward(packed, saved);
    const at::Tensor out = empty({packed.size(0), packed.size(1), a_.heads * a_.head_dim}, packed);
    const at::Tensor log_sum = empty({packed.size(0), a_.heads, packed.size(1)}, packed);
    if (way) {
      const AttentionParts parts = split(packed);
      const CountedCall counted("heteroperf::attention",
                                {parts.query, parts.key, parts.value, a_.causal});
      own_attention(own_form(), packed, out, log_sum);
    }
    saved = {packed, out, log_sum};
    return out;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor& dy = pass.output_gradient;
    const Tensors& saved = pass.saved;
    if (!active_device().makes_as_host(op)) return pass.sink->put(0, device_backward(dy, saved));
    const AttentionParts parts = split(saved[0]);
    const at::Tensor g = heads_of(dy, a_.head_dim);
    if (dy.is_cuda()) {
      const AttentionParts got =
          device_attention_backward(g, parts, a_.causal, bias(saved[0]), saved);
      pass.sink->put(0, pack(merge(got.query), merge(got.key), merge(got.value)));
      return;
    }
    const auto way = way_of(saved[0]);
    if (way != ProductWay::libtorch) {
      at::Tensor gradient = uninitialised_like(saved[0]);
      if (way) {
        const CountedCall counted("heteroperf::attention_backward",
                                  {g, parts.query, parts.key, parts.value, a_.causal});
        own_attention_backward(own_form(), saved[0], saved[1], saved[2], dy.contiguous(), gradient);
      }
      return pass.sink->put(0, std::move(gradient));
    }
    pass.sink->put(0, library_backward(dy, saved));
  }

  static constexpr ProductOperator op = ProductOperator::attention;

  /// LibTorch's flash attention on the host.
  at::Tensor library_forward(const at::Tensor& packed, Tensors& saved) {
    const AttentionParts parts = split(packed);
    const auto mask = mask_of(packed);
    auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        parts.query, parts.key, parts.value, 0.0, mask.causal, mask.added);
    saved = {packed, out, log_sum};
    return merge(out);
  }
  at::Tensor library_backward(const at::Tensor& dy, const Tensors& saved) {
    const AttentionParts parts = split(saved[0]);
    const auto mask = mask_of(saved[0]);
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(dy, a_.head_dim), parts.query, parts.key, parts.value, saved[1], saved[2], 0.0,
        mask.causal, mask.added);
    return pack(merge(query), merge(key), merge(value));
  }

  // On a device that does not compute as the host: with its operands' format, or in float64, which
  // stays in `saved` for the backward pass. To an observer it is one operation as the model has it,
  // since a mask that is added hides from LibTorch which pairs are not needed.
  at::Tensor device_forward(const at::Tensor& packed, Tensors& saved) {
    return device_product(op, packed, {}, [&](const at::Tensor& rows, const at::Tensor&) {
      const at::Tensor there = moved(rows, a_.head_dim, Move::there);
      const AttentionParts parts = split(there);
      const CountedCall counted("heteroperf::attention",
                                {parts.query, parts.key, parts.value, a_.causal});
      return moved(library_forward(there, saved), a_.head_dim, Move::back);
    });
  }
  at::Tensor device_backward(const at::Tensor& dy, const Tensors& saved) {
    return device_product(op, dy.contiguous(), {}, [&](const at::Tensor& g, const at::Tensor&) {
      const at::Tensor there = moved(g, a_.head_dim, Move::there);
      const AttentionParts parts = split(saved[0]);
      const CountedCall counted(
          "heteroperf::attention_backward",
          {heads_of(there, a_.head_dim), parts.query, parts.key, parts.value, a_.causal});
      return moved(library_backward(there, saved), a_.head_dim, Move::back);
    });
  }

  struct Mask {
    bool causal;
    std::optional<at::Tensor> added;  ///< to the scores
  };
  Mask mask_of(const at::Tensor& packed) {
    const std::int64_t length = packed.size(1);
    const auto order = active_device().sum_order(length);
    Mask mask{a_.causal, bias(packed)};
    if (!order || !(mask.causal || mask.added)) return mask;
    at::Tensor added =
        mask.added ? *mask.added
                   : at::zeros({1, 1, length, length},
                               packed.options().dtype(accumulation_type(packed.scalar_type())));
    if (a_.causal) {
      const at::Tensor later = at::ones({length, length}, at::TensorOptions().dtype(at::kBool));
      added = added.masked_fill(later.triu(1), -std::numeric_limits<double>::infinity());
    }
    return {false, added.index_select(2, *order).index_select(3, *order)};
  }

  /// The way of both passes, because each keeps in its own form what the backward pass needs. Only
  /// float32 has a choice. None: nothing is computed.
  std::optional<ProductWay> way_of(const at::Tensor& packed) const {
    if (packed.scalar_type() != at::kFloat) return ProductWay::libtorch;
    return chosen_way({a_.causal ? ProductKind::causal : ProductKind::attention,
                       {packed.size(0), a_.heads, a_.kv_heads, packed.size(1), a_.head_dim}});
  }

  OwnAttention own_form() const {
    OwnAttention form{a_.heads, a_.kv_heads, a_.head_dim, a_.causal};
    for (std::int64_t head = 0; a_.alibi && head < a_.heads; ++head) {
      form.slopes.push_back(static_cast<float>(slope_of(head)));
    }
    return form;
  }

  /// slope_i = 2^(−8 (i + 1) / heads) (Press, Smith, Lewis, arXiv:2108.12409, section 3).
  double slope_of(std::int64_t head) const {
    const auto all_heads = static_cast<double>(a_.all_heads > 0 ? a_.all_heads : a_.heads);
    return std::exp2(-8.0 * static_cast<double>(a_.first_head + head + 1) / all_heads);
  }

  /// Views {B, heads, T, head_dim} of the packed rows {queries, keys, values}.
  AttentionParts split(const at::Tensor& packed) const {
    const auto part = [&](std::int64_t first, std::int64_t heads) {
      return heads_of(packed.narrow(2, first * a_.head_dim, heads * a_.head_dim), a_.head_dim);
    };
    return {part(0, a_.heads), part(a_.heads, a_.kv_heads),
            part(a_.heads + a_.kv_heads, a_.kv_heads)};
  }

  /// The opposite of split(): gradients of the three parts side by side.
  at::Tensor pack(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const {
    return at::cat({query, key, value}, 2);
  }

  /// −slope · (t − s) per head; made once per length.
  std::optional<at::Tensor> bias(const at::Tensor& packed) {
    if (!a_.alibi) return std::nullopt;
    const std::int64_t length = packed.size(1);
    const at::ScalarType type = accumulation_type(packed.scalar_type());
    if (alibi_.defined() && alibi_.size(2) == length && alibi_.scalar_type() == type) return alibi_;
    alibi_ = host_table({1, a_.heads, length, length}, type);
    fill(alibi_, [&](auto* values) {
      for (std::int64_t head = 0; head < a_.heads; ++head) {
        const double slope = slope_of(head);
        for (std::int64_t t = 0; t < length; ++t) {
          for (std::int64_t s = 0; s < length; ++s) {
            *values++ =
                static_cast<std::decay_t<decltype(*values)>>(-slope * static_cast<double>(t - s));
          }
        }
      }
    });
    alibi_ = alibi_.to(packed.device());
    return alibi_;
  }

  Attention a_;
  at::Tensor alibi_;
};

/// Attention over the keys and values of another sequence, by LibTorch's kernels. Saves what its
/// way keeps, the queries first and the packed keys and values last.
class CrossAttentionOperator final : public Operator {
 public:
  explicit CrossAttentionOperator(const CrossAttention& attributes) : a_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor queries = inputs[0].contiguous(), others = inputs[1].contiguous();
    saved = {queries};
    if (!active_device().makes_as_host(op)) {
      return device_product(op, queries, others, [&](const at::Tensor& q, const at::Tensor& kv) {
        const at::Tensor rows = moved(q, a_.head_dim, Move::there);
        saved = {rows};
        const AttentionParts parts = split(rows, moved(kv, a_.head_dim, Move::there));
        const CountedCall counted("heteroperf::attention",
                                  {parts.query, parts.key, parts.value, false});
        at::Tensor made = library_forward(parts, saved);
        saved.push_back(packed(parts));
        return moved(made, a_.head_dim, Move::back);
      });
    }
    const AttentionParts parts = split(queries, others);
    at::Tensor out = queries.is_cuda() ? merge(device_attention(parts, false, std::nullopt, saved))
                                       : library_forward(parts, saved);
    saved.push_back(others);
    return out;
  }

 private:
  static constexpr ProductOperator op = ProductOperator::attention;

  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0) && !pass.wants(1)) return;
    const at::Tensor dy = pass.output_gradient.contiguous();
    const Tensors& saved = pass.saved;
    const AttentionParts parts = split(saved.front(), saved.back());
    AttentionParts got;
    at::Tensor queries;
    if (!active_device().makes_as_host(op)) {
      queries = device_product(op, dy, {}, [&](const at::Tensor& g, const at::Tensor&) {
        const at::Tensor there = heads_of(moved(g, a_.head_dim, Move::there), a_.head_dim);
        const CountedCall counted("heteroperf::attention_backward",
                                  {there, parts.query, parts.key, parts.value, false});
        got = library_backward(there, parts, saved);
        return moved(merge(got.query), a_.head_dim, Move::back);
      });
      if (pass.wants(1)) {
        pass.sink->put(1, moved(packed(got), a_.head_dim, Move::back).to(dy.options()));
      }
    } else {
      const at::Tensor g = heads_of(dy, a_.head_dim);
      got = dy.is_cuda() ? device_attention_backward(g, parts, false, std::nullopt, saved)
                         : library_backward(g, parts, saved);
      queries = merge(got.query);
      if (pass.wants(1)) pass.sink->put(1, packed(got));
    }
    if (pass.wants(0)) pass.sink->put(0, std::move(queries));
  }

  static at::Tensor library_forward(const AttentionParts& parts, Tensors& saved) {
    auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        parts.query, parts.key, parts.value, 0.0, false, std::nullopt);
    saved.insert(saved.end(), {out, log_sum});
    return merge(out);
  }
  static AttentionParts library_backward(const at::Tensor& g, const AttentionParts& parts,
                                         const Tensors& saved) {
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        g, parts.query, parts.key, parts.value, saved[1], saved[2], 0.0, false, std::nullopt);
    return {query, key, value};
  }

  AttentionParts split(const at::Tensor& queries, const at::Tensor& others) const {
    const std::int64_t width = a_.kv_heads * a_.head_dim;
    return {heads_of(queries, a_.head_dim), heads_of(others.narrow(2, 0, width), a_.head_dim),
            heads_of(others.narrow(2, width, width), a_.head_dim)};
  }
  /// Keys and values side by side.
  static at::Tensor packed(const AttentionParts& parts) {
    return at::cat({merge(parts.key), merge(parts.value)}, 2);
  }

  CrossAttention a_;
};

/// Turns queries and keys of packed rows.
class RotaryTurn {
 public:
  explicit RotaryTurn(const Rotary& attributes) : a_(attributes) {}

  enum class Direction { forward, back };
  at::Tensor operator()(const at::Tensor& x, Direction direction) {
    make_tables(x);
    at::Tensor y = uninitialised_like(x);
    const RotaryLayout layout{x.size(1), a_.heads + a_.kv_heads, a_.head_dim,
                              direction == Direction::back};
    run_kernel(&KernelTable::rotary, matrix_of(x), layout, x, cosine_, sine_, y);
    return y;
  }

 private:
  // Su et al., arXiv:2104.09864, equation 15; angles in double.
  /// Cosines and sines of every position and pair, made once per length.
  void make_tables(const at::Tensor& x) {
    const std::int64_t length = x.size(1), half = a_.head_dim / 2;
    const at::ScalarType type = accumulation_type(x.scalar_type());
    if (cosine_.defined() && cosine_.size(0) == length && cosine_.scalar_type() == type) return;
    cosine_ = host_table({length, half}, type);
    sine_ = host_table({length, half}, type);
    fill_angles(cosine_, [](double angle) { return std::cos(angle); });
    fill_angles(sine_, [](double angle) { return std::sin(angle); });
    cosine_ = cosine_.to(x.device());
    sine_ = sine_.to(x.device());
  }

  template <class F>
  void fill_angles(const at::Tensor& table, F f) const {
    fill(table, [&](auto* values) {
      const std::int64_t half = table.size(1);
      for (const SequencePart::Chunk& chunk : a_.part.chunks(table.size(0))) {
        for (std::int64_t i = chunk.first * half; i < chunk.end() * half; ++i) {
          const double exponent =
              -2.0 * static_cast<double>(i % half) / static_cast<double>(a_.head_dim);
          const double angle = static_cast<double>(i / half) * std::pow(a_.base, exponent);
          *values++ = static_cast<std::decay_t<decltype(*values)>>(f(angle));
        }
      }
    });
  }

  Rotary a_;
  at::Tensor cosine_, sine_;
};

}  // namespace

OperatorPtr make(const Attention& attributes, const OperatorPlace&) {
  HETEROPERF_EXPECT(attributes.part.whole());
  return std::make_unique<AttentionOperator>(attributes);
}
OperatorPtr make(const CrossAttention& attributes, const OperatorPlace&) {
  return std::make_unique<CrossAttentionOperator>(attributes);
}
/// Saves nothing.
OperatorPtr make(const Rotary& attributes, const OperatorPlace&) {
  const auto turn = std::make_shared<RotaryTurn>(attributes);
  return make_unary(
      [turn](const at::Tensor& x, auto&&...) {
        return (*turn)(x.contiguous(), RotaryTurn::Direction::forward);
      },
      [turn](const at::Tensor& dy, auto&&...) {
        return (*turn)(dy.contiguous(), RotaryTurn::Direction::back);
      });
}

}  // namespace heteroperf
