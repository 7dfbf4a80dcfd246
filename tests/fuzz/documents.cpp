// Documents that users hand to the program: every reader gets every input, and what one has read is
// written again.
#include "metrics/base/strict_json.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "tests/fuzz/hostile_input.hpp"
#include "workloads/graph/model_graph_json.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string text(text_of(data, size));
  const std::string file = input_folder().write("document.json", text);
  read_hostile([&] { plan_text(parse_plan(text, "plan.json")); });
  read_hostile([&] { graph_to_text(graph_from_text(text, "graph.json")); });
  read_hostile([&] { schedule_to_text(schedule_from_text(text)); });
  read_hostile([&] { efficiency_matrix_text(parse_efficiency_matrix(text, "efficiency.json")); });
  read_hostile([&] { to_json(read_cluster(file)); });
  read_hostile(
      [&] { parse_hexiscale(text, "machines.json", {.between_machines = BytesPerSecond(1e9)}); });
  read_hostile([&] { read_pipeline_graph_file(file); });
  read_hostile([&] { read_costs_file(file); });
  read_hostile([&] { read_network_file(file); });
  return 0;
}
