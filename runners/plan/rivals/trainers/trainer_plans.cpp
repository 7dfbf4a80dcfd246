// Writes plans for other trainers.
//
// Other trainers cut a model between transformer blocks and count blocks per stage; a plan cuts
// between nodes and names them. This file counts a plan's blocks by the names of their nodes and
// says where a cut is not between blocks.
//
// Nodes of block 12 are called "block12" or "block12.something". All others (embedding, head, loss)
// surround the blocks and belong to the first or the last stage; anywhere else they are a problem.
//
// FlagScale: a plan becomes the heterogeneous part of a FlagScale train configuration. FlagScale
// describes a pipeline as a list of *meshes*, each of neighbouring stages with equal degrees on one
// device type. A plan may be uneven in more ways than meshes can say; each of these ways is noted,
// and the writer throws all notes at once.
//
// Nothing is rounded to what FlagScale can say: a configuration that trains something else than the
// plan would make every comparison of the two worthless.
//
// Megatron Core: a plan becomes arguments. Megatron knows one data-parallel degree, one
// tensor-parallel degree and one micro-batch for all stages, so most of this file checks that the
// plan is so even, and notes everything that is not before it throws.
//
// Cuts may be uneven: the pipeline layout says for each stage which blocks it has. Ranks must be
// numbered as Megatron numbers its own, since the arguments name none.
#include "runners/plan/rivals/trainers/trainer_plans.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heteroperf {
namespace {

/// Notes wires in another format than float32, which other trainers do not have.
void check_wires(const Plan& plan, const char* trainer, ProblemList& problems) {
  for (const StageWire& wire : plan.wires) {
    if (wire.format == WireFormat::fp32) continue;
    problems.add(fmt::format("the wire from stage {} to {} is {}", wire.from.value(),
                             wire.to.value(), to_string(wire.format)),
                 fmt::format("{} does not compress messages", trainer));
  }
}

/// Transformer blocks of every stage, as other trainers count layers: what comes before the first
/// block in the first stage, what comes after the last one in the last. Notes, naming `trainer`,
/// blocks that two stages share, are out of order or missing, and other nodes elsewhere.
IdVector<StageId, int> stage_blocks(const Plan& plan, const char* trainer, ProblemList& problems) {
  IdVector<StageId, int> counts(plan.stages.size(), 0);
  int last = -1;
  StageId stage_of_last;
  for (const StageId s : plan.stages.ids()) {
    const std::vector<std::string>& nodes = plan.stages[s].nodes;
    const auto first = std::ranges::find_if(
        nodes, [](const std::string& node) { return block_of_node(node) >= 0; });
    for (auto node = nodes.begin(); node != nodes.end(); ++node) {
      const int block = block_of_node(*node);
      if (block < 0) {
        const bool leads = s == 0 && node < first;
        const bool trails = node > first || (first == nodes.end() && last >= 0);
        if (leads || (trails && s.index() + 1 == plan.stages.size())) continue;
        problems.add(
            fmt::format("stage {} has the node '{}'", s.value(), *node),
            fmt::format("{} has what surrounds the blocks in its first and last stage", trainer));
        continue;
      }
      if (block == last && s == stage_of_last) continue;
      if (block == last + 1) {
        ++counts[s];
      } else if (block == last) {
        problems.add(fmt::format("block {} is cut between stages {} and {}", block,
                                 stage_of_last.value(), s.value()),
                     fmt::format("{} moves whole layers", trainer));
      } else {
        problems.add(fmt::format("stage {} has block {} after block {}", s.value(), block, last),
                     fmt::format("{} has its layers in order", trainer));
      }
      last = block;
      stage_of_last = s;
    }
  }
  if (last < 0) problems.add("the plan has no transformer blocks", trainer);
  return counts;
}

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
    check_wires(plan_, "FlagScale", problems_);
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
    const int parts = first.part.parts;
    const FlagScaleMesh mesh{.tensor = static_cast<int>(first.ranks.size()),
                             .context = parts,
                             .data = static_cast<int>(stage.replicas.size()) / parts,
                             .device = first.device_class};
    FlagScaleMesh* last = setup_.meshes.empty() ? nullptr : &setup_.meshes.back();
    if (last != nullptr && last->tensor == mesh.tensor && last->context == mesh.context &&
        last->data == mesh.data && last->device == mesh.device) {
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
      problems_.add(
          fmt::format("stage {} has rank {} where {} is next", s.value(), rank.value(),
                      next_rank_ - 1),
          "FlagScale numbers tensor-parallel ranks first, then parts of sequences, replicas, "
          "stages",
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

class ArgumentWriter {
 public:
  explicit ArgumentWriter(const Plan& plan) : plan_(plan) {}

  std::string write() {
    check_whole();
    problems_.throw_if_any();
    positions_ = plan_.stages.size() / static_cast<std::size_t>(plan_.chunks);
    blocks_ = stage_blocks(plan_, "Megatron", problems_);
    for (const StageId s : plan_.stages.ids()) check_stage(s);
    problems_.throw_if_any();
    return text();
  }

 private:
  /// The replica that all others must be like.
  const StageReplica& first() const { return plan_.stages.front().replicas.front(); }

  /// The plan's schedule, chunks and wires.
  void check_whole() {
    const bool interleaved = plan_.schedule == "interleaved-1f1b";
    if (plan_.schedule != "1f1b" && !interleaved) {
      problems_.add(fmt::format("the schedule is {}", plan_.schedule),
                    "Megatron has 1f1b and interleaved-1f1b");
    }
    if (plan_.chunks > 1 && !interleaved) {
      problems_.add(fmt::format("{} chunks per position under {}", plan_.chunks, plan_.schedule));
    }
    check_wires(plan_, "Megatron", problems_);
    if (plan_.stages.empty() || plan_.stages.front().replicas.empty()) {
      problems_.add("the plan has no stage with replicas");
    } else if (plan_.stages.size() % static_cast<std::size_t>(plan_.chunks) != 0) {
      problems_.add(fmt::format("{} stages in {} chunks", plan_.stages.size(), plan_.chunks));
    }
  }

  /// A stage must have the first one's replicas, recomputation and numbering of ranks.
  void check_stage(StageId s) {
    const PlanStage& stage = plan_.stages[s];
    const std::size_t width = plan_.stages.front().replicas.size();
    if (stage.replicas.size() != width) {
      problems_.add(fmt::format("stages 0 and {} have {} and {} replicas", s.value(), width,
                                stage.replicas.size()),
                    "Megatron has one data-parallel degree");
    }
    if (stage.recomputation != plan_.stages.front().recomputation) {
      problems_.add(fmt::format("stages 0 and {} recompute differently", s.value()),
                    "Megatron recomputes alike everywhere");
    }
    // Neighbours of one chunk have the ranks of the first one's.
    int next = static_cast<int>((s.index() % positions_) * width * first().ranks.size());
    for (const StageReplica& replica : stage.replicas) {
      if (!check_replica(s, replica)) return;
      for (const RankId rank : replica.ranks) {
        if (rank.value() == next++) continue;
        problems_.add(
            fmt::format("stage {} has rank {} where {} is next", s.value(), rank.value(), next - 1),
            "Megatron numbers tensor-parallel ranks first, then parts of sequences, replicas, "
            "stages");
        return;
      }
    }
  }

  /// Notes what makes a replica unlike the first one of the plan; true where nothing does.
  bool check_replica(StageId s, const StageReplica& replica) {
    if (replica.ranks.size() != first().ranks.size()) {
      problems_.add(fmt::format("replicas of stages 0 and {} have {} and {} tensor-parallel ranks",
                                s.value(), first().ranks.size(), replica.ranks.size()),
                    "Megatron has one tensor-parallel degree");
      return false;
    }
    if (replica.micro_batch != first().micro_batch) {
      problems_.add(fmt::format("replicas of stages 0 and {} take {} and {} samples", s.value(),
                                first().micro_batch, replica.micro_batch),
                    "Megatron has one size of micro-batches");
      return false;
    }
    if (replica.part.parts != first().part.parts) {
      problems_.add(fmt::format("replicas of stages 0 and {} have sequences in {} and {} parts",
                                s.value(), first().part.parts, replica.part.parts),
                    "Megatron has one context-parallel degree");
      return false;
    }
    if (replica.direction != 0) {
      problems_.add(fmt::format("stage {} has replicas of two directions", s.value()));
      return false;
    }
    return true;
  }

  /// The pipeline layout, stage by stage: E for the embedding, t or t*n for transformer blocks, L
  /// for the loss, with | between stages.
  std::string layout() const {
    std::string text;
    for (std::size_t s = 0; s < blocks_.size(); ++s) {
      std::string stage = s == 0 ? "E" : "";
      if (blocks_[s] == 1) stage += "t";
      if (blocks_[s] > 1) stage += fmt::format("t*{}", blocks_[s]);
      if (s + 1 == blocks_.size()) stage += stage.empty() ? "L" : ",L";
      text += (s == 0 ? "" : "|") + stage;
    }
    return text;
  }

  /// The arguments, one to a line.
  std::string text() const {
    const int layers = std::accumulate(blocks_.begin(), blocks_.end(), 0);
    std::string text = fmt::format(
        "--tensor-model-parallel-size {}\n"
        "--pipeline-model-parallel-size {}\n"
        "--pipeline-model-parallel-layout \"{}\"\n"
        "--num-layers {}\n"
        "--micro-batch-size {}\n"
        "--global-batch-size {}\n",
        first().ranks.size(), positions_, layout(), layers, first().micro_batch,
        plan_.samples_per_step());
    if (!first().part.whole()) {
      text += fmt::format("--context-parallel-size {}\n", first().part.parts);
    }
    const Recomputation recomputation = plan_.stages.front().recomputation;
    if (recomputation == Recomputation::selective) text += "--recompute-granularity selective\n";
    if (recomputation == Recomputation::full) {
      text +=
          "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
    }
    if (plan_.zero_stage == 1) text += "--use-distributed-optimizer\n";
    if (plan_.sequence_parallel) text += "--sequence-parallel\n";
    return text;
  }

  const Plan& plan_;
  ProblemList problems_;
  // Stages side by side on the ranks; with several chunks each position has several stages.
  std::size_t positions_ = 1;
  std::vector<int> blocks_;
};

}  // namespace

// "block12.attn.qkv" and "block12" are of block 12, "blocks.3" and "block12x" of none.
int block_of_node(const std::string& node) {
  constexpr std::string_view prefix = "block";
  if (!node.starts_with(prefix)) return -1;
  int block = -1;
  const char *begin = node.data() + prefix.size(), *stop = node.data() + node.size();
  const auto [end, error] = std::from_chars(begin, stop, block);
  return error == std::errc() && (end == stop || *end == '.') ? block : -1;
}

int FlagScaleSetup::stages() const {
  int sum = 0;
  for (const FlagScaleMesh& mesh : meshes) sum += mesh.pipeline;
  return sum;
}

// The order of the checks is the order in which their problems are listed.
FlagScaleSetup flagscale_setup(const Plan& plan) { return SetupWriter(plan).write(); }

std::string flagscale_text(const FlagScaleSetup& setup) {
  std::vector<std::string> numbers, devices;
  const int layers = std::accumulate(setup.layer_split.begin(), setup.layer_split.end(), 0);
  for (const FlagScaleMesh& m : setup.meshes) {
    numbers.push_back(
        fmt::format("{}, {}, {}, {}, {}", m.tensor, m.context, m.expert, m.data, m.pipeline));
    devices.push_back(quoted(m.device));
  }

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

std::string megatron_arguments(const Plan& plan) { return ArgumentWriter(plan).write(); }

}  // namespace heteroperf
