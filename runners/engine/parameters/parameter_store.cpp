// All parameters of a rank lie in one flat arena and their gradients in another, so that sums over
// replicas, the optimizer and the norm work on long stretches of memory instead of hundreds of
// small tensors. The operators see views of the arenas in the shapes and memory formats that they
// need.
#include "runners/engine/parameters/parameter_store.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t alignment_bytes = 64;

bool is_matrix(const HeldParameter& held) { return held.shape.size() > 1; }

at::Tensor flat_of(const at::Tensor& arena, const ParameterStore::Place& place) {
  return arena.narrow(0, place.offset, place.count);
}

}  // namespace

std::vector<HeldParameter> whole_parameters(const ModelGraph& graph) {
  std::vector<HeldParameter> held;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const std::vector<Parameter>& parameters = graph.nodes()[n].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      held.push_back({NodeId(n), i, parameters[i].shape, {}, 0});
    }
  }
  return held;
}

ParameterStore::ParameterStore(const ModelGraph& graph, Precision precision, std::uint64_t seed)
    : ParameterStore(graph, whole_parameters(graph), precision, seed) {}

ParameterStore::ParameterStore(const ModelGraph& graph, const std::vector<HeldParameter>& held,
                               Precision precision, std::uint64_t seed, at::Device device) {
  std::vector<HeldParameter> trained = held, frozen;
  std::erase_if(trained, [&](const HeldParameter& parameter) {
    const bool stays = graph.node(parameter.node).weights == Weights::frozen;
    if (stays) frozen.push_back(parameter);
    return stays;
  });
  lay_out(trained,
          alignment_bytes / static_cast<std::int64_t>(c10::elementSize(scalar_type(precision))));
  make_arenas(precision, device);
  make_views(graph);
  for (const Entry& entry : entries_) {
    const Node& node = graph.node(entry.place.held.node);
    view_of(flat_of(master_, entry.place), entry.place.held, node)
        .copy_(initial_values(graph, entry.place.held, seed));
  }
  publish();
  make_frozen(graph, frozen, seed);
}

// Each of them is a tensor of its own, of the type that the operators read.
void ParameterStore::make_frozen(const ModelGraph& graph, const std::vector<HeldParameter>& held,
                                 std::uint64_t seed) {
  for (const HeldParameter& parameter : held) {
    const at::Tensor flat = at::empty({element_count(parameter.shape)}, working_.options());
    at::Tensor view = view_of(flat, parameter, graph.node(parameter.node));
    view.copy_(initial_values(graph, parameter, seed));
    frozen_[{parameter.node, parameter.index}] = std::move(view);
  }
}

void ParameterStore::move(double share) {
  master_.slice(0, 0, elements_, 2).mul_(1 + share);
  master_.slice(0, 1, elements_, 2).mul_(1 - share);
  publish();
}

// Values are drawn in the order of the contiguous shape, whatever the order in memory.
at::Tensor ParameterStore::initial_values(const ModelGraph& graph, const HeldParameter& held,
                                          std::uint64_t seed) const {
  const at::Tensor values = at::empty(held.shape, master_.options().device(at::kCPU));
  fill_initial_values(graph, held.node, held.index, seed, values, held.shard);
  return values;
}

// Parts follow one another, in each part matrices before vectors. Every parameter begins on a cache
// line.
void ParameterStore::lay_out(const std::vector<HeldParameter>& held, std::int64_t alignment) {
  for (const HeldParameter& parameter : held)
    parts_.resize(std::max(parts_.size(), parameter.part + 1));
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].begin = elements_;
    for (const bool matrices : {true, false}) {
      for (const HeldParameter& parameter : held) {
        if (parameter.part != part || is_matrix(parameter) != matrices) continue;
        const std::int64_t count = element_count(parameter.shape);
        ordinals_[{parameter.node, parameter.index}] = entries_.size();
        entries_.push_back({{parameter, elements_, count}, {}, {}});
        elements_ += (count + alignment - 1) / alignment * alignment;
      }
      if (matrices) parts_[part].matrices_end = elements_;
    }
    parts_[part].end = elements_;
  }
}

// Outside bf16 operators and optimizer share one arena for values and one for gradients.
void ParameterStore::make_arenas(Precision precision, at::Device device) {
  const at::ScalarType type = scalar_type(precision);
  const at::ScalarType wide = precision == Precision::bf16 ? at::kFloat : type;
  const at::TensorOptions options = at::TensorOptions().device(device);
  master_ = at::zeros({elements_}, options.dtype(wide));
  reduced_gradient_ = at::zeros({elements_}, options.dtype(wide));
  const bool separate = type != wide;
  working_ = separate ? at::zeros({elements_}, options.dtype(type)) : master_;
  gradient_ = separate ? at::zeros({elements_}, options.dtype(type)) : reduced_gradient_;
}

// A convolution's weights lie as {out, kh, kw, in} and are seen as {out, in, kh, kw}.
at::Tensor ParameterStore::view_of(const at::Tensor& flat, const HeldParameter& held,
                                   const Node& node) {
  const Shape& shape = held.shape;
  if (parameter_format(node, held.index) != at::MemoryFormat::ChannelsLast) {
    return flat.view(shape);
  }
  return flat.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2});
}

void ParameterStore::make_views(const ModelGraph& graph) {
  for (Entry& entry : entries_) {
    const Node& node = graph.node(entry.place.held.node);
    const HeldParameter& held = entry.place.held;
    entry.parameter = view_of(flat_of(working_, entry.place), held, node);
    entry.gradient = view_of(flat_of(gradient_, entry.place), held, node);
  }
}

std::size_t ParameterStore::ordinal(NodeId node, std::size_t index) const {
  const auto entry = ordinals_.find({node, index});
  HETEROPERF_EXPECT(entry != ordinals_.end());
  return entry->second;
}

const at::Tensor& ParameterStore::parameter(NodeId node, std::size_t index) const {
  const auto frozen = frozen_.find({node, index});
  return frozen != frozen_.end() ? frozen->second : entries_[ordinal(node, index)].parameter;
}
const at::Tensor& ParameterStore::gradient(NodeId node, std::size_t index) const {
  return entries_[ordinal(node, index)].gradient;
}

// The gradient of one micro-batch, rounded to bf16, is added to the sum in float32.
void ParameterStore::collect_gradient(std::size_t ordinal, Accumulation accumulation) {
  if (!collects()) return;
  const Place& place = entries_[ordinal].place;
  const at::Tensor sum = reduced_gradient_.narrow(0, place.offset, place.count);
  const at::Tensor gradient = gradient_.narrow(0, place.offset, place.count);
  accumulate(sum, gradient, accumulation);
}

void ParameterStore::publish(std::int64_t begin, std::int64_t end) {
  if (working_.is_same(master_)) return;
  working_.narrow(0, begin, end - begin).copy_(master_.narrow(0, begin, end - begin));
}

std::string ParameterStore::fingerprint() const {
  const at::Tensor here = master_.cpu();  // itself on the host
  const auto* bytes = static_cast<const std::byte*>(here.const_data_ptr());
  return Hash128("parameters").update(std::span(bytes, master_.nbytes())).hex();
}

}  // namespace heteroperf
