#include <fmt/format.h>

#include <cmath>
#include <regex>

#include "metrics/error.hpp"
#include "metrics/text_file.hpp"
#include "results/ranking/ranking.hpp"

namespace heteroperf {
namespace {

constexpr double gflops = 1e9;

/// The number of "<label> : 1234.5 GFLOPS", as report.py of AIPerf prints it.
std::optional<double> score_of(const std::string& text, const std::string& label) {
  const std::regex line(label + R"( : ([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?) GFLOPS)");
  std::smatch match;
  if (!std::regex_search(text, match, line)) return std::nullopt;
  const double value = std::stod(match[1]) * gflops;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

PublishedScore read_aiperf_results(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  const auto score = score_of(text, "Final Score");
  if (!score) {
    throw UserError(file.string() + " is no results.txt of AIPerf",
                    "it has no line \"Final Score : <number> GFLOPS\"");
  }
  PublishedScore published;
  published.source = file.string();
  published.ops_per_second = *score;
  published.regulated = score_of(text, "Final Regulated Score");
  published.remark = "counted by AIPerf's own convention over whole epochs: not comparable";
  if (text.find("Test failed") != std::string::npos) published.remark += "; its own test failed";
  return published;
}

}  // namespace heteroperf
