// Writes a plan as arguments of Megatron Core. Megatron knows one data-parallel degree, one
// tensor-parallel degree and one micro-batch for all stages, so most of this file checks that the
// plan is so even, and notes everything that is not before it throws.
//
// Cuts may be uneven: the pipeline layout says for each stage which blocks it has. Ranks must be
// numbered as Megatron numbers its own, since the arguments name none.
#include <fmt/format.h>

#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {
namespace {

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
    for (const StageWire& wire : plan_.wires) {
      if (wire.format == WireFormat::fp32) continue;
      problems_.add(fmt::format("the wire from stage {} to {} is {}", wire.from.value(),
                                wire.to.value(), to_string(wire.format)),
                    "Megatron does not compress messages");
    }
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
            "Megatron numbers tensor-parallel ranks first, then replicas, then stages");
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
    int layers = 0;
    for (const int count : blocks_) layers += count;
    std::string text = fmt::format(
        "--tensor-model-parallel-size {}\n"
        "--pipeline-model-parallel-size {}\n"
        "--pipeline-model-parallel-layout \"{}\"\n"
        "--num-layers {}\n"
        "--micro-batch-size {}\n"
        "--global-batch-size {}\n",
        first().ranks.size(), positions_, layout(), layers, first().micro_batch,
        plan_.samples_per_step());
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

std::string megatron_arguments(const Plan& plan) { return ArgumentWriter(plan).write(); }

}  // namespace heteroperf
