#include "metrics/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <utility>

namespace heteroperf {
namespace {

// In the order of the enum.
constexpr std::array kind_names{"internal",     "usage",          "environment",
                                "run_failed",   "timeout",        "invalid_result",
                                "verification", "not_comparable", "interrupted"};

std::string join(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

/// Counts the letters to replace, to insert, to leave out, or to exchange with their neighbours
/// (the optimal string alignment distance).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({row[j] + 1, last[j + 1] + 1, last[j] + (a[i] == b[j] ? 0 : 1)});
      const bool exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (exchanged) row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last.back();
}

/// Numbers alone make no likeness: "f8" is no slip of "u8".
bool share_letters(std::string a, std::string b) {
  for (std::string* const text : {&a, &b}) {
    std::erase_if(*text, [](char c) { return c >= '0' && c <= '9'; });
  }
  return edit_distance(a, b) < std::max(a.size(), b.size());
}

}  // namespace

const char* to_string(ErrorKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::string Problem::text() const {
  std::string text = problem;
  if (!why.empty()) text += " (" + why + ")";
  if (!suggestion.empty()) text += ". " + suggestion;
  return text;
}

Error::Error(ErrorKind kind, std::vector<Problem> problems)
    : std::runtime_error(join(problems)), kind_(kind), problems_(std::move(problems)) {}

UserError::UserError(std::string problem, std::string why, std::string suggestion)
    : Error(ErrorKind::usage, {{std::move(problem), std::move(why), std::move(suggestion)}}) {}

UserError::UserError(std::vector<Problem> problems)
    : Error(ErrorKind::usage, std::move(problems)) {}

SystemError::SystemError(std::string problem, std::string why, std::string suggestion,
                         ErrorKind kind)
    : Error(kind, {{std::move(problem), std::move(why), std::move(suggestion)}}) {}

SystemError unexpected_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return SystemError("there was not enough memory", "the system refused more of it",
                       "Use a smaller --micro-batch or --size, or fewer --ranks on a host.");
  }
  const std::string words = error.what();
  return SystemError("unexpected failure", words.substr(0, words.find('\n')));
}

void ProblemList::add(std::string problem, std::string why, std::string suggestion) {
  // A problem that several checks notice is told once.
  Problem added{std::move(problem), std::move(why), std::move(suggestion)};
  const auto same = [&](const Problem& known) { return known.text() == added.text(); };
  if (std::none_of(problems_.begin(), problems_.end(), same)) problems_.push_back(std::move(added));
}

void ProblemList::throw_if_any() const {
  if (!problems_.empty()) throw UserError(problems_);
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters may be wrong: more than that is another name and no slip of the finger.
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && share_letters(name, candidate)) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest_name(const std::string& name, const std::vector<std::string>& candidates,
                         const std::string& otherwise) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? otherwise : fmt::format("Did you mean '{}'?", nearest);
}
UserError unknown_name(const std::string& what, const std::string& name,
                       const std::vector<std::string>& names) {
  return {fmt::format("unknown {} '{}'", what, name),
          fmt::format("one of {}", fmt::join(names, ", ")), suggest_name(name, names)};
}

namespace detail {

void fail_check(const char* condition, std::source_location where) {
  throw Error(ErrorKind::internal,
              {{std::string("internal check failed: ") + condition,
                std::string(where.file_name()) + ":" + std::to_string(where.line()) + " in " +
                    where.function_name(),
                "Please report this with the command that caused it."}});
}

}  // namespace detail
}  // namespace heteroperf
