// The memory of one micro-batch in one stage, found by running its passes with sizes alone.
//
// A pool of numbered tensors plays the part of the allocator: a tensor lives while somebody holds
// it, and the pool remembers its fullest moment. The forward pass goes through the groups of fused
// nodes and holds what each saves; the backward passes go through them in reverse with the engine's
// own rules for gradients: handed on, added in place where nobody else holds the memory, or written
// to new memory. So the numbers are those of the engine without running it.
//
// B and W together (`backward`) and apart (`input_gradient`, then `weight_gradient`) need different
// amounts. Both start from the same state after the forward pass, so one of them runs on a copy.
#include "runners/plan/memory/stage_memory.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "metrics/base/id.hpp"
#include "runners/plan/plan_bytes.hpp"

namespace heteroperf {
namespace {

/// Tensors by number, each with its holders.
class TensorPool {
 public:
  std::size_t add(std::uint64_t bytes) {
    tensors_.push_back({bytes, 1});
    grow(bytes);
    return tensors_.size() - 1;
  }
  /// One holder more; every holder calls drop() once.
  void hold(std::size_t tensor) { ++tensors_[tensor].holders; }
  void drop(std::size_t tensor) {
    if (--tensors_[tensor].holders == 0) live_ -= tensors_[tensor].bytes;
  }
  bool alone(std::size_t tensor) const { return tensors_[tensor].holders == 1; }
  std::uint64_t bytes(std::size_t tensor) const { return tensors_[tensor].bytes; }
  /// Counts bytes that are live for the length of one operation.
  void pass(std::uint64_t bytes) { peak_ = std::max(peak_, live_ + bytes); }
  void grow(std::uint64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void shrink(std::uint64_t bytes) { live_ -= bytes; }

  std::uint64_t live() const { return live_; }
  std::uint64_t take_peak() {
    const std::uint64_t peak = peak_;
    peak_ = live_;
    return peak;
  }

 private:
  struct Tensor {
    std::uint64_t bytes;
    int holders;
  };
  std::vector<Tensor> tensors_;
  std::uint64_t live_ = 0, peak_ = 0;
};

/// Runs the passes of one micro-batch with sizes alone.
class StagePasses {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

 public:
  StagePasses(const StagePart& part, Precision precision)
      : part_(part),
        graph_(part.shard.graph),
        precision_(precision),
        groups_(memory_groups(part, precision)),
        rows_(part.rows()),
        values_(graph_.nodes().size(), none),
        slots_(values_),
        last_use_(values_),
        saved_(groups_.size()),
        output_gradients_(groups_.size(), none) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const std::size_t n : groups_[g].inputs) last_use_[n] = g;
    }
  }

  StageMemory run() {
    StageMemory memory;
    const bool full = part_.recomputation == Recomputation::full;
    // Tensors of earlier stages arrive before the first pass.
    for (std::size_t n = 0; n < values_.size(); ++n) {
      if (last_use_[n] != none && !inside(n)) values_[n] = pool_.add(bytes(n));
    }
    memory.after_forward = pool_.live();  // where all else is made again
    pool_.take_peak();
    for (std::size_t g = 0; g < groups_.size(); ++g) forward_group(g);
    memory.forward = memory.recompute = pool_.take_peak();
    // Outputs for other stages are counted apart: they stay until somebody fetches them.
    const std::uint64_t with_outputs = pool_.live();
    for (std::size_t& value : values_) drop(value);
    memory.outputs = with_outputs - pool_.live();
    memory.after_recompute = pool_.live();
    // Without recomputation the stage keeps what its operators saved.
    if (!full) memory.after_forward = memory.after_recompute;
    pool_.take_peak();
    // B and W together need other amounts than apart, and both start from here.
    StagePasses together = *this;
    together.backward(Gradients::both);
    memory.backward = together.pool_.take_peak();
    backward(Gradients::input);
    memory.input_gradient = pool_.take_peak();
    for (std::size_t& slot : slots_) drop(slot);
    memory.after_input_gradient = pool_.live();
    pool_.take_peak();
    for (std::size_t g = groups_.size(); g-- > 0;) weight_gradient(g);
    memory.weight_gradient = pool_.take_peak();
    return memory;
  }

 private:
  enum class Gradients { input, both };

  std::uint64_t whole_bytes(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    return static_cast<std::uint64_t>(part_.count(node) * element_count(node.output)) *
           bytes_per_output(node, precision_);
  }
  std::uint64_t row_bytes(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    const std::int64_t rows =
        rows_of_rank(part_.count(node) * node.output[0], part_.shard.index, part_.shard.degree)
            .count;
    return static_cast<std::uint64_t>(rows * node.output[1]) * bytes_per_output(node, precision_);
  }
  bool keeps_rows(std::size_t n) const { return !rows_.keeps.empty() && rows_.keeps[n]; }
  bool works_on_rows(std::size_t n) const { return !rows_.works.empty() && rows_.works[n]; }
  /// The bytes of a value or gradient in the form in which it is kept.
  std::uint64_t bytes(std::size_t n) const { return keeps_rows(n) ? row_bytes(n) : whole_bytes(n); }
  bool inside(std::size_t n) const {
    return part_.staged.stage_of[n] == part_.stage && !is<Input>(n);
  }
  template <class... Kinds>
  bool is(std::size_t n) const {
    return (std::holds_alternative<Kinds>(graph_.nodes()[n].attributes) || ...);
  }

  /// Runs one group: makes its output and what it saves, then lets go of inputs that nobody needs
  /// again.
  void forward_group(std::size_t g) {
    const MemoryGroup& group = groups_[g];
    const std::size_t out = group.nodes.back();
    std::vector<std::size_t> made;
    for (const std::size_t n : group.saved) {
      const bool is_made_here = std::ranges::find(group.nodes, n) != group.nodes.end();
      if (is_made_here && n != out) values_[n] = pool_.add(bytes(n)), made.push_back(n);
    }
    if (is<Flatten, ToSequence>(out)) {
      values_[out] = values_[group.inputs[0]];
      pool_.hold(values_[out]);
    } else {
      // Both forms are there while one becomes the other.
      if (keeps_rows(out) != works_on_rows(out)) pool_.pass(whole_bytes(out) + row_bytes(out));
      values_[out] = pool_.add(is<CrossEntropy>(out) ? 4 : bytes(out));
    }
    for (const std::size_t n : group.saved) {
      pool_.hold(values_[n]);
      saved_[g].push_back(values_[n]);
    }
    pool_.grow(group.saved_alone);
    pool_.pass(group.recomputed + group.forward_temporary);
    // The saved list holds them now.
    for (const std::size_t n : made) drop(values_[n]);
    for (const std::size_t n : group.inputs) {
      if (last_use_[n] == g && values_[n] != none && !leaves(n)) drop(values_[n]);
    }
    if (is<CrossEntropy>(out)) drop(values_[out]);
    if (!group.differentiable) clear_saved(g);
  }

  /// True while another stage has still to take it.
  /// Looks through the edges of the stage.
  bool leaves(std::size_t n) const {
    if (!inside(n)) return false;
    return std::ranges::any_of(part_.staged.edges, [&](const StageEdge& e) {
      return e.from == part_.stage && std::ranges::find(e.nodes, NodeId(n)) != e.nodes.end();
    });
  }

  void drop(std::size_t& tensor) {
    if (tensor != none) pool_.drop(tensor);
    tensor = none;
  }

  void backward(Gradients which) {
    for (const StageEdge& edge : part_.staged.edges) {
      if (edge.from != part_.stage) continue;
      for (const NodeId id : edge.with_gradient) put(id.index(), pool_.add(bytes(id.index())));
    }
    for (std::size_t g = groups_.size(); g-- > 0;) backward_group(g, which);
  }

  /// Takes the gradient of the group's output and gives those of its inputs.
  void backward_group(std::size_t g, Gradients which) {
    const MemoryGroup& group = groups_[g];
    if (group.differentiable) {
      std::size_t gradient = slots_[group.nodes.back()];
      slots_[group.nodes.back()] = none;
      change_form(group.nodes.back(), gradient);
      if (group.gives == MemoryGroup::Gives::overwrite) clear_saved(g);
      pool_.grow(group.temporary + group.recomputed);
      give(group, gradient);
      pool_.shrink(group.temporary + group.recomputed);
      if (which == Gradients::input && group.parameters) {
        output_gradients_[g] = gradient;
        return;
      }
      drop(gradient);
    }
    clear_saved(g);
  }

  /// Brings a gradient from the form that the users gave to the form that the making operation
  /// needs.
  void change_form(std::size_t n, std::size_t& gradient) {
    if (gradient == none || keeps_rows(n) == works_on_rows(n)) return;
    const std::size_t other = pool_.add(works_on_rows(n) ? row_bytes(n) : whole_bytes(n));
    pool_.drop(gradient);
    gradient = other;
  }

  /// Frees the tensors that the group saved; only the first call does anything.
  void clear_saved(std::size_t g) {
    for (const std::size_t tensor : saved_[g]) pool_.drop(tensor);
    saved_[g].clear();
    pool_.shrink(groups_[g].saved_alone);
    groups_[g].saved_alone = 0;
  }

  /// Gradients of a group's inputs.
  void give(const MemoryGroup& group, std::size_t gradient) {
    if (group.gives == MemoryGroup::Gives::none) return;
    for (std::size_t i = 0; i < group.inputs.size(); ++i) {
      const std::size_t n = group.inputs[i];
      if (!graph_.nodes()[n].differentiable) continue;
      const bool same = group.gives == MemoryGroup::Gives::same ||
                        (group.passes_residual && i == group.inputs.size() - 1);
      if (same && gradient != none) {
        pool_.hold(gradient);
        put(n, gradient);
      } else if (group.gives == MemoryGroup::Gives::in_place && slots_[n] != none &&
                 pool_.alone(slots_[n])) {
        continue;
      } else {
        put(n, pool_.add(bytes(n)));
      }
    }
  }

  /// Adds in place where one of the two has no other holder.
  void put(std::size_t n, std::size_t gradient) {
    std::size_t& slot = slots_[n];
    if (slot == none) {
      slot = gradient;
    } else if (pool_.alone(slot)) {
      pool_.drop(gradient);
    } else if (pool_.alone(gradient)) {
      pool_.drop(slot);
      slot = gradient;
    } else {
      const std::size_t sum = pool_.add(bytes(n));
      pool_.drop(slot);
      pool_.drop(gradient);
      slot = sum;
    }
  }

  /// W of one group; afterwards nothing of it is kept.
  void weight_gradient(std::size_t g) {
    if (output_gradients_[g] == none) return;
    pool_.pass(groups_[g].weight_temporary);
    drop(output_gradients_[g]);
    clear_saved(g);
  }

  StagePart part_;
  const ModelGraph& graph_;
  Precision precision_;
  std::vector<MemoryGroup> groups_;
  RowCuts rows_;
  std::vector<std::size_t> values_, slots_;  ///< by node: number of the tensor
  std::vector<std::size_t> last_use_;        ///< by node: group
  std::vector<std::vector<std::size_t>> saved_;
  std::vector<std::size_t> output_gradients_;  ///< by group: from B to W
  TensorPool pool_;
};

}  // namespace

std::int64_t StagePart::count(const Node& node) const {
  const BatchExtent batch(static_cast<std::uint64_t>(samples));
  return static_cast<std::int64_t>(batch.count(shard.graph, node));
}

RowCuts StagePart::rows() const {
  if (!sequence_parallel || shard.degree == 1) return {};
  return row_cuts(shard, staged.stage_of, stage);
}

StageMemory stage_memory(const StagePart& part, Precision precision) {
  return StagePasses(part, precision).run();
}

}  // namespace heteroperf
