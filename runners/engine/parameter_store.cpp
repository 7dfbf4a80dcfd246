#include "runners/engine/parameter_store.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <span>

#include "metrics/error.hpp"
#include "metrics/hash.hpp"
#include "runners/engine/initial_values.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/peak_rate.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t alignment_bytes = 64;

bool is_matrix(const Parameter& parameter) { return parameter.shape.size() > 1; }

}  // namespace

ParameterStore::ParameterStore(const ModelGraph& graph, Precision precision, std::uint64_t seed) {
  lay_out(graph,
          alignment_bytes / static_cast<std::int64_t>(c10::elementSize(scalar_type(precision))));
  make_arenas(precision);
  make_views(graph);
  for (const Entry& entry : entries_) initialise(graph, entry, seed);
  publish();
}

// Values are drawn in the order of the contiguous shape, whatever the order in memory.
void ParameterStore::initialise(const ModelGraph& graph, const Entry& entry, std::uint64_t seed) {
  const Node& node = graph.node(entry.node);
  const at::Tensor values = at::empty(node.parameters[entry.index].shape, master_.options());
  fill_initial_values(graph, entry.node, entry.index, seed, values);
  view_of(master_, entry, node).copy_(values);
}

void ParameterStore::lay_out(const ModelGraph& graph, std::int64_t alignment) {
  std::size_t total = 0;
  for (const Node& node : graph.nodes()) {
    first_of_node_.push_back(total);
    total += node.parameters.size();
  }
  position_of_.resize(total);
  for (const bool matrices : {true, false}) {
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      const std::vector<Parameter>& parameters = graph.nodes()[n].parameters;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (is_matrix(parameters[i]) != matrices) continue;
        position_of_[first_of_node_[n] + i] = entries_.size();
        entries_.push_back({NodeId(static_cast<std::int32_t>(n)), i, elements_, {}, {}});
        const std::int64_t count = element_count(parameters[i].shape);
        elements_ += (count + alignment - 1) / alignment * alignment;
      }
    }
    if (matrices) matrix_elements_ = elements_;
  }
}

void ParameterStore::make_arenas(Precision precision) {
  const at::ScalarType type = scalar_type(precision);
  const at::ScalarType wide = precision == Precision::bf16 ? at::kFloat : type;
  master_ = at::zeros({elements_}, at::TensorOptions().dtype(wide));
  reduced_gradient_ = at::zeros({elements_ + 1}, at::TensorOptions().dtype(wide));
  const bool own = type != wide;
  working_ = own ? at::zeros({elements_}, at::TensorOptions().dtype(type)) : master_;
  gradient_ = own ? at::zeros({elements_}, at::TensorOptions().dtype(type))
                  : reduced_gradient_.narrow(0, 0, elements_);
}

at::Tensor ParameterStore::view_of(const at::Tensor& arena, const Entry& entry, const Node& node) {
  const Shape& shape = node.parameters[entry.index].shape;
  const at::Tensor flat = arena.narrow(0, entry.offset, element_count(shape));
  if (parameter_format(node, entry.index) != at::MemoryFormat::ChannelsLast) {
    return flat.view(shape);
  }
  return flat.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2});
}

void ParameterStore::make_views(const ModelGraph& graph) {
  for (Entry& entry : entries_) {
    const Node& node = graph.node(entry.node);
    entry.parameter = view_of(working_, entry, node);
    entry.gradient = view_of(gradient_, entry, node);
  }
}

std::size_t ParameterStore::ordinal(NodeId node, std::size_t index) const {
  const std::size_t position = first_of_node_.at(static_cast<std::size_t>(node.value())) + index;
  const std::size_t found = position_of_.at(position);
  HETEROPERF_EXPECT(entries_[found].node == node);
  return found;
}

const at::Tensor& ParameterStore::parameter(NodeId node, std::size_t index) const {
  return entries_[ordinal(node, index)].parameter;
}
const at::Tensor& ParameterStore::gradient(NodeId node, std::size_t index) const {
  return entries_[ordinal(node, index)].gradient;
}

void ParameterStore::collect_gradients(Collect how) {
  if (gradient_.scalar_type() == reduced_gradient_.scalar_type()) return;
  at::Tensor sum = reduced_gradient_.narrow(0, 0, elements_);
  if (how == Collect::overwrite) {
    sum.copy_(gradient_);
  } else {
    sum.add_(gradient_);
  }
}

void ParameterStore::publish() {
  if (working_.scalar_type() != master_.scalar_type()) working_.copy_(master_);
}

std::string ParameterStore::fingerprint() const {
  const auto* bytes = static_cast<const std::byte*>(master_.const_data_ptr());
  return Hash128("parameters").update(std::span(bytes, master_.nbytes())).hex();
}

}  // namespace heteroperf
