// The choice of an all-reduce algorithm: by rules that a user writes as a string, else by the
// model.
#include "runners/comm/selection/selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/random.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
constexpr const char* grammar = "Write e.g. recursive_doubling:0-8K;ring:8193-max.";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Parses "8193", "8K" or "max"; returns nothing when the text is no size.
std::optional<Bytes> parse_end(std::string_view text) {
  return text == "max" ? Bytes(no_limit) : parse_byte_size(text);
}

std::string size_text(Bytes size) {
  return size.value() == no_limit ? "max" : fmt::format("{}", size.value());
}

/// One part of a selection string and its rule.
struct Part {
  std::string_view text;
  SelectionRule rule;
};

/// Fills the range of a rule; returns false when the text is no range.
bool read_range(std::string_view text, std::string_view whole, SelectionRule& rule,
                ProblemList& problems) {
  const auto ends = split(text, '-');
  const auto first = parse_end(ends.front());
  const auto last = parse_end(ends.back());
  if (ends.size() != 2 || !first || !last) {
    problems.add(fmt::format("\"{}\" is not a range of sizes in \"{}\"", text, whole),
                 "a range is FIRST-LAST in bytes, with K, M or G, or max as its end", grammar);
    return false;
  }
  if (*first > *last) {
    problems.add(fmt::format("the range {} of \"{}\" is empty", text, whole),
                 fmt::format("{} is more than {}", ends.front(), ends.back()),
                 fmt::format("Swap its ends: {}-{}.", ends.back(), ends.front()));
    return false;
  }
  rule.first = *first;
  rule.last = *last;
  return true;
}

void read_part(std::string_view text, std::vector<Part>& parts, ProblemList& problems) {
  if (text.empty()) {
    problems.add("the selection has an empty part", "every part is ALGORITHM:FIRST-LAST", grammar);
    return;
  }
  const auto colon = text.find(':');
  Part part{text, {}};
  bool good = false;
  collect_problems(problems, [&] {
    part.rule.algorithm = parse_algorithm(std::string(trimmed(text.substr(0, colon))));
    good = true;
  });
  if (colon != std::string_view::npos) {
    good &= read_range(trimmed(text.substr(colon + 1)), text, part.rule, problems);
  }
  if (good) parts.push_back(part);
}

void find_overlaps(const std::vector<Part>& ascending, ProblemList& problems) {
  const Part* widest = nullptr;  // the part seen so far that reaches furthest
  for (const Part& part : ascending) {
    if (widest != nullptr && part.rule.first <= widest->rule.last) {
      problems.add(fmt::format("\"{}\" and \"{}\" overlap", widest->text, part.text),
                   fmt::format("both cover {} to {}", size_text(part.rule.first),
                               size_text(std::min(part.rule.last, widest->rule.last))),
                   "Give every size at most one algorithm.");
    }
    if (widest == nullptr || part.rule.last > widest->rule.last) widest = &part;
  }
}

bool fits(Algorithm algorithm, const CostModel& model) {
  return !uses_bridges(algorithm) || model.clusters.clusters.size() > 1;
}

CallShape with_segment(const CostModel& model, Algorithm algorithm, CallShape call) {
  if (call.segment.value() == 0) call.segment = best_segment(model, algorithm, call);
  return call;
}

Choice forced(const SelectionRule& rule, const std::optional<CostModel>& model,
              const CallShape& call) {
  Choice choice{rule.algorithm, call.segment, std::nullopt, "forced by rule", {}};
  if (model) {
    if (!fits(rule.algorithm, *model)) {
      throw UserError(fmt::format("{} cannot run", to_string(rule.algorithm)),
                      "it needs more than one cluster and there is one",
                      "Choose another algorithm, or give the ranks cluster labels.");
    }
    const CallShape shape = with_segment(*model, rule.algorithm, call);
    choice.segment = shape.segment;
    choice.predicted = predict_all_reduce(*model, rule.algorithm, shape);
  }
  if (choice.segment.value() == 0) choice.segment = default_segment;
  return choice;
}

Choice fastest(const CostModel& model, const CallShape& call) {
  Choice best;
  int candidates = 0;
  for (const Algorithm algorithm : all_algorithms()) {
    if (!fits(algorithm, model)) continue;
    ++candidates;
    const CallShape shape = with_segment(model, algorithm, call);
    const Seconds predicted = predict_all_reduce(model, algorithm, shape);
    if (best.predicted && predicted >= *best.predicted) continue;  // the first of equals
    best.algorithm = algorithm;
    best.segment = shape.segment;
    best.predicted = predicted;
  }
  best.reason = fmt::format("fastest of {} by the model", candidates);
  return best;
}

/// Makes the choice except for its wire format.
Choice choose(const std::vector<SelectionRule>& rules, const std::optional<CostModel>& model,
              const CallShape& call) {
  for (const SelectionRule& rule : rules) {
    if (rule.covers(call.bytes)) return forced(rule, model, call);
  }
  if (model) return fastest(*model, call);
  Choice choice;
  if (call.segment.value() > 0) choice.segment = call.segment;
  choice.reason = "no rule and no model: native";
  return choice;
}

}  // namespace

bool uses_bridges(Algorithm algorithm) {
  return algorithm == Algorithm::leader || algorithm == Algorithm::split_rail;
}

std::vector<SelectionRule> parse_selection(const std::string& text) {
  if (trimmed(text) == "auto") return {};
  ProblemList problems;
  std::vector<Part> parts;
  for (const std::string_view part : split(text, ';')) read_part(part, parts, problems);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.rule.first < b.rule.first; });
  find_overlaps(parts, problems);
  problems.throw_if_any();
  std::vector<SelectionRule> rules;
  for (const Part& part : parts) rules.push_back(part.rule);
  return rules;
}

Choice select_all_reduce(const std::vector<SelectionRule>& rules,
                         const std::optional<CostModel>& model, const CallShape& call) {
  Choice choice = choose(rules, model, call);
  if (uses_bridges(choice.algorithm)) choice.wire = call.wire;
  return choice;
}

const Choice& Selector::choose(const CallShape& call) {
  const std::uint64_t hash =
      random_bits(call.bytes.value(), call.segment.value(), static_cast<int>(call.wire));
  Kept& kept = kept_[hash % kept_.size()];
  if (!kept.choice || kept.call != call) {
    kept.choice = select_all_reduce(rules_, model_, call);
    kept.call = call;
  }
  return *kept.choice;
}

}  // namespace heteroperf
