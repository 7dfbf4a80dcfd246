// Tables that tokens and positions look up. The gradient of a table is a sum of rows in the order
// of the tokens, whatever the number of threads.
//
// A token may occur many times in a micro-batch, so threads that share rows would add to the same
// row of the table. Instead they share columns: each goes through all tokens in order for its own
// columns. With a cut vocabulary every rank has some rows of the table. Tokens of other ranks get
// the index −1, give a row of zeros, and get no gradient; the sum over the ranks is the embedding.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Gradient of a table of which row t was added to row t of every sequence, the sum of the
/// sequences in their order; other rows get none.
void position_gradient(const at::Tensor& dy, Accumulation accumulation, const at::Tensor& buffer) {
  const std::int64_t length = dy.size(1);
  run_columns(&KernelTable::combine, Matrix(dy.size(0), length * dy.size(2), buffer), dy.size(0),
              dy.to(accumulation_type(dy.scalar_type())), accumulation, buffer);
  const std::int64_t unused = buffer.size(0) - length;
  if (accumulation == Accumulation::overwrite && unused > 0) {
    buffer.narrow(0, length, unused).zero_();
  }
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
  EmbeddingOperator(const Embedding& attributes, Positions positions, VocabularyPart part)
      : attributes_(attributes), positions_(positions), part_(part) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    at::Tensor indices = inputs[0].contiguous();
    check_indices(indices, part_.all, "token");
    if (part_.all != attributes_.vocabulary) {
      indices = indices_within(indices, part_.first, attributes_.vocabulary);
    }
    saved = {indices};
    at::Tensor y = empty({indices.size(0), indices.size(1), attributes_.features}, parameters[0]);
    const at::Tensor rows = positions_ == Positions::learned ? parameters[1] : at::Tensor();
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
    if (positions_ == Positions::learned) {
      position_gradient(dy, pass.context.accumulation, tables[1]);
    }
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
  Positions positions_;
  VocabularyPart part_;
};

/// Adds rows of a table to every sequence: row t to position t, or row 0 to all. Saves nothing.
class AddRowsOperator final : public Operator {
 public:
  enum class Rows { by_position, first };
  explicit AddRowsOperator(Rows rows) : rows_(rows) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor x = inputs[0].contiguous();
    at::Tensor y = uninitialised_like(x);
    const std::int64_t length = rows_ == Rows::first ? 1 : x.size(1);
    run_kernel(&KernelTable::add, matrix_of(x), x, parameters[0], length, nullptr, false, y);
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (pass.parameter_gradients != nullptr) {
      sum_rows(pass.output_gradient.contiguous(), pass.context.accumulation,
               (*pass.parameter_gradients)[0]);
    }
    if (pass.wants(0)) pass.sink->put(0, pass.output_gradient);
  }

  void sum_rows(const at::Tensor& dy, Accumulation accumulation, const at::Tensor& table) const {
    if (rows_ == Rows::by_position) return position_gradient(dy, accumulation, table);
    if (accumulation == Accumulation::overwrite) table.zero_();
    sum_columns_into(dy, matrix_of(dy), table.select(0, 0), accumulation);
  }

  Rows rows_;
};

}  // namespace

OperatorPtr make(const Embedding& attributes, const OperatorPlace&, Positions positions) {
  return std::make_unique<EmbeddingOperator>(attributes, positions,
                                             VocabularyPart{0, attributes.vocabulary});
}
OperatorPtr make_vocabulary_embedding(const Embedding& attributes, VocabularyPart part) {
  return std::make_unique<EmbeddingOperator>(attributes, Positions::none, part);
}
OperatorPtr make(const PositionEmbedding&, const OperatorPlace&) {
  return std::make_unique<AddRowsOperator>(AddRowsOperator::Rows::by_position);
}
OperatorPtr make(const TypeEmbedding&, const OperatorPlace&) {
  return std::make_unique<AddRowsOperator>(AddRowsOperator::Rows::first);
}

}  // namespace heteroperf
