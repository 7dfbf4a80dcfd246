#include <fmt/format.h>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/schedule/formats/schedule_json.hpp"

namespace heteroperf {
namespace {

void require_costs(const char* key, const std::vector<double>& costs, DocumentProblems& problems) {
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] >= 0) continue;
    problems.add(fmt::format("{} is {}", element_path(key, i), costs[i]), "must be 0 or more");
  }
}

void require_at_least(double least, const char* key, double value, DocumentProblems& problems) {
  if (value >= least) return;
  problems.add(fmt::format("{} is {}", key, value), fmt::format("must be {} or more", least));
}

/// One whole document of a plain struct.
template <class Value, class Read>
Value read_document(const std::string& path, const char* what, const char* format, Read read) {
  const std::string text = read_text_file(path, what);
  DocumentProblems problems(path);
  const Json document = parse_strict_json(text, path, format);
  ObjectReader reader(document, "", problems);
  Value value;
  reader.expect_format(format, 1, FormatKey::optional);
  read(reader, value);
  reader.finish();
  problems.throw_if_any();
  return value;
}

void read_costs(ObjectReader& reader, StageCosts& costs) {
  reader.require({"forward", "backward", "weight"});
  reader.read("forward", costs.forward);
  reader.read("backward", costs.input_gradient);
  reader.read("weight", costs.weight_gradient);
  reader.read("comm", costs.latency);
  DocumentProblems& problems = reader.problems();
  require_costs("forward", costs.forward, problems);
  require_costs("backward", costs.input_gradient, problems);
  require_costs("weight", costs.weight_gradient, problems);
  require_at_least(0, "comm", costs.latency, problems);
  const std::size_t ranks = costs.forward.size();
  const bool equal = ranks == costs.input_gradient.size() && ranks == costs.weight_gradient.size();
  if (problems.empty() && (!equal || ranks == 0)) {
    problems.add(fmt::format("forward, backward and weight list {}, {} and {} ranks", ranks,
                             costs.input_gradient.size(), costs.weight_gradient.size()),
                 "", "Give one cost per rank in each.");
  }
}

void read_network(ObjectReader& reader, Network& network) {
  constexpr std::int64_t most_number = 1'000'000;
  reader.read("bandwidth", network.bandwidth);
  reader.read("capacity", network.capacity, 1, most_number);
  reader.read("full_duplex", network.full_duplex);
  reader.read("card", network.card, 0, most_number);
  reader.read("card_bandwidth", network.card_bandwidth);
  reader.read("node", network.node, 0, most_number);
  reader.read("compute_slow_down", network.compute_slow_down);
  reader.read("reduction_time", network.reduction_time);
  reader.read("step_time", network.step_time);
  DocumentProblems& problems = reader.problems();
  require_at_least(0, "bandwidth", network.bandwidth, problems);
  require_at_least(0, "card_bandwidth", network.card_bandwidth, problems);
  require_at_least(1, "compute_slow_down", network.compute_slow_down, problems);
  require_at_least(0, "reduction_time", network.reduction_time, problems);
  require_at_least(0, "step_time", network.step_time, problems);
  if (!network.card.empty() && !network.node.empty() &&
      network.card.size() != network.node.size()) {
    problems.add(
        fmt::format("card lists {} ranks and node {}", network.card.size(), network.node.size()),
        "", "Give one number per rank in each, or an empty list.");
  }
}

}  // namespace

StageCosts read_costs_file(const std::string& path) {
  return read_document<StageCosts>(path, "costs file", "heteroperf-costs", &read_costs);
}

Network read_network_file(const std::string& path) {
  return read_document<Network>(path, "network file", "heteroperf-network", &read_network);
}

}  // namespace heteroperf
