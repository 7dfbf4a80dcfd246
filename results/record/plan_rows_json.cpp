// The rows of a record's table that speak of its plan: the plan itself, its prediction beside what
// was measured, the share of time in which ranks did not compute, how late emulated devices were,
// and a mix of device classes against each class alone. A row reads the record's JSON alone, so
// that it shows any stored record; a row with nothing to say is an empty text.
#include "results/record/plan_rows_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "results/record/stored_document_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// Returns an empty text where the value is none.
std::string text(const Json& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}

std::string percent(const Json& fraction) {
  return fmt::format("{:.1f} %", 100 * fraction.get<double>());
}

/// Writes HSR, the ratio of the mix to the sum of its classes alone, and the gain over the best
/// one.
std::string figures(const Json& json) {
  return fmt::format("HSR {:.3f}, {:.2f} x {} alone", json.at("hsr").get<double>(),
                     json.at("gain").get<double>(), text(json.at("best_class")));
}

}  // namespace

std::string plan_row(const Json& r) { return text(value_at(r, "/plan_summary")); }

/// The ranks' time without computing, predicted and measured. Nothing for one rank, which waits for
/// nobody.
std::string bubble_row(const Json& r) {
  const Json measured = value_at(r, "/prediction/measured/bubble_rate");
  const Json predicted = value_at(r, "/prediction/bubble_rate");
  if (!measured.is_null() && !predicted.is_null()) {
    return percent(measured) + " not computing (predicted " + percent(predicted) + ")";
  }
  const Json ranks = value_at(r, "/time_split_s/per_rank");
  if (!ranks.is_array() || ranks.size() < 2) return {};
  double wall_s = 0, compute_s = 0, bubble_s = 0;
  for (const Json& rank : ranks) {
    wall_s += rank.at("wall").get<double>();
    compute_s += rank.at("compute").get<double>();
    bubble_s += rank.at("bubble").get<double>();
  }
  if (wall_s <= 0) return {};
  return fmt::format("{:.1f} % not computing, {:.1f} % waiting for other ranks",
                     100 * (1 - compute_s / wall_s), 100 * bubble_s / wall_s);
}

std::string prediction_row(const Json& r) {
  const Json json = value_at(r, "/prediction");
  if (json.is_null()) return {};
  std::string line =
      fmt::format("step {:.4g} ms predicted", 1e3 * json.at("step_time_s").get<double>());
  const Json measured = value_at(r, "/prediction/measured/step_time_s");
  if (measured.is_null() || !json.contains("error_fraction")) return line;
  return line + fmt::format(", {:.4g} ms measured ({:+.1f} %)", 1e3 * measured.get<double>(),
                            100 * json.at("error_fraction").get<double>());
}

std::string pacing_row(const Json& r) {
  const Json json = value_at(r, "/pacing");
  if (json.is_null()) return {};
  return fmt::format("modelled time x {:.4g}, {:.2f} % of {} operations late",
                     json.at("dilation").get<double>(),
                     100 * json.at("late_fraction").get<double>(), json.at("operations").dump());
}

std::string hetero_row(const Json& r) {
  const Json json = value_at(r, "/metrics/hetero");
  if (json.is_null()) return {};
  std::string line;
  if (json.contains("hsr")) line = figures(json);
  if (!json.contains("planned")) return line;
  const std::string planned = figures(json.at("planned"));
  return line.empty() ? "planned " + planned : line + " (planned " + planned + ")";
}

}  // namespace heteroperf
