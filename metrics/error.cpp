#include "metrics/error.hpp"

#include <algorithm>
#include <numeric>

namespace heteroperf {
namespace {

std::string join(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return "internal";
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::environment:
      return "environment";
    case ErrorKind::run_failed:
      return "run_failed";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::invalid_result:
      return "invalid_result";
    case ErrorKind::verification:
      return "verification";
    case ErrorKind::not_comparable:
      return "not_comparable";
    case ErrorKind::interrupted:
      return "interrupted";
  }
  return "internal";
}

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

void ProblemList::add(std::string problem, std::string why, std::string suggestion) {
  // Told once, however often it is found.
  Problem added{std::move(problem), std::move(why), std::move(suggestion)};
  const auto same = [&](const Problem& other) { return other.text() == added.text(); };
  if (std::none_of(problems_.begin(), problems_.end(), same)) problems_.push_back(std::move(added));
}

void ProblemList::throw_if_any() const {
  if (!problems_.empty()) throw UserError(problems_);
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    // With no letter in its place there is no likeness, however short both are.
    if (distance < best_distance && distance < std::max(name.size(), candidate.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
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
