// The flags of `run` that stand for keys of the configuration. They are data, so that --help, the
// variables of the environment, `resume`, sweeps and the reproduce line all know the same ones. A
// flag's value goes through the same parser as --set; `positive` refuses a 0 that a key would read
// as "choose for me".
#include "suite/config/run_flags.hpp"

namespace heteroperf {

const std::vector<RunFlag>& run_flags() {
  static const std::vector<RunFlag> flags{
      {"--ranks", "scale.ranks", "N", "ranks to start (default: one per usable core)", true},
      {"--threads-per-rank", "scale.threads_per_rank", "N",
       "threads inside a rank (default: cores / ranks)", true},
      {"--transport", "scale.transport", "NAME",
       "threads (one process), mpi or nccl (these start mpirun themselves)", false},
      {"--device", "scale.device", "NAME", "cpu or cuda; or one per rank: cuda,cpu", false},
      {"--duration", "measure.duration_s", "SECONDS", "length of the measured phase", true},
      {"--steps", "measure.steps", "N", "optimizer steps per group of ranks, instead of a duration",
       true},
      {"--until", "measure.until_percent", "PCT",
       "end once half of the throughput's 95 % interval is within PCT of it, or the duration is "
       "over",
       false},
      {"--seed", "seed", "N", "seed of weights, data order, dropout and search", false},
      {"--size", "model.size", "NAME", "llm: size of the ladder (`list models`), or auto", false},
      {"--model", "model.name", "NAME", "image: a classifier of `list models`", false},
      {"--precision", "model.precision", "NAME", "fp32, bf16 or fp64 (fp64 is never ranked)",
       false},
      {"--data", "data.source", "SOURCE",
       "generated, idx:DIR, cifar10:DIR, text:FILE or tokens:FILE", false},
      {"--micro-batch", "batch.micro_batch", "N", "samples per replica and micro-batch", true},
      {"--micro-batches", "batch.micro_batches", "N", "micro-batches per step", true},
      {"--pp", "plan.pipeline", "N", "positions of the pipeline", true},
      {"--tp", "plan.tensor", "N", "ranks that share every layer (tensor parallelism)", true},
      {"--dp", "plan.data", "N", "replicas (default: what is left of the ranks)", true},
      {"--chunks", "plan.chunks", "N", "stages per position (default: the schedule's own)", true},
      {"--schedule", "plan.schedule", "NAME", "of the pipeline (`list schedules`), or auto", false},
      {"--plan", "plan.file", "FILE", "a plan, in place of the flags from --micro-batch to here",
       false},
      {"--cluster", "cluster.file", "FILE",
       "a cluster description, or the name of a shipped one (default: the plan's own); its paced "
       "classes are emulated",
       false},
      {"--trace", "trace", "FILE",
       "write where the time of 3 steps went on every rank, for Perfetto", false},
      {"--out", "out", "DIR", "run folder (default: results/<UTC>-<workload>-<id>)", false},
  };
  return flags;
}

}  // namespace heteroperf
