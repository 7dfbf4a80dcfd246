#include "tests/unit/results/stored_runs.hpp"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>

#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"

namespace heteroperf {

namespace {

/// Every rank has a GPU.
std::string binding_of(const StoredRun& stored) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < stored.gpus.size(); ++rank) {
    ranks.push_back(fmt::format(
        R"({{"rank":{0},"host":"{1}","cpus":"{0}","bound":true,"device":"{2}","gpu":{0},"gpu_name":"{2}"}})",
        rank, stored.host, stored.gpus[rank]));
  }
  return fmt::format("[{}]", fmt::join(ranks, ","));
}

}  // namespace

SampleRun sample_of(const StoredRun& stored) {
  SampleRunOptions options;
  options.step_s = stored.step_s;
  options.steps = stored.steps;
  SampleRun run = fixed_run(options);
  auto& start = run.last<StartEvent>();
  start.created_utc =
      fmt::format("2026-01-01T{:02}:{:02}:00Z", stored.number / 60, stored.number % 60);
  start.run_id = fmt::format("run-{:03}", stored.number);
  start.git_commit = stored.commit;
  start.build_type = stored.build_type;
  run.last<SystemEvent>().system.text =
      fmt::format(R"({{"host":{{"value":"{}","source":"gethostname"}}{}}})", stored.host,
                  stored.gpus.empty() ? "" : ",\"binding\":" + binding_of(stored));
  run.last<WorkloadEvent>().seeds = {{"run", stored.seed}};
  return run;
}

std::filesystem::path store_run(const std::filesystem::path& folder, const StoredRun& stored) {
  const RunFiles files{folder / fmt::format("run-{:03}", stored.number)};
  sample_of(stored).write_finished(files);
  return files.folder;
}

void edit_file(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string text = read_text_file(file);
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error(from + " is not in " + file.string());
  text.replace(at, from.size(), to);
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace heteroperf
