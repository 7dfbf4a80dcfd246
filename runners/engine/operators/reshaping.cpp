// Changes of shape between images, sequences and rows. Most of them are views of the same memory.
//
// Images are kept channels last, so an image is already a sequence of pixels and needs no copy to
// become one. Flattening keeps the logical order {C, H, W}, which is another order in memory, and
// copies where these differ.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <functional>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

/// Puts a learned row in front. Saves nothing.
class ClassTokenOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor& x = inputs[0];
    return at::cat({parameters[0].view({1, 1, -1}).expand({x.size(0), 1, x.size(2)}), x}, 1);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor& dy = pass.output_gradient;
    if (pass.parameter_gradients != nullptr) {
      const at::Tensor rows = dy.select(1, 0).contiguous();
      sum_columns_into(rows, matrix_of(rows), (*pass.parameter_gradients)[0],
                       pass.context.accumulation);
    }
    if (pass.wants(0)) pass.sink->put(0, dy.narrow(1, 1, dy.size(1) - 1).contiguous());
  }
};

}  // namespace

/// {C, H, W} → {C·H·W} in this order, whatever the memory layout. Saves nothing.
OperatorPtr make(const Flatten&, const OperatorPlace& place) {
  return make_unary(
      [](const at::Tensor& x, auto&&...) {
        return x.reshape({x.size(0), -1});
      },
      [input = place.input()](const at::Tensor& dy, auto&&...) {
        std::vector<std::int64_t> sizes{dy.size(0)};
        sizes.insert(sizes.end(), input.begin(), input.end());
        return dy.reshape(sizes);
      });
}

/// {C, H, W} → {H·W, C}: no copy from channels-last images. Saves nothing.
OperatorPtr make(const ToSequence&, const OperatorPlace& place) {
  const Shape& input = place.input();
  return make_unary(
      [](const at::Tensor& images, auto&&...) {
        const at::Tensor x = canonical(images).permute({0, 2, 3, 1});
        return x.reshape({x.size(0), x.size(1) * x.size(2), x.size(3)});
      },
      [input](const at::Tensor& dy, auto&&...) {
        const at::Tensor pixels = dy.contiguous().view({dy.size(0), input[1], input[2], input[0]});
        return pixels.permute({0, 3, 1, 2});
      });
}

OperatorPtr make(const ClassToken&, const OperatorPlace&) {
  return std::make_unique<ClassTokenOperator>();
}

/// Takes one position of every sequence; its gradient is zero everywhere else. Saves nothing.
OperatorPtr make(const TakeToken& attributes, const OperatorPlace& place) {
  const Shape& input = place.input();
  return make_unary([index = attributes.index](
                        const at::Tensor& x, auto&&...) { return x.select(1, index).contiguous(); },
                    [index = attributes.index, input](const at::Tensor& dy, auto&&...) {
                      at::Tensor dx = at::zeros({dy.size(0), input[0], input[1]}, dy.options());
                      dx.select(1, index).copy_(dy);
                      return dx;
                    });
}

// Rows of sequences at the places that their tokens name: the one that stands for a text, and those
// that the rows of other inputs take. Nothing is computed, only moved; the places are found once,
// in the forward pass, as numbers of rows of the whole batch.

namespace {

at::Tensor as_rows(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

/// The first position of each {T} that is true, the last one where none is: {B} of {B, T}.
at::Tensor first_place(const at::Tensor& here) {
  return at::where(here.any(1), here.to(at::kInt).argmax(1), here.size(1) - 1);
}

/// Saves the place of each sample's row.
class TokenPoolOperator final : public Operator {
 public:
  TokenPoolOperator(std::int64_t token, std::int64_t length) : token_(token), length_(length) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor row = first_place(inputs[1].eq(token_));
    saved = {row + at::arange(row.size(0), row.options()) * length_};
    return as_rows(inputs[0]).index_select(0, saved[0]);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor& dy = pass.output_gradient;
    const at::Tensor dx = dy.new_zeros({dy.size(0), length_, dy.size(1)});
    as_rows(dx).index_copy_(0, pass.saved[0], dy);
    pass.sink->put(0, dx);
  }

  std::int64_t token_, length_;
};

/// Pools a row of sequences of which each rank of a group has a part. The vectors go to the rank
/// with the first part, the others give none; gradients come back the same way. Saves the place
/// among the own rows of the batch for each sample's row that is here, and the sample's number.
class PooledPartOperator final : public Operator {
 public:
  /// place_of(inputs): the position of each sample's row in the whole sequence, {B}. Collective.
  using PlaceOf = std::function<at::Tensor(const Tensors& inputs)>;
  PooledPartOperator(const SequencePart& part, Communicator& group, PlaceOf place_of)
      : part_(part), group_(group), place_of_(std::move(place_of)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor& x = inputs[0];
    const at::Tensor place = place_of_(inputs);
    at::Tensor row = at::full_like(place, -1);
    std::int64_t before = 0;
    for (const SequencePart::Chunk& chunk : part_.chunks(x.size(1))) {
      const at::Tensor here = place.ge(chunk.first).logical_and_(place.lt(chunk.end()));
      row = at::where(here, place - chunk.first + before, row);
      before += chunk.count;
    }
    const at::Tensor samples = at::nonzero(row.ge(0)).view(-1);
    const at::Tensor rows = row.index_select(0, samples) + samples * x.size(1);
    saved = {rows, samples, at::empty({x.size(0), x.size(1), 0})};  // its extents alone are needed
    const at::Tensor vectors = at::zeros({x.size(0), x.size(2)}, x.options());
    vectors.index_copy_(0, samples, as_rows(x).index_select(0, rows));
    all_reduce(group_, vectors, Reduction::sum);
    return part_.index == 0 ? vectors : vectors.narrow(0, 0, 0);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    const at::Tensor &dy = pass.output_gradient, &sizes = pass.saved[2];
    const std::int64_t batch = sizes.size(0), width = dy.size(1);
    const at::Tensor all = part_.index == 0 ? dy.clone(at::MemoryFormat::Contiguous)
                                            : at::zeros({batch, width}, dy.options());
    all_reduce(group_, all, Reduction::sum);
    const at::Tensor dx = at::zeros({batch, sizes.size(1), width}, dy.options());
    as_rows(dx).index_copy_(0, pass.saved[0], all.index_select(0, pass.saved[1]));
    pass.sink->put(0, dx);
  }

  SequencePart part_;
  Communicator& group_;
  PlaceOf place_of_;
};

/// Saves the places of the inserted rows; of a part of the sequences also which rows these are.
class InsertTokensOperator final : public Operator {
 public:
  /// `group`: the ranks with the other parts of the sequences; null: there are none.
  InsertTokensOperator(const InsertTokens& attributes, std::int64_t rows_per_item,
                       Communicator* group)
      : a_(attributes), rows_per_item_(rows_per_item), group_(group) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    at::Tensor items = as_rows(inputs[2]);
    const at::Tensor here = inputs[1].eq(a_.token);
    const at::Tensor places = at::nonzero(here.reshape(-1)).view(-1);
    saved = {places};
    std::int64_t all = places.size(0);
    if (group_ != nullptr) {
      const at::Tensor numbers = numbers_of_rows(here, all);
      saved.push_back(numbers.reshape(-1).index_select(0, places));
      saved.push_back(at::empty({all, 0}));  // its extent alone is needed
    }
    if (all != items.size(0)) {
      throw UserError(fmt::format("a batch has {} places for {} inserted rows", all, items.size(0)),
                      fmt::format("every token {} takes one row of an item", a_.token),
                      "Give each sample as many such tokens as its items have rows.");
    }
    if (group_ != nullptr) items = items.index_select(0, saved[1]);
    const at::Tensor joined = inputs[0].clone(at::MemoryFormat::Contiguous);
    joined.view({-1, joined.size(-1)}).index_copy_(0, places, items);
    return joined;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor dy = pass.output_gradient.contiguous();
    if (pass.wants(0)) {
      const at::Tensor dx = dy.clone();
      dx.view({-1, dx.size(-1)}).index_fill_(0, pass.saved[0], 0);
      pass.sink->put(0, dx);
    }
    if (!pass.wants(2)) return;
    at::Tensor rows = as_rows(dy).index_select(0, pass.saved[0]);
    if (group_ != nullptr) {
      const at::Tensor all = rows.new_zeros({pass.saved[2].size(0), rows.size(1)});
      all.index_copy_(0, pass.saved[1], rows);
      rows = all;
    }
    pass.sink->put(2, rows.view({-1, rows_per_item_, dy.size(-1)}));
  }

  /// For each position of this part the row that it would take, in the order of whole sequences.
  at::Tensor numbers_of_rows(const at::Tensor& here, std::int64_t& all) const {
    const at::Tensor whole = whole_sequences(*group_, here.to(at::kLong), a_.part.order);
    const at::Tensor numbers = whole.reshape(-1).cumsum(0).sub(1).view(whole.sizes());
    all = whole.sum().item().toLong();
    return positions_of_part(numbers, 1, a_.part, here.size(1));
  }

  InsertTokens a_;
  std::int64_t rows_per_item_;
  Communicator* group_;
};

}  // namespace

OperatorPtr make(const TokenPool& attributes, const OperatorPlace& place) {
  return std::make_unique<TokenPoolOperator>(attributes.token, place.input()[0]);
}
OperatorPtr make(const InsertTokens& attributes, const OperatorPlace& place) {
  HETEROPERF_EXPECT(attributes.part.whole());
  return std::make_unique<InsertTokensOperator>(attributes, place.input(2)[0], nullptr);
}

OperatorPtr make_context_pool(const TakeToken& attributes, Communicator& group) {
  return std::make_unique<PooledPartOperator>(
      attributes.part, group, [index = attributes.index](const Tensors& inputs) {
        const at::Tensor& x = inputs[0];
        return at::full({x.size(0)}, index, x.options().dtype(at::kLong));
      });
}
OperatorPtr make_context_pool(const TokenPool& attributes, Communicator& group) {
  return std::make_unique<PooledPartOperator>(
      attributes.part, group, [attributes, &group](const Tensors& inputs) {
        const at::Tensor here = inputs[1].eq(attributes.token).to(at::kLong);
        return first_place(whole_sequences(group, here, attributes.part.order).ne(0));
      });
}

OperatorPtr make_context_insertion(const InsertTokens& attributes, const OperatorPlace& place,
                                   Communicator& group) {
  return std::make_unique<InsertTokensOperator>(attributes, place.input(2)[0], &group);
}

}  // namespace heteroperf
