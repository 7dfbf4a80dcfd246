#include "results/sweep/sweep_index.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/name_table.hpp"
#include "metrics/base/text_file.hpp"
#include "results/run_folder.hpp"
#include "results/sweep/sweep_states.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t longest_folder = 60;

/// What any file system and shell takes as it is.
std::string file_name_of(const std::string& text) {
  std::string name;
  for (const char c : text.substr(0, longest_folder)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '=' || c == '-';
    name += plain ? c : '-';
  }
  return name;
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::string point_text(const SweepPoint& point) {
  std::string text;
  for (const auto& [key, value] : point) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", last_part(key), value);
  }
  return text.empty() ? "all" : text;
}

const char* to_string(SweepRunState state) { return name_of(sweep_states, state); }

std::size_t SweepIndex::count(SweepRunState state) const {
  return static_cast<std::size_t>(std::count_if(
      runs.begin(), runs.end(), [&](const SweepRun& run) { return run.state == state; }));
}

std::string sweep_run_folder(std::size_t number, const SweepPoint& point, std::uint64_t seed) {
  return file_name_of(fmt::format("{:03}-{}-seed={}", number, point_text(point), seed));
}

std::vector<SweepRun> there_and_back(const SweepIndex& index) {
  std::vector<SweepRun> runs;
  for (std::size_t repeat = 0; repeat < index.repeats; ++repeat) {
    for (std::size_t i = 0; i < index.points.size(); ++i) {
      SweepRun run;
      run.point = repeat % 2 == 0 ? i : index.points.size() - 1 - i;
      run.repeat = repeat;
      run.seed = index.first_seed + repeat;
      run.folder = sweep_run_folder(runs.size() + 1, index.points[run.point], run.seed);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

std::filesystem::path sweep_file(const std::filesystem::path& folder) {
  return folder / "sweep.json";
}

bool is_sweep_folder(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::is_regular_file(sweep_file(folder), error);
}

std::optional<std::filesystem::path> sweep_folder_of(const std::filesystem::path& path) {
  if (is_sweep_folder(path)) return path;
  if (path.filename() != "sweep.json" || !is_sweep_folder(path.parent_path())) return std::nullopt;
  return path.parent_path();
}

void write_sweep(const std::filesystem::path& folder, const SweepIndex& index) {
  write_file_atomically(sweep_file(folder), sweep_json_text(index));
}

}  // namespace heteroperf
