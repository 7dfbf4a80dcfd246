// One rank's share of a model under tensor parallelism, as a graph of its own.
//
// TensorRoles says for every node what the ranks do with it: all the same, some columns, some rows.
// Here these roles become local sizes. The local graph has the same nodes under the same ids, so
// stages, fusion and schedules of the full graph apply to it without translation. Beside the sizes
// the shard says where sums over the group are due: an output that is a *summand* (row linears, the
// embedding) is summed in the forward pass, and a gradient that several ranks give a part of (in
// front of column linears) in the backward pass.
//
// The layers are shared in pairs: a linear keeps some of its output columns, what follows works on
// these columns alone, and a second linear takes them as some of its input rows, so that one sum
// over the ranks ends the pair. The search for such pairs is optimistic. At first every linear is
// cut; then nodes are found that would need whole columns but get cut ones (*misfits*), and the
// linears of their *region*, the set of nodes connected through cut tensors, are kept whole. This
// repeats until nothing changes. Each round only takes cuts back, so it ends.
//
// A cut tensor also has a *packing*: queries, keys and values lie side by side in one tensor, and
// every rank must get the heads that belong together. The packing is decided by the consumers, so
// it is found against the order of the graph.
#include "runners/plan/tensor/tensor_parallel.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/schedule/ir/grouped_lists.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {
namespace {

/// The role of the ranks of a tensor-parallel group in a node.
enum class TensorRole {
  whole,       ///< the same on every rank
  column,      ///< linear: some columns of its output, of a whole input
  row,         ///< linear: of some columns of its input; the outputs add up
  local,       ///< works on its part of its inputs (activations, attention, the loss)
  vocabulary,  ///< embedding: some rows of its table; the outputs add up
};

/// Heads packed along the last dimension: queries, keys, values; or keys and values alone. Without
/// heads: plain columns.
struct HeadPacking {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool plain() const { return head_dim == 0; }
  friend bool operator==(const HeadPacking&, const HeadPacking&) = default;
};

/// The lists have an entry for each node of the full graph.
struct TensorRoles {
  std::vector<TensorRole> role;      ///< by node
  std::vector<HeadPacking> packing;  ///< by node, of an output that is cut

  /// True when a rank holds some columns of the node's output only.
  bool cuts_output(NodeId node) const {
    const TensorRole r = role[node.index()];
    return r == TensorRole::column || r == TensorRole::local;
  }
};

template <class... Kinds>
bool is_any(const Node& node) {
  return (std::holds_alternative<Kinds>(node.attributes) || ...);
}
template <class Kind>
const Kind* as(const Node& node) {
  return std::get_if<Kind>(&node.attributes);
}

/// Finds the layers that two or more ranks share: cuts every linear at first, and keeps those whole
/// that lead to something that cannot work on columns, as well as tables and layers with fewer rows
/// or columns than ranks, until nothing is left to change.
class RoleFinder {
 public:
  /// `asked`, by node: heads that the degree does not divide are cut there all the same, so that
  /// check() can name them. Elsewhere their attention stays whole.
  RoleFinder(const ModelGraph& graph, int degree, std::vector<bool> asked)
      : graph_(graph),
        degree_(degree),
        asked_(std::move(asked)),
        kept_whole_(graph.nodes().size()),
        users_(all_consumers(graph)) {
    do {
      assign_roles();
      assign_packing();
    } while (keep_misfits_whole());
  }

  TensorRoles take() { return std::move(roles_); }

  /// Notes what is wrong with the nodes that are asked for.
  void check(ProblemList& problems) const {
    check_heads(problems);
    check_dropout(problems);
    check_gain(problems);
  }

 private:
  static NodeId id(std::size_t n) { return NodeId(n); }
  const Node& node(std::size_t n) const { return graph_.nodes()[n]; }
  std::size_t count() const { return kept_whole_.size(); }
  std::size_t owner_of(const Linear& linear) const { return graph_.find(linear.tied_to).index(); }
  bool cut(NodeId node) const { return roles_.cuts_output(node); }

  void assign_roles() {
    roles_.role.assign(count(), TensorRole::whole);
    misfits_.clear();
    for (std::size_t n = 0; n < count(); ++n) roles_.role[n] = role(n);
  }

  /// The role of a node, given the roles of its inputs; notes the inputs that it cannot take as
  /// misfits.
  TensorRole role(std::size_t n) {
    const std::vector<NodeId>& inputs = node(n).inputs;
    const auto cut_inputs = static_cast<std::size_t>(
        std::ranges::count_if(inputs, [&](NodeId input) { return cut(input); }));
    if (cut_inputs == 0) return role_of_whole_inputs(n);
    if (const auto* linear = as<Linear>(node(n))) {
      if (linear->tied_to.empty()) return TensorRole::row;
    } else if (cut_inputs == inputs.size() && works_on_parts(node(n)) &&
               (asked_[n] || heads_fit(node(n)))) {
      return TensorRole::local;
    }
    for (const NodeId input : inputs) {
      if (cut(input)) misfits_.push_back(input.index());
    }
    return TensorRole::whole;
  }

  bool heads_fit(const Node& node) const {
    const auto heads = attention_heads(node.attributes);
    return !heads || heads->divide_by(degree_);
  }

  /// Queries are cut otherwise than keys and values, so they are not the same tensor.
  static bool works_on_parts(const Node& node) {
    return is_element_wise(node.attributes) || is_any<Rotary, Attention, CrossEntropy>(node) ||
           (is_any<CrossAttention>(node) && node.inputs[0] != node.inputs[1]);
  }

  TensorRole role_of_whole_inputs(std::size_t n) const {
    const auto* linear = as<Linear>(node(n));
    const auto* table = as<Embedding>(node(n));
    if (kept_whole_[n]) return TensorRole::whole;
    if (linear != nullptr && linear->out_features >= degree_) return TensorRole::column;
    if (table != nullptr && table->vocabulary >= degree_) return TensorRole::vocabulary;
    return TensorRole::whole;
  }

  // Against the order of the graph: what follows says how a tensor is cut.
  void assign_packing() {
    roles_.packing.assign(count(), {});
    for (std::size_t n = count(); n-- > 0;) {
      if (!cut(id(n)) || is_any<CrossEntropy>(node(n))) continue;
      const std::vector<NodeId>& users = users_[n];
      if (!users.empty()) roles_.packing[n] = packing_taken_by(users.front(), id(n));
      const auto takes_another = [&](NodeId user) {
        return packing_taken_by(user, id(n)) != roles_.packing[n];
      };
      const auto* rotary = as<Rotary>(node(n));
      const bool leaves_another = (rotary != nullptr && packing_of(*rotary) != roles_.packing[n]) ||
                                  (is_attention(node(n).attributes) && !roles_.packing[n].plain());
      if (users.empty() || leaves_another || std::ranges::any_of(users, takes_another))
        misfits_.push_back(n);
    }
  }

  template <class Heads>
  static HeadPacking packing_of(const Heads& a) {
    return {a.heads, a.kv_heads, a.head_dim};
  }
  /// The packing in which a user takes one of its inputs. Queries alone are plain columns.
  HeadPacking packing_taken_by(NodeId user, NodeId input) const {
    const Node& taker = graph_.node(user);
    if (const auto* cross = as<CrossAttention>(taker)) {
      const bool keys = taker.inputs[1] == input;
      return keys ? HeadPacking{0, cross->kv_heads, cross->head_dim} : HeadPacking{};
    }
    if (const auto* attention = as<Attention>(taker)) return packing_of(*attention);
    if (const auto* rotary = as<Rotary>(taker)) return packing_of(*rotary);
    // Operations that treat every element alike may work on any columns.
    return is_element_wise(taker.attributes) ? roles_.packing[user.index()] : HeadPacking{};
  }

  /// Keeps the column linears of every misfit's region whole for all later rounds. False when there
  /// were none.
  bool keep_misfits_whole() {
    if (misfits_.empty()) return keep_tied_alike();
    UnionFind regions(static_cast<std::int32_t>(count()));
    for (std::size_t n = 0; n < count(); ++n) {
      if (roles_.role[n] != TensorRole::local) continue;
      for (const NodeId input : node(n).inputs) regions.unite(id(n).value(), input.value());
    }
    for (const std::size_t misfit : misfits_) {
      const std::int32_t region = regions.find(id(misfit).value());
      for (std::size_t n = 0; n < count(); ++n) {
        if (roles_.role[n] == TensorRole::column && regions.find(id(n).value()) == region) {
          kept_whole_[n] = true;
        }
      }
    }
    keep_tied_alike();
    return true;
  }

  /// A table and the linears tied to it are cut together or not at all. False when they are.
  bool keep_tied_alike() {
    bool changed = false;
    const auto keep = [&](std::size_t n) {
      changed = changed || !kept_whole_[n];
      kept_whole_[n] = true;
    };
    for (const bool to_owner : {true, false}) {
      for (std::size_t n = 0; n < count(); ++n) {
        const auto* linear = as<Linear>(node(n));
        if (linear == nullptr || linear->tied_to.empty()) continue;
        const std::size_t owner = owner_of(*linear);
        if (to_owner && kept_whole_[n]) keep(owner);
        if (!to_owner && kept_whole_[owner]) keep(n);
      }
    }
    return changed;
  }

  // Nearly all of a convolution net: its ranks would do the same work, each on its own.
  void check_gain(ProblemList& problems) const {
    double repeated = 0, all = 0;
    for (std::size_t n = 0; n < count(); ++n) {
      if (!asked_[n]) continue;
      const double ops = strict_node_ops(graph_, id(n)).train().to_double();
      all += ops;
      if (roles_.role[n] == TensorRole::whole) repeated += ops;
    }
    if (repeated <= 0.5 * all && all > 0) return;
    problems.add(fmt::format("{} tensor-parallel ranks would all do the same {:.0f} % of {}",
                             degree_, all > 0 ? 100.0 * repeated / all : 100.0, model()),
                 "what can be shared are embeddings, and linear layers with attention or an "
                 "activation between them; convolutions and norms stay whole",
                 "Use 1 tensor-parallel rank, and more stages or replicas instead.");
  }

  std::string model() const {
    return graph_.name.empty() ? "the model" : fmt::format("model '{}'", graph_.name);
  }

  /// Complains of attention whose heads the degree does not divide, each combination of heads once.
  void check_heads(ProblemList& problems) const {
    std::map<AttentionHeads, std::vector<std::string>> unfit;
    for (std::size_t n = 0; n < count(); ++n) {
      if (!asked_[n] || roles_.role[n] != TensorRole::local || heads_fit(node(n))) continue;
      unfit[*attention_heads(node(n).attributes)].push_back(node(n).name);
    }
    for (const auto& [heads, names] : unfit) {
      const auto& [queries, keys] = heads;
      const std::string shared = queries % degree_ != 0
                                     ? fmt::format("{} heads", queries)
                                     : fmt::format("{} key and value heads", keys);
      problems.add(fmt::format("{} tensor-parallel ranks cannot share the {} of {}", degree_,
                               shared, list(names)),
                   "every rank takes as many heads as the others",
                   fmt::format("Use {}.", fitting_ranks(queries, keys)));
    }
  }

  static std::string fitting_ranks(std::int64_t heads, std::int64_t kv_heads) {
    const std::int64_t common = std::gcd(heads, kv_heads);
    std::vector<std::string> fit;
    for (std::int64_t degree = 2; degree <= common && degree <= 64; ++degree) {
      if (common % degree == 0) fit.push_back(std::to_string(degree));
    }
    if (fit.empty()) return "1 tensor-parallel rank";
    return fmt::format("1, {} tensor-parallel ranks", fmt::join(fit, ", "));
  }

  static std::string list(const std::vector<std::string>& names) {
    if (names.size() == 1) return fmt::format("'{}'", names[0]);
    return fmt::format("'{}' and {} more", names[0], names.size() - 1);
  }

  /// Complains of dropout on a cut tensor: every rank would need its part of the whole mask.
  void check_dropout(ProblemList& problems) const {
    std::vector<std::string> names;
    for (std::size_t n = 0; n < count(); ++n) {
      const auto* dropout = as<Dropout>(node(n));
      const bool draws = asked_[n] && dropout != nullptr && dropout->p > 0.0;
      if (draws && roles_.role[n] == TensorRole::local) names.push_back(node(n).name);
    }
    if (names.empty()) return;
    problems.add(fmt::format("dropout {} would work on some columns of a tensor", list(names)),
                 "its mask is drawn for whole samples",
                 "Set the dropout to 0 or use 1 tensor-parallel rank.");
  }

  const ModelGraph& graph_;
  int degree_;
  std::vector<bool> asked_;
  std::vector<bool> kept_whole_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::size_t> misfits_;  ///< cut outputs that something cannot work on
  TensorRoles roles_;
};

using Intervals = std::vector<ParameterShard::Interval>;

std::int64_t total(const Intervals& intervals) {
  std::int64_t sum = 0;
  for (const ParameterShard::Interval& interval : intervals) sum += interval.count;
  return sum;
}

/// Builds one rank's graph node by node.
class ShardMaker {
 public:
  ShardMaker(const ModelGraph& full, int degree, int index, const SequencePart& part)
      : full_(full), users_(all_consumers(full)) {
    shard_.degree = degree;
    shard_.index = index;
    shard_.part = part;
    shard_.sequence_role = sequence_roles(full, part);
  }

  TensorShard run() {
    const std::size_t count = full_.nodes().size();
    if (shard_.degree > 1) {
      roles_ = RoleFinder(full_, shard_.degree, std::vector<bool>(count)).take();
    } else {
      roles_.role.assign(count, TensorRole::whole);
      roles_.packing.assign(count, {});
    }
    shard_.graph.name = full_.name;
    shard_.first_of_vocabulary.assign(count, 0);
    shard_.vocabulary.assign(count, 0);
    for (std::size_t n = 0; n < count; ++n) add(NodeId(n));
    return std::move(shard_);
  }

 private:
  TensorRole role(NodeId id) const { return roles_.role[id.index()]; }
  bool splits(NodeId id) const { return role(id) == TensorRole::column; }

  void add(NodeId id) {
    const Node& node = full_.node(id);
    const bool loss = std::holds_alternative<CrossEntropy>(node.attributes);
    const bool sharded = roles_.cuts_output(id) && !loss;
    shard_.columns.push_back(sharded ? columns(id) : Intervals{});
    shard_.output_is_sharded.push_back(sharded);
    shard_.output_is_partial.push_back(role(id) == TensorRole::row ||
                                       role(id) == TensorRole::vocabulary);
    shard_.splits_inputs.push_back(splits(id));
    shard_.gradient_is_partial.push_back(
        node.differentiable &&
        std::ranges::any_of(users_[id.index()], [&](NodeId user) { return splits(user); }));
    note_vocabulary(id);
    shard_.graph.add(node.name, local_attributes(id), node.inputs, node.branch, node.weights);
    shard_.parameters.push_back(parameters(id));
  }

  /// ⌊i · extent / degree⌋ … ⌊(i + 1) · extent / degree⌋ − 1.
  ParameterShard::Interval part(std::int64_t extent) const {
    const std::int64_t first = extent * shard_.index / shard_.degree;
    return {first, extent * (shard_.index + 1) / shard_.degree - first};
  }

  Intervals columns(NodeId id) const {
    const HeadPacking& packing = roles_.packing[id.index()];
    if (packing.plain()) return {part(full_.node(id).output.back())};
    const auto heads = [&](std::int64_t before, std::int64_t of_kind) {
      const ParameterShard::Interval interval = part(of_kind);
      return ParameterShard::Interval{(before + interval.first) * packing.head_dim,
                                      interval.count * packing.head_dim};
    };
    Intervals keys{heads(packing.heads, packing.kv_heads),
                   heads(packing.heads + packing.kv_heads, packing.kv_heads)};
    if (packing.heads > 0) keys.insert(keys.begin(), heads(0, packing.heads));
    return keys;
  }

  /// Remembers which classes the embedding, the logits and the loss of this rank have.
  void note_vocabulary(NodeId id) {
    const Node& node = full_.node(id);
    const auto note = [&](NodeId whose, std::int64_t extent) {
      shard_.first_of_vocabulary[whose.index()] = part(extent).first;
      shard_.vocabulary[whose.index()] = extent;
    };
    if (role(id) == TensorRole::vocabulary)
      note(id, std::get<Embedding>(node.attributes).vocabulary);
    if (!std::holds_alternative<CrossEntropy>(node.attributes) || role(id) != TensorRole::local) {
      return;
    }
    const NodeId logits = node.inputs[0];
    note(id, full_.node(logits).output.back());
    note(logits, full_.node(logits).output.back());
  }

  Attributes local_attributes(NodeId id) const {
    Attributes attributes = full_.node(id).attributes;
    take_part(id, attributes);
    if (role(id) == TensorRole::whole) return attributes;
    if (auto* linear = std::get_if<Linear>(&attributes)) {
      if (role(id) == TensorRole::column) linear->out_features = total(shard_.columns[id.index()]);
      // The bias is added once to the sum, not once per rank.
      if (role(id) == TensorRole::row) linear->bias = linear->bias && shard_.index == 0;
    } else if (auto* table = std::get_if<Embedding>(&attributes)) {
      table->vocabulary = part(table->vocabulary).count;
    } else if (auto* rotary = std::get_if<Rotary>(&attributes)) {
      keep_heads(*rotary);
    } else if (auto* attention = std::get_if<Attention>(&attributes)) {
      if (attention->alibi) {
        // The slopes of ALiBi depend on a head's number in the whole model.
        attention->all_heads = attention->heads;
        attention->first_head = part(attention->heads).first;
      }
      keep_heads(*attention);
    } else if (auto* cross = std::get_if<CrossAttention>(&attributes)) {
      keep_heads(*cross);
    }
    return attributes;
  }

  /// Sequences get their part's length; what depends on positions learns them.
  void take_part(NodeId id, Attributes& attributes) const {
    const auto has_part = [&](NodeId node) {
      return shard_.sequence_role[node.index()] == SequenceRole::part;
    };
    const std::vector<NodeId>& inputs = full_.node(id).inputs;
    const bool takes_rows = !inputs.empty() && has_part(inputs.front());
    const auto set_part = [&](auto* kind) {
      if (kind == nullptr) return;
      kind->part = shard_.part;
      kind->part.length = full_.node(inputs.front()).output.front();
    };
    if (takes_rows) {
      set_part(std::get_if<TakeToken>(&attributes));
      set_part(std::get_if<TokenPool>(&attributes));
    }
    if (!has_part(id)) return;
    set_part(std::get_if<Rotary>(&attributes));
    set_part(std::get_if<Attention>(&attributes));
    set_part(std::get_if<InsertTokens>(&attributes));
    if (auto* positions = std::get_if<PositionEmbedding>(&attributes)) {
      set_part(positions);
      positions->takes_part = !takes_rows;
    }
    if (auto* input = std::get_if<Input>(&attributes)) input->length /= shard_.part.parts;
  }

  template <class Heads>
  void keep_heads(Heads& attributes) const {
    attributes.heads = part(attributes.heads).count;
    attributes.kv_heads = part(attributes.kv_heads).count;
  }

  /// The local node's parameters come in the order of the full node's.
  std::vector<ParameterShard> parameters(NodeId id) const {
    std::vector<ParameterShard> shards(shard_.graph.node(id).parameters.size());
    if (shards.empty()) return shards;
    const Node& node = full_.node(id);
    switch (role(id)) {
      case TensorRole::column:
        for (ParameterShard& shard : shards) shard.intervals = shard_.columns[id.index()];
        break;
      case TensorRole::row:
        shards[0] = {1, shard_.columns[node.inputs[0].index()]};
        break;
      case TensorRole::vocabulary:
        shards[0] = {0, {part(node.parameters[0].shape[0])}};
        break;
      default:
        break;
    }
    return shards;
  }

  const ModelGraph& full_;
  std::vector<std::vector<NodeId>> users_;
  TensorRoles roles_;
  TensorShard shard_;
};

}  // namespace

bool TensorShard::pools_part(NodeId node) const {
  const Attributes& kind = graph.node(node).attributes;
  const auto* row = std::get_if<TakeToken>(&kind);
  const auto* place = std::get_if<TokenPool>(&kind);
  return (row != nullptr && !row->part.whole()) || (place != nullptr && !place->part.whole());
}

TensorShard tensor_shard(const ModelGraph& graph, int degree, int index, const SequencePart& part) {
  if (degree < 1) {
    throw UserError(fmt::format("{} tensor-parallel ranks", degree), "it takes at least 1");
  }
  HETEROPERF_EXPECT(index >= 0 && index < degree);
  return ShardMaker(graph, degree, index, part).run();
}

void check_tensor_degree(const ModelGraph& graph, const std::set<std::string>& components,
                         int degree, ProblemList& problems) {
  std::vector<bool> asked;
  for (const Node& node : graph.nodes()) asked.push_back(components.contains(node.branch));
  RoleFinder(graph, degree, std::move(asked)).check(problems);
}

void check_tensor_degree(const ModelGraph& graph, int degree, ProblemList& problems) {
  const std::vector<std::string> all = components_of(graph);
  check_tensor_degree(graph, std::set(all.begin(), all.end()), degree, problems);
}
namespace {

/// By node: each rank with a part of the sequences does it whole. All that takes it is in the
/// stage, up to where rows are inserted, dealt or looked at.
std::vector<bool> repeated_nodes(const TensorShard& shard, const std::vector<NodeId>& stage) {
  const std::vector<Node>& nodes = shard.graph.nodes();
  const auto is_whole = [&](std::size_t n) {
    return shard.sequence_role[n] == SequenceRole::whole;
  };
  std::vector<bool> here(nodes.size()), repeated(here), taken(here), leaves(here);
  for (const NodeId id : stage) here[id.index()] = true;
  for (std::size_t n = here.size(); n-- > 0;) {
    const Node& node = nodes[n];
    repeated[n] = here[n] && is_whole(n) && taken[n] && !leaves[n];
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::size_t input = node.inputs[i].index();
      const bool ends = !is_whole(n) && ((is_any<InsertTokens>(node) && i == 2) ||
                                         (is_any<CrossAttention>(node) && i == 1) ||
                                         is_any<PositionEmbedding>(node));
      taken[input] = true;
      leaves[input] = leaves[input] || !(here[n] && (ends || repeated[n]));
    }
  }
  return repeated;
}

/// Tells if a node may stand behind the pooling of a row: it works on each sample by itself, or is
/// a loss.
bool works_on_vectors(const Node& node) {
  return is_element_wise(node.attributes) || is_loss(node.attributes) ||
         is_any<Linear, LayerNorm, RmsNorm>(node);
}

/// Notes a sequence among the nodes of a stage that cannot be cut into such parts.
bool check_lengths(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                   const SequencePart& part, ProblemList& problems) {
  const int parts = part.parts, chunks = part.chunk_count();
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    if (part.order == SequenceOrder::patches) {
      const std::int64_t rows = node.output.front();
      if (!is_any<PositionEmbedding>(node) || part.divides(rows)) continue;
      problems.add(
          fmt::format("{} context-parallel ranks for the {} rows of '{}'", parts, rows, node.name),
          "each takes at least one", fmt::format("Use cp {} or less.", rows));
      return false;
    }
    const auto* input = as<Input>(node);
    if (input == nullptr || input->kind != InputKind::tokens || part.divides(input->length)) {
      continue;
    }
    problems.add(
        fmt::format("{} context-parallel ranks for sequences of {} tokens", parts, input->length),
        fmt::format("each takes {} of {} equal chunks", chunks == parts ? "one" : "two", chunks),
        fmt::format("Use a degree that divides {}, or another --sequence-length.",
                    input->length * parts / chunks));
    return false;
  }
  return true;
}

}  // namespace

// Whatever treats every position alike can have some of them. Attention gets the others' keys and
// values; rows that are inserted are there whole, and a pooled row goes to the first part.
void check_sequence_parts(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                          const SequencePart& part, ProblemList& problems) {
  if (!check_lengths(graph, nodes, part, problems)) return;
  const int parts = part.parts;
  std::optional<TensorShard> shard;
  collect_problems(problems, [&] { shard = tensor_shard(graph, 1, 0, part.first_part()); });
  if (!shard) return;
  const std::vector<bool> repeated = repeated_nodes(*shard, nodes);
  const auto role = [&](NodeId id) { return shard->sequence_role[id.index()]; };
  const bool deals_patches = part.order == SequenceOrder::patches;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    const auto* input = as<Input>(node);
    const auto* dropout = as<Dropout>(node);
    const auto* attention = as<Attention>(node);
    const bool takes_part = !node.inputs.empty() && role(node.inputs.front()) == SequenceRole::part;
    const bool by_position =
        role(id) == SequenceRole::part &&
        (input != nullptr || is_element_wise(node.attributes) ||
         is_any<Linear, LayerNorm, RmsNorm, Embedding, PositionEmbedding, TypeEmbedding, Rotary,
                Attention, InsertTokens, CrossEntropy, SquaredError>(node) ||
         (is_any<CrossAttention>(node) && role(node.inputs[1]) == SequenceRole::whole));
    const auto is_vector = [&](NodeId each) { return role(each) == SequenceRole::pooled; };
    const bool pooled =
        is_vector(id) && ((takes_part && is_any<TakeToken, TokenPool>(node)) ||
                          (works_on_vectors(node) && std::ranges::all_of(node.inputs, is_vector)));
    if (attention != nullptr && attention->causal && part.order != SequenceOrder::zig_zag) {
      problems.add(fmt::format("{} context-parallel ranks with blocks of sequences for '{}'", parts,
                               node.name),
                   "under a causal mask later blocks are more work than earlier ones",
                   "Use the order zig-zag for its stage.");
      return;
    }
    if (!(by_position || pooled || repeated[id.index()]) ||
        (dropout != nullptr && dropout->p > 0) || (attention != nullptr && attention->alibi)) {
      problems.add(
          fmt::format("{} context-parallel ranks cannot share '{}' ({})", parts, node.name,
                      kind_name(node.attributes)),
          fmt::format("they have parts of {}, and this one needs more than its own positions",
                      deals_patches ? "the rows of pictures" : "a sequence of tokens"),
          "Use cp 1 for its component.");
      return;
    }
  }
}

std::vector<bool> gradient_is_partial_within(const TensorShard& shard,
                                             const std::vector<StageId>& stage_of, StageId stage) {
  std::vector<bool> partial(shard.gradient_is_partial.size());
  for (std::size_t n = 0; n < partial.size(); ++n) {
    if (stage_of[n] != stage || !shard.splits_inputs[n]) continue;
    for (const NodeId input : shard.graph.nodes()[n].inputs) {
      partial[input.index()] = shard.gradient_is_partial[input.index()];
    }
  }
  return partial;
}

}  // namespace heteroperf
