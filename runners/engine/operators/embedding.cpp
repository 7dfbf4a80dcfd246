// Tables that tokens and positions look up. The gradient of a table is a sum of rows in the order
// of the tokens, whatever the number of threads.
//
// A token may occur many times in a micro-batch, so threads that share rows would add to the same
// row of the table. Instead they share columns: each goes through all tokens in order for its own
// columns. With a cut vocabulary every rank has some rows of the table. Tokens of other ranks get
// the index −1, give a row of zeros, and get no gradient; the sum over the ranks is the embedding.
#include <optional>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// The rows of a table of positions that a part of every sequence has, {T, h}.
at::Tensor own_positions(const at::Tensor& table, const SequencePart& part, std::int64_t length) {
  return part.whole() ? table : positions_of_part(table, 0, part, length);
}

/// Gradient of a table of which these rows were added to every sequence, the sum of the sequences
/// in their order; other rows get none.
void position_gradient(const at::Tensor& dy, const SequencePart& part, Accumulation accumulation,
                       const at::Tensor& buffer) {
  const at::Tensor wide = dy.to(accumulation_type(dy.scalar_type()));
  std::int64_t done = 0, last = 0;
  for (const SequencePart::Chunk& chunk : part.chunks(dy.size(1))) {
    const at::Tensor rows = wide.narrow(1, done, chunk.count).contiguous();
    const at::Tensor target = buffer.narrow(0, chunk.first, chunk.count);
    run_columns(&KernelTable::combine, Matrix(rows.size(0), chunk.count * rows.size(2), target),
                rows.size(0), rows, accumulation, target);
    if (accumulation == Accumulation::overwrite) buffer.slice(0, last, chunk.first).zero_();
    done += chunk.count, last = chunk.end();
  }
  if (accumulation == Accumulation::overwrite) buffer.slice(0, last).zero_();
}

/// Indices counted from `first`; −1 for those that are not among `count` from there on.
at::Tensor indices_within(const at::Tensor& indices, std::int64_t first, std::int64_t count) {
  if (indices.is_cuda()) {
    const at::Tensor local = indices.sub(first);
    return local.masked_fill_(local.lt(0).logical_or_(local.ge(count)), -1);
  }
  at::Tensor local = uninitialised_like(indices);
  const auto* from = indices.const_data_ptr<std::int64_t>();
  auto* to = local.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const std::int64_t index = from[i] - first;
    to[i] = index >= 0 && index < count ? index : -1;
  }
  return local;
}

/// Looks rows up, and adds learned positions when fused; rows of other ranks' tokens are zeros.
/// Saves the indices.
class EmbeddingOperator final : public Operator {
 public:
  EmbeddingOperator(const Embedding& attributes, VocabularyPart part,
                    std::optional<PositionEmbedding> positions)
      : attributes_(attributes), part_(part), positions_(positions) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    at::Tensor indices = inputs[0].contiguous();
    check_indices(indices, part_.all, "token");
    if (part_.all != attributes_.vocabulary) {
      indices = indices_within(indices, part_.first, attributes_.vocabulary);
    }
    saved = {indices};
    at::Tensor y = empty({indices.size(0), indices.size(1), attributes_.features}, parameters[0]);
    const at::Tensor rows =
        positions_ ? own_positions(parameters[1], positions_->part, indices.size(1)) : at::Tensor();
    run_kernel(&KernelTable::embedding, matrix_of(y), indices, parameters[0], rows, indices.size(1),
               y);
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (pass.parameter_gradients == nullptr) return;
    const Tensors& tables = *pass.parameter_gradients;
    const at::Tensor dy = pass.output_gradient.contiguous();
    scatter(dy, pass.saved[0], pass.context.accumulation, tables[0]);
    if (positions_) position_gradient(dy, positions_->part, pass.context.accumulation, tables[1]);
  }

  // Threads share the columns, not the rows: every sum is made in the order of the rows.
  static void scatter(const at::Tensor& dy, const at::Tensor& indices, Accumulation accumulation,
                      const at::Tensor& buffer) {
    GradientTarget target(buffer, accumulation_type(dy.scalar_type()), accumulation);
    if (target.accumulation() == Accumulation::overwrite) target.values().zero_();
    const Matrix m = matrix_of(dy);
    run_columns(&KernelTable::embedding_backward, m, m.rows, m.columns, indices, dy,
                target.values());
    target.finish();
  }

  Embedding attributes_;
  VocabularyPart part_;
  std::optional<PositionEmbedding> positions_;  ///< fused
};

/// Adds rows of a table to every sequence: row t to position t, or row 0 to all. Saves nothing.
class AddRowsOperator final : public Operator {
 public:
  /// `positions`: row t goes to position t; none: row 0 is added to all.
  explicit AddRowsOperator(std::optional<PositionEmbedding> positions) : positions_(positions) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor x = own_rows(inputs[0]).contiguous();
    at::Tensor y = uninitialised_like(x);
    const std::int64_t length = positions_ ? x.size(1) : 1;
    const at::Tensor rows =
        positions_ ? own_positions(parameters[0], positions_->part, length) : parameters[0];
    run_kernel(&KernelTable::add, matrix_of(x), x, rows, length, nullptr, false, y);
    return y;
  }

 private:
  bool takes_part() const { return positions_ && positions_->takes_part; }
  at::Tensor own_rows(const at::Tensor& x) const {
    if (!takes_part()) return x;
    const SequencePart& part = positions_->part;
    return positions_of_part(x, 1, part, part.positions_of(part.index, x.size(1)));
  }

  // Rows that other ranks take have no gradient here. A part of a picture's rows is one block.
  void gradients(const BackwardPass& pass) override {
    const at::Tensor& dy = pass.output_gradient;
    if (pass.parameter_gradients != nullptr) {
      sum_rows(dy.contiguous(), pass.context.accumulation, (*pass.parameter_gradients)[0]);
    }
    if (!pass.wants(0)) return;
    if (!takes_part()) return pass.sink->put(0, dy);
    const SequencePart& part = positions_->part;
    const SequencePart::Chunk own = *part.chunks(dy.size(1)).begin();
    const at::Tensor dx = dy.new_zeros({dy.size(0), part.whole_length(own.count), dy.size(2)});
    dx.narrow(1, own.first, own.count).copy_(dy);
    pass.sink->put(0, dx);
  }

  void sum_rows(const at::Tensor& dy, Accumulation accumulation, const at::Tensor& table) const {
    if (positions_) return position_gradient(dy, positions_->part, accumulation, table);
    if (accumulation == Accumulation::overwrite) table.zero_();
    sum_columns_into(dy, matrix_of(dy), table.select(0, 0), accumulation);
  }

  std::optional<PositionEmbedding> positions_;
};

}  // namespace

OperatorPtr make(const Embedding& attributes, const OperatorPlace&,
                 const PositionEmbedding* positions) {
  return std::make_unique<EmbeddingOperator>(
      attributes, VocabularyPart{0, attributes.vocabulary},
      positions != nullptr ? std::optional(*positions) : std::nullopt);
}
OperatorPtr make_vocabulary_embedding(const Embedding& attributes, VocabularyPart part) {
  return std::make_unique<EmbeddingOperator>(attributes, part, std::nullopt);
}
OperatorPtr make(const PositionEmbedding& attributes, const OperatorPlace&) {
  return std::make_unique<AddRowsOperator>(attributes);
}
OperatorPtr make(const TypeEmbedding&, const OperatorPlace&) {
  return std::make_unique<AddRowsOperator>(std::nullopt);
}

}  // namespace heteroperf
