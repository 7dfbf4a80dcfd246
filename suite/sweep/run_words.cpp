#include "suite/sweep/run_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace heteroperf {
namespace {

void add_setting(const std::string& path, const std::string& value,
                 std::vector<std::string>& words) {
  words.emplace_back("--set");
  words.push_back(path + '=' + value);
}

/// What every run has after its settings.
std::vector<std::string> closing_words(const std::string& folder) {
  return {"--no-color", "--out", folder};
}

std::optional<std::uint64_t> seed_in(const std::pair<std::string, std::string>& setting) {
  const auto& [path, text] = setting;
  std::uint64_t seed = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seed);
  if (path != "seed" || error != std::errc() || stop != end) return std::nullopt;
  return seed;
}

/// Takes the pairs of words that are "--set KEY=VALUE" away from the front.
SweepPoint take_settings(std::vector<std::string>& words) {
  SweepPoint settings;
  std::size_t at = 0;
  for (; at + 1 < words.size() && words[at] == "--set"; at += 2) {
    const std::size_t equals = words[at + 1].find('=');
    if (equals == std::string::npos) break;
    settings.emplace_back(words[at + 1].substr(0, equals), words[at + 1].substr(equals + 1));
  }
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
  return settings;
}

}  // namespace

std::vector<std::string> sweep_run_words(const SweepIndex& index, const SweepRun& run,
                                         const std::string& folder) {
  std::vector<std::string> words = index.command;
  for (const auto& [path, value] : index.points[run.point]) add_setting(path, value, words);
  add_setting("seed", fmt::format("{}", run.seed), words);
  for (std::string& word : closing_words(folder)) words.push_back(std::move(word));
  return words;
}

std::optional<SweepRunWords> read_sweep_run_words(const std::vector<std::string>& argv) {
  if (argv.size() < 2 || argv[1] != "run") return std::nullopt;
  SweepRunWords read{{"run"}, {}, 0, argv.back()};
  std::vector<std::string> rest(argv.begin() + 2, argv.end());
  if (!rest.empty() && rest.front() == "--quick") {
    read.before.push_back(rest.front());
    rest.erase(rest.begin());
  }
  read.settings = take_settings(rest);
  if (read.settings.empty() || rest != closing_words(read.folder)) return std::nullopt;
  const auto seed = seed_in(read.settings.back());
  if (!seed) return std::nullopt;
  read.seed = *seed;
  read.settings.pop_back();
  return read;
}

std::vector<std::string> command_of(const SweepRunWords& words, std::size_t count) {
  std::vector<std::string> command = words.before;
  for (std::size_t i = 0; i < count; ++i) {
    add_setting(words.settings[i].first, words.settings[i].second, command);
  }
  return command;
}

}  // namespace heteroperf
