#include "suite/run/run_flags.hpp"

namespace heteroperf {

const std::vector<RunFlag>& run_flags() {
  static const std::vector<RunFlag> flags{
      {"--ranks", "scale.ranks", "N", "ranks to start (default: one per usable core)", true},
      {"--threads-per-rank", "scale.threads_per_rank", "N",
       "threads inside a rank (default: cores / ranks)", true},
      {"--transport", "scale.transport", "NAME",
       "threads (one process) or mpi (starts mpirun itself)", false},
      {"--device", "scale.device", "NAME", "cpu", false},
      {"--duration", "measure.duration_s", "SECONDS", "length of the measured phase", true},
      {"--steps", "measure.steps", "N", "optimizer steps per group of ranks, instead of a duration",
       true},
      {"--seed", "seed", "N", "seed of weights, data order, dropout and search", false},
      {"--size", "model.size", "NAME", "llm: size of the ladder (`list models`), or auto", false},
      {"--model", "model.name", "NAME", "image: a classifier of `list models`", false},
      {"--precision", "model.precision", "NAME", "fp32, bf16 or fp64 (fp64 is never ranked)",
       false},
      {"--data", "data.source", "SOURCE",
       "generated, idx:DIR, cifar10:DIR, text:FILE or tokens:FILE", false},
      {"--micro-batch", "batch.micro_batch", "N", "samples per rank and micro-batch", true},
      {"--micro-batches", "batch.micro_batches", "N", "micro-batches per rank and step", true},
      {"--out", "out", "DIR", "run folder (default: results/<UTC>-<workload>-<id>)", false},
  };
  return flags;
}

}  // namespace heteroperf
