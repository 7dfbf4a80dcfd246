#include "suite/verbs/align_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "results/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t rows_shown = 10;

/// The first `rows_shown` of `rows` by falling `value`.
template <class Row, class Value>
std::vector<Row> largest(std::vector<Row> rows, Value value) {
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return value(a) > value(b); });
  rows.resize(std::min(rows.size(), rows_shown));
  return rows;
}

std::string steps_text(const Alignment& alignment) {
  std::string text = fmt::format("{:>8} {:>16} {:>16} {:>12} {:>14}\n", "step", "loss A", "loss B",
                                 "relative", "gradient norm");
  const auto rows = largest(alignment.steps, [](const AlignedStep& step) { return step.relative; });
  for (const AlignedStep& step : rows) {
    text += fmt::format("{:>8} {:>16.9g} {:>16.9g} {:>12.3g} {:>14.3g}\n", step.n, step.loss_a,
                        step.loss_b, step.relative, step.gradient_norm_relative);
  }
  if (alignment.steps.size() > rows.size()) {
    text +=
        fmt::format("  the {} steps furthest apart of {}\n", rows.size(), alignment.steps.size());
  }
  return text;
}

std::string parameters_text(const Alignment& alignment) {
  if (!alignment.parameter_step) {
    return fmt::format("parameters were not compared: {}\n", alignment.parameters_missing);
  }
  std::string text = fmt::format("parameters after {} steps, max|a-b|/max|b| of {} tensors\n",
                                 *alignment.parameter_step, alignment.parameters.size());
  const auto rows =
      largest(alignment.parameters, [](const AlignedParameter& one) { return one.max_relative; });
  for (const AlignedParameter& one : rows) {
    text += fmt::format("  {:<12.3g} {}\n", one.max_relative, line_text(one.name));
  }
  return text;
}

}  // namespace

std::string alignment_table(const Alignment& alignment) {
  return fmt::format("A {}\nB {}\n", line_text(alignment.run_a), line_text(alignment.run_b)) +
         steps_text(alignment) +
         fmt::format("gradient norm: at most {:.3g} apart\n",
                     alignment.gradient_norm_max_relative) +
         parameters_text(alignment) +
         fmt::format("{}: {} is {:.3g}, at most {:.3g} wanted (largest {:.3g})\n",
                     alignment.ok() ? "aligned" : "NOT ALIGNED", AcceptanceRule::text,
                     alignment.mean_relative, alignment.rule.limit, alignment.max_relative);
}

}  // namespace heteroperf
