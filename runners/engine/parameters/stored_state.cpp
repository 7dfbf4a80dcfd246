// Describes the memory of a training as the pieces of a checkpoint. A rank's stretches of the flat
// arenas become boxes of named tensors, so that a checkpoint knows nothing of the plan that wrote
// it.
#include "runners/engine/parameters/stored_state.hpp"

#include <algorithm>
#include <iterator>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/held_tensor.hpp"
#include "runners/engine/operators/operator.hpp"

namespace heteroperf {
namespace {

/// The types that a checkpoint knows.
StoredType stored_type(at::ScalarType type) {
  if (type == at::kDouble) return StoredType::f64;
  if (type == at::kBFloat16) return StoredType::bf16;
  if (type == at::kLong) return StoredType::i64;
  HETEROPERF_EXPECT(type == at::kFloat);
  return StoredType::f32;
}

/// A parameter, or a state of the same shape, as a tensor of the checkpoint.
HeldTensor held_tensor(const ModelGraph& graph, const HeldParameter& held,
                       const std::string& prefix, at::ScalarType type) {
  const Node& node = graph.node(held.node);
  const Parameter& parameter = node.parameters[held.index];
  HeldTensor result;
  result.name = prefix + node.name + "." + parameter.name;
  result.type = stored_type(type);
  result.shape = parameter.shape;
  result.dim = held.shard.dim;
  for (const ParameterShard::Interval& interval : held.shard.intervals) {
    result.intervals.push_back({interval.first, interval.count});
  }
  if (parameter_format(node, held.index) == at::MemoryFormat::ChannelsLast) {
    result.order = {0, 2, 3, 1};
  }
  return result;
}

}  // namespace

std::vector<TensorPiece> stored_arenas(const ModelGraph& graph, const ParameterStore& store,
                                       std::vector<Optimizer::State> states,
                                       std::span<const ArenaRange> ranges, HostCopies& host) {
  for (Optimizer::State& state : states) state.name = "optimizer." + state.name + "/";
  states.insert(states.begin(), {"", {0, store.elements()}, store.master()});
  std::vector<TensorPiece> pieces;
  for (const auto& [prefix, covers, values] : states) {
    const at::Tensor flat = host.of(values);
    auto* const data = static_cast<std::byte*>(flat.data_ptr());
    for (std::size_t ordinal = 0; ordinal < store.count(); ++ordinal) {
      const ParameterStore::Place& place = store.place(ordinal);
      for (const ArenaRange& range : ranges) {
        const std::int64_t begin = std::max({place.offset, range.begin, covers.begin});
        const std::int64_t end = std::min({place.offset + place.count, range.end, covers.end});
        if (begin >= end) continue;
        HeldTensor held = held_tensor(graph, place.held, prefix, flat.scalar_type());
        held.data = data + static_cast<std::size_t>(begin - covers.begin) * flat.element_size();
        std::ranges::copy(pieces_of_range(held, begin - place.offset, end - place.offset),
                          std::back_inserter(pieces));
      }
    }
  }
  return pieces;
}

void store_buffers(std::span<const NamedBuffer> buffers, HostCopies& host,
                   std::vector<TensorPiece>& pieces) {
  for (const NamedBuffer& buffer : buffers) {
    HeldTensor held;
    held.name = buffer.name;
    held.type = stored_type(buffer.values.scalar_type());
    held.shape = buffer.values.sizes().vec();
    held.data = host.of(buffer.values).data_ptr();
    std::ranges::copy(pieces_of(held), std::back_inserter(pieces));
  }
}

}  // namespace heteroperf
