#include "tests/unit/suite/recorded_training.hpp"

#include "runners/engine/checkpoint/checkpoint.hpp"
#include "suite/config/run_config_json.hpp"

namespace heteroperf {
namespace {

TensorPiece piece_of(const std::string& name, std::vector<float>& values) {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(values.size())};
  const Box box = whole_box(shape);
  return {name, StoredType::f32, shape, box, dense_strides(box), values.data()};
}

}  // namespace

SampleRun recorded_training() {
  SampleRun run = fixed_run();
  RunConfig config;
  config.workload = "image";
  config.seed = 42;
  config.out = "some/folder";
  config.scale.ranks = 2;
  config.scale.threads_per_rank = 1;
  config.batch = {8, 4};
  config.measure.steps = 32;
  run.last<ConfigEvent>().config.text = to_json_text(config);
  return run;
}

RunFiles write_run(const SampleRun& run, const std::filesystem::path& folder) {
  const RunFiles files{folder};
  run.write(files);
  return files;
}

void save_parameters(const SampleRun& run, const std::filesystem::path& run_folder,
                     std::uint64_t step, const std::vector<float>& weights) {
  SampleRun copy = run;
  std::vector<float> values = weights, statistics{0, 0}, moments{step > 0 ? 1.0f : 0.0f};
  const CheckpointState state{"image",  copy.last<WorkloadEvent>().graph_hash, "", 42, step, step,
                              64 * step};
  const CheckpointWriter writer(checkpoint_folder(run_folder, step));
  writer.publish(state, {writer.write(0, {piece_of("hidden.weight", values),
                                          piece_of("norm.running_mean", statistics),
                                          piece_of("optimizer.first/hidden.weight", moments)})});
}

}  // namespace heteroperf
