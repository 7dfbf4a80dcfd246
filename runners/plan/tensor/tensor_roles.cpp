// This file decides which layers the ranks of a tensor-parallel group share.
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
#include "runners/plan/tensor/tensor_roles.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

template <class... Kinds>
bool is_any(const Node& node) {
  return (std::holds_alternative<Kinds>(node.attributes) || ...);
}
template <class Kind>
const Kind* as(const Node& node) {
  return std::get_if<Kind>(&node.attributes);
}

/// Operations that treat every element alike may work on any columns.
bool works_on_elements(const Node& node) {
  return is_any<Relu, Gelu, Silu, Tanh, Dropout, Add, Multiply>(node);
}

/// Sets of nodes that are cut together or not at all.
class Regions {
 public:
  explicit Regions(std::size_t nodes) : parent_(nodes) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t of(std::size_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }
  void join(std::size_t a, std::size_t b) { parent_[of(a)] = of(b); }

 private:
  std::vector<std::size_t> parent_;
};

/// Cuts every linear at first, and keeps those whole that lead to something that cannot work on
/// columns, until nothing is left to change.
class RoleFinder {
 public:
  RoleFinder(const ModelGraph& graph, int degree)
      : graph_(graph), degree_(degree), kept_whole_(graph.nodes().size()) {
    for (std::size_t n = 0; n < kept_whole_.size(); ++n) users_.push_back(graph.consumers(id(n)));
  }

  TensorRoles run() {
    do {
      assign_roles();
      assign_packing();
    } while (keep_misfits_whole());
    check();
    return std::move(roles_);
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
        std::count_if(inputs.begin(), inputs.end(), [&](NodeId input) { return cut(input); }));
    if (cut_inputs == 0) return role_of_whole_inputs(n);
    if (const auto* linear = as<Linear>(node(n))) {
      if (linear->tied_to.empty()) return TensorRole::row;
    } else if (cut_inputs == inputs.size() &&
               (works_on_elements(node(n)) || is_any<Rotary, Attention, CrossEntropy>(node(n)))) {
      return TensorRole::local;
    }
    for (const NodeId input : inputs) {
      if (cut(input)) misfits_.push_back(input.index());
    }
    return TensorRole::whole;
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
      if (!users.empty()) roles_.packing[n] = packing_taken_by(users.front());
      const auto takes_another = [&](NodeId user) {
        return packing_taken_by(user) != roles_.packing[n];
      };
      const auto* rotary = as<Rotary>(node(n));
      const bool leaves_another = (rotary != nullptr && packing_of(*rotary) != roles_.packing[n]) ||
                                  (is_any<Attention>(node(n)) && !roles_.packing[n].plain());
      if (users.empty() || leaves_another || std::any_of(users.begin(), users.end(), takes_another))
        misfits_.push_back(n);
    }
  }

  template <class Heads>
  static HeadPacking packing_of(const Heads& a) {
    return {a.heads, a.kv_heads, a.head_dim};
  }
  HeadPacking packing_taken_by(NodeId user) const {
    const Node& taker = graph_.node(user);
    if (const auto* attention = as<Attention>(taker)) return packing_of(*attention);
    if (const auto* rotary = as<Rotary>(taker)) return packing_of(*rotary);
    return works_on_elements(taker) ? roles_.packing[user.index()] : HeadPacking{};
  }

  /// False when there were none.
  /// Keeps the column linears of every misfit's region whole for all later rounds.
  bool keep_misfits_whole() {
    if (misfits_.empty()) return keep_tied_alike();
    Regions regions(count());
    for (std::size_t n = 0; n < count(); ++n) {
      if (roles_.role[n] != TensorRole::local) continue;
      for (const NodeId input : node(n).inputs) regions.join(n, input.index());
    }
    for (const std::size_t misfit : misfits_) {
      for (std::size_t n = 0; n < count(); ++n) {
        if (roles_.role[n] == TensorRole::column && regions.of(n) == regions.of(misfit)) {
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

  void check() const {
    ProblemList problems;
    check_heads(problems);
    check_dropout(problems);
    check_gain(problems);
    problems.throw_if_any();
  }

  // Nearly all of a convolution net: its ranks would do the same work, each on its own.
  void check_gain(ProblemList& problems) const {
    double repeated = 0, all = 0;
    for (std::size_t n = 0; n < count(); ++n) {
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
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::string>> unfit;
    for (std::size_t n = 0; n < count(); ++n) {
      const auto* attention = as<Attention>(node(n));
      if (attention == nullptr || roles_.role[n] != TensorRole::local) continue;
      if (attention->heads % degree_ == 0 && attention->kv_heads % degree_ == 0) continue;
      unfit[{attention->heads, attention->kv_heads}].push_back(node(n).name);
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
      const bool draws = dropout != nullptr && dropout->p > 0.0;
      if (draws && roles_.role[n] == TensorRole::local) names.push_back(node(n).name);
    }
    if (names.empty()) return;
    problems.add(fmt::format("dropout {} would work on some columns of a tensor", list(names)),
                 "its mask is drawn for whole samples",
                 "Set the dropout to 0 or use 1 tensor-parallel rank.");
  }

  const ModelGraph& graph_;
  int degree_;
  std::vector<bool> kept_whole_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::size_t> misfits_;  ///< cut outputs that something cannot work on
  TensorRoles roles_;
};

}  // namespace

TensorRoles find_tensor_roles(const ModelGraph& graph, int degree) {
  HETEROPERF_EXPECT(degree >= 2);
  return RoleFinder(graph, degree).run();
}

}  // namespace heteroperf
