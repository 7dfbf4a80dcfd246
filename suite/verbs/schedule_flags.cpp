// Flags that `schedule` and `simulate` share. Costs are the times of a forward, an input-gradient
// and a weight-gradient pass of one micro-batch, and the latency of a message, in any unit of time;
// the result has the same unit. Four numbers hold for all ranks, a file gives each rank its own.
// The network model says how messages take their time.
#include "suite/verbs/schedule_flags.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "metrics/base/error.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

/// Parses "F,B,W,C".
std::array<double, 4> parse_costs(const std::string& text) {
  std::array<double, 4> costs{};
  const char *at = text.data(), *end = at + text.size();
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const auto [stop, error] = std::from_chars(at, end, costs[i]);
    // Exactly four numbers: neither fewer nor text behind them.
    const bool separated = i + 1 < costs.size() ? stop != end && *stop == ',' : stop == end;
    if (error != std::errc{} || !separated || !(costs[i] >= 0 && costs[i] <= most_cost)) {
      throw UserError("--costs " + text + " is not usable",
                      "expected F,B,W,C: four numbers from 0 to 1e15",
                      "For example --costs 1,1,1,0.");
    }
    at = stop + 1;
  }
  return costs;
}

}  // namespace

void NetworkFlags::declare(CLI::App& command) {
  add_parsed_option(command, "--model", model_,
                    std::bind_front(parse_value_name<NetworkModel>, "model"),
                    "latency: messages never block (default); links: they occupy links and cards; "
                    "rendezvous: sends wait for receives");
  command.add_option("--network", network_, "links and cards (JSON), for links and rendezvous");
}

SimulationOptions NetworkFlags::options() const {
  SimulationOptions options;
  options.model = model_;
  if (network_.empty()) return options;
  if (options.model == NetworkModel::latency) {
    throw UserError("--network does not go with --model latency", "that model has no links",
                    "Add --model links or --model rendezvous.");
  }
  options.network = read_network_file(network_);
  return options;
}

void CostFlags::declare(CLI::App& command) {
  auto* costs = command.add_option("--costs", costs_,
                                   "a rank's forward, input-gradient and weight-gradient cost of a "
                                   "micro-batch, and the latency of a message (default 1,1,1,0)");
  costs->type_name("F,B,W,C");
  command.add_option("--costs-file", file_, "the same for every rank (JSON)")->excludes(costs);
}

StageCosts CostFlags::costs(int ranks) const {
  if (file_.empty()) {
    const auto [f, b, w, c] =
        costs_.empty() ? std::array<double, 4>{1, 1, 1, 0} : parse_costs(costs_);
    return uniform_costs(ranks, f, b, w, c);
  }
  StageCosts costs = read_costs_file(file_);
  // A file for another number of ranks would shift costs between ranks.
  if (costs.forward.size() != static_cast<std::size_t>(ranks)) {
    throw UserError(fmt::format("{} gives costs of {} ranks", file_, costs.forward.size()),
                    fmt::format("the schedule has {}", ranks), "Give one cost per rank.");
  }
  return costs;
}

}  // namespace heteroperf
