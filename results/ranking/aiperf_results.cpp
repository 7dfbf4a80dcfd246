// Reads the score that AIPerf, another benchmark of AI training, printed into its results.txt, so
// that a list can show it beside our own. AIPerf counts operations by another convention and over
// whole epochs, so its score is shown without a rank and with a remark that says why. The file is
// text for people; only the two lines with scores are looked for.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/ranking/ranking.hpp"

namespace heteroperf {
namespace {

constexpr double gflops = 1e9;

/// The number of the first "<label> : 1234.5 GFLOPS", as report.py of AIPerf prints it.
std::optional<double> score_of(const std::string& text, const std::string& label) {
  const std::string before = label + " : ";
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
    at += before.size();
    const char* const number = text.c_str() + at;
    char* end = nullptr;
    const double value = std::strtod(number, &end) * gflops;
    // strtod also reads "inf", "nan" and hexadecimal numbers, which no score is.
    const bool decimal = number[0] >= '0' && number[0] <= '9' &&
                         number + std::strspn(number, "0123456789.eE+-") == end;
    if (decimal && std::isfinite(value) &&
        text.compare(static_cast<std::size_t>(end - text.c_str()), 7, " GFLOPS") == 0)
      return value;
  }
  return std::nullopt;
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
  // A failed run of AIPerf still prints a score; the reader must know.
  if (text.find("Test failed") != std::string::npos) published.remark += "; its own test failed";
  return published;
}

}  // namespace heteroperf
