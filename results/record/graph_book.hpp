#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "results/journal/journal.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The model graphs that a journal holds, by the hash under which its lines name them.
class GraphBook {
 public:
  explicit GraphBook(const Journal& journal);

  /// Null when the journal has no readable graph of this hash.
  const ModelGraph* find(const std::string& hash) const;
  /// The faults of the graphs, each with its line: text that cannot be read, or another hash than
  /// the line says. Empty where there is none.
  const std::vector<std::string>& problems() const { return problems_; }
  /// Returns the number of graphs that could be read and have their hash.
  std::size_t size() const { return graphs_.size(); }

  /// The graph a step trained: its trial's (latest) one, or the workload's.
  const ModelGraph* of(std::optional<std::uint64_t> trial) const;

  /// A pass whose operations are counted: training or evaluation, in the strict convention or in
  /// AIPerf's; `padding_train` are those of strict_train that multiply with padding.
  enum class Pass { strict_train, strict_evaluation, aiperf_train, padding_train };
  /// Operations of a pass; nothing without the graph, or where the convention does not define them.
  /// Counts are kept for the next question, so only one thread may ask.
  /// `images`: of all samples, where these have any number of them; nothing counts the most.
  std::optional<Ops> count(std::optional<std::uint64_t> trial, std::uint64_t samples, Pass pass,
                           std::optional<std::uint64_t> images = {}) const;

 private:
  void add(const std::string& hash, const JsonText& graph, std::size_t line);

  std::map<std::string, ModelGraph> graphs_;
  std::string workload_hash_;
  std::map<std::uint64_t, std::string> trial_hash_;
  mutable std::map<std::tuple<const ModelGraph*, Pass, std::uint64_t, std::optional<std::uint64_t>>,
                   std::optional<Ops>>
      counts_;
  std::vector<std::string> problems_;
};

}  // namespace heteroperf
