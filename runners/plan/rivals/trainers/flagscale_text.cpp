// Writes a plan as the heterogeneous part of a FlagScale train configuration. FlagScale describes a
// pipeline as a list of *meshes*, each of neighbouring stages with equal degrees on one device
// type. A plan may be uneven in more ways than meshes can say; each of these ways is noted, and the
// writer throws all notes at once.
//
// Nothing is rounded to what FlagScale can say: a configuration that trains something else than the
// plan would make every comparison of the two worthless.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {
namespace {

class SetupWriter {
 public:
  explicit SetupWriter(const Plan& plan) : plan_(plan) {}

  FlagScaleSetup write() {
    check_whole();
    setup_.layer_split = stage_blocks(plan_, "FlagScale", problems_);
    for (const StageId s : plan_.stages.ids()) add_stage(s);
    check_layers();
    check_classes();
    problems_.throw_if_any();
    const auto& first = plan_.stages.front().replicas;
    setup_.micro_batch = first.front().micro_batch;
    setup_.global_batch = static_cast<std::int64_t>(plan_.samples_per_step());
    setup_.distributed_optimizer = plan_.zero_stage == 1;
    return std::move(setup_);
  }

 private:
  /// Checks what the whole plan has one of: schedule, chunks, wires.
  void check_whole() {
    if (plan_.schedule != "1f1b") {
      problems_.add(fmt::format("the schedule is {}", plan_.schedule),
                    "FlagScale runs mixed devices by 1f1b");
    }
    if (plan_.chunks != 1) {
      problems_.add(fmt::format("{} chunks per position", plan_.chunks),
                    "FlagScale has one on mixed devices");
    }
    for (const StageWire& wire : plan_.wires) {
      if (wire.format == WireFormat::fp32) continue;
      problems_.add(fmt::format("the wire from stage {} to {} is {}", wire.from.value(),
                                wire.to.value(), to_string(wire.format)),
                    "FlagScale does not compress messages");
    }
    if (plan_.stages.empty()) problems_.add("the plan has no stages");
    problems_.throw_if_any();
  }

  /// Adds a stage to the last mesh where degrees and device are the same, else begins a mesh.
  void add_stage(StageId s) {
    const PlanStage& stage = plan_.stages[s];
    setup_.recomputed.push_back(stage.recomputation == Recomputation::full ? 1 : 0);
    if (stage.recomputation == Recomputation::selective) {
      problems_.add(fmt::format("stage {} recomputes selectively", s.value()),
                    "FlagScale chooses between none and full by stage");
    }
    if (stage.replicas.empty()) {
      problems_.add(fmt::format("stage {} has no replicas", s.value()));
      return;
    }
    const StageReplica& first = stage.replicas.front();
    check_replicas(s, first);
    const FlagScaleMesh mesh{.tensor = static_cast<int>(first.ranks.size()),
                             .data = static_cast<int>(stage.replicas.size()),
                             .device = first.device_class};
    FlagScaleMesh* last = setup_.meshes.empty() ? nullptr : &setup_.meshes.back();
    if (last != nullptr && last->tensor == mesh.tensor && last->data == mesh.data &&
        last->device == mesh.device) {
      ++last->pipeline;
    } else {
      setup_.meshes.push_back(mesh);
    }
  }

  /// Compares the replicas of a stage with its first one.
  void check_replicas(StageId s, const StageReplica& first) {
    const auto compare = [&](const auto& a, const auto& b, auto text, const char* why) {
      if (a != b) problems_.add(fmt::format(text, s.value(), a, b), why);
    };
    for (const StageReplica& replica : plan_.stages[s].replicas) {
      check_ranks(s, replica);
      if (replica.direction != 0) {
        problems_.add(fmt::format("stage {} has replicas of two directions", s.value()));
      }
      compare(first.micro_batch, replica.micro_batch,
              FMT_STRING("replicas of stage {} take {} and {} samples"),
              "FlagScale splits a micro-batch evenly");
      compare(first.ranks.size(), replica.ranks.size(),
              FMT_STRING("replicas of stage {} have {} and {} tensor-parallel ranks"),
              "FlagScale has one degree per mesh");
      compare(first.device_class, replica.device_class,
              FMT_STRING("replicas of stage {} are on {} and {}"),
              "FlagScale has one device type per mesh");
    }
  }

  /// Once: everything after the first rank out of order is too.
  void check_ranks(StageId s, const StageReplica& replica) {
    for (const RankId rank : replica.ranks) {
      if (rank.value() == next_rank_++ || !ranks_in_order_) continue;
      ranks_in_order_ = false;
      problems_.add(fmt::format("stage {} has rank {} where {} is next", s.value(), rank.value(),
                                next_rank_ - 1),
                    "FlagScale numbers tensor-parallel ranks first, then replicas, then stages",
                    "Order the cluster's ranks that way.");
    }
  }

  /// Every stage needs a transformer block, for the split counts blocks.
  void check_layers() {
    for (std::size_t s = 0; s < setup_.layer_split.size(); ++s) {
      if (setup_.layer_split[s] > 0) continue;
      problems_.add(fmt::format("stage {} has no transformer block", s),
                    "FlagScale has no stage of an embedding or a head alone");
    }
  }

  /// FlagScale needs the device type of every mesh.
  void check_classes() {
    const bool named = std::ranges::none_of(
        setup_.meshes, [](const FlagScaleMesh& mesh) { return mesh.device.empty(); });
    if (named) return;
    problems_.add("some replicas do not say their device class",
                  "FlagScale places meshes by device type", "Give device_class in the plan.");
  }

  const Plan& plan_;
  FlagScaleSetup setup_;
  ProblemList problems_;
  int next_rank_ = 0;
  bool ranks_in_order_ = true;
};

/// Device names go into YAML as double-quoted strings.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

/// [stages, micro-batches, 0 or 1] for every run of equal stages.
std::string recomputation_rows(const FlagScaleSetup& setup, std::int64_t micro_batches) {
  std::string rows;
  for (std::size_t s = 0; s < setup.recomputed.size();) {
    std::size_t end = s;
    while (end < setup.recomputed.size() && setup.recomputed[end] == setup.recomputed[s]) ++end;
    rows += fmt::format("      - [{}, {}, {}]\n", end - s, micro_batches, setup.recomputed[s]);
    s = end;
  }
  return rows;
}

}  // namespace

int FlagScaleSetup::stages() const {
  int sum = 0;
  for (const FlagScaleMesh& mesh : meshes) sum += mesh.pipeline;
  return sum;
}

// The order of the checks is the order in which their problems are listed.
FlagScaleSetup flagscale_setup(const Plan& plan) { return SetupWriter(plan).write(); }

std::string flagscale_text(const FlagScaleSetup& setup) {
  std::vector<std::string> numbers, devices;
  int layers = 0;
  for (const FlagScaleMesh& m : setup.meshes) {
    numbers.push_back(
        fmt::format("{}, {}, {}, {}, {}", m.tensor, m.context, m.expert, m.data, m.pipeline));
    devices.push_back(quoted(m.device));
  }
  for (const int count : setup.layer_split) layers += count;
  const FlagScaleMesh& first = setup.meshes.front();
  std::string text = fmt::format(
      "system:\n"
      "  tensor_model_parallel_size: {}\n"
      "  pipeline_model_parallel_size: {}\n"
      "  context_parallel_size: {}\n"
      "  use_distributed_optimizer: {}\n"
      "  hetero:\n"
      "    enable_hetero: true\n"
      "    hetero_process_meshes: [{}]\n"
      "    hetero_device_types: [{}]\n"
      "    hetero_pipeline_layer_split: [{}]\n",
      first.tensor, setup.stages(), first.context, setup.distributed_optimizer,
      fmt::join(numbers, ", "), fmt::join(devices, ", "), fmt::join(setup.layer_split, ", "));
  if (std::ranges::count(setup.recomputed, 1) > 0) {
    // The rows count micro-batches of the first mesh's replicas.
    const std::int64_t micro_batches = setup.global_batch / (setup.micro_batch * first.data);
    text += fmt::format(
        "  recompute:\n"
        "    recompute_granularity: full\n"
        "    recompute_method: uniform\n"
        "    recompute_num_layers: 1\n"
        "    recompute_granularity_per_stage_micro_batch:\n{}",
        recomputation_rows(setup, micro_batches));
  }
  return text + fmt::format(
                    "model:\n"
                    "  num_layers: {}\n"
                    "  micro_batch_size: {}\n"
                    "  global_batch_size: {}\n",
                    layers, setup.micro_batch, setup.global_batch);
}

}  // namespace heteroperf
