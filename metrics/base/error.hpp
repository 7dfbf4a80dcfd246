#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace heteroperf {

/// The kinds of failure from the point of view of the person who started the program. The suite
/// maps each kind to one exit code.
enum class ErrorKind {
  internal,        ///< a bug of this program
  usage,           ///< a wrong flag, key, value, file or combination of them
  environment,     ///< the machine lacks something; nothing was measured
  run_failed,      ///< a run started and broke
  timeout,         ///< a peer showed no progress within the deadline
  invalid_result,  ///< the run was measured, but against the rules
  verification,    ///< a stored result does not match its recomputation
  not_comparable,  ///< the two results have different keys
  interrupted,     ///< the user stopped the run
};

/// Returns the short stable name that `error.kind` prints ("usage", "run_failed", …).
const char* to_string(ErrorKind kind);

/// One problem in the form *problem (why) suggestion*, with the values in its text.
struct Problem {
  std::string problem;
  std::string why;         ///< may be empty
  std::string suggestion;  ///< may be empty

  std::string text() const;
};

/// The base of everything that this program throws on purpose. It carries at least one problem.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::vector<Problem> problems);

  ErrorKind kind() const { return kind_; }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  ErrorKind kind_;
  std::vector<Problem> problems_;
};

/// An error that the user can mend: a flag, a configuration, a file, a site's set-up.
class UserError : public Error {
 public:
  UserError(std::string problem, std::string why = {}, std::string suggestion = {});
  explicit UserError(std::vector<Problem> problems);
};

/// A refusal of a library or of the operating system; `why` holds its own words.
class SystemError : public Error {
 public:
  SystemError(std::string problem, std::string why = {}, std::string suggestion = {},
              ErrorKind kind = ErrorKind::run_failed);
};

/// Turns an exception that this program did not throw on purpose into the message of a broken run:
/// it speaks of too little memory, or repeats the first line of a library's own words.
SystemError unexpected_failure(const std::exception& error);

/// Collects problems, so that a validation reports all of them at once.
class ProblemList {
 public:
  void add(std::string problem, std::string why = {}, std::string suggestion = {});
  bool empty() const { return problems_.empty(); }
  const std::vector<Problem>& problems() const { return problems_; }
  /// Throws a UserError with every collected problem; returns when there is none.
  void throw_if_any() const;

 private:
  std::vector<Problem> problems_;
};

/// Runs `check` and moves the problems of a UserError that it throws to `problems`.
template <class Check>
void collect_problems(ProblemList& problems, Check&& check) {
  try {
    check();
  } catch (const UserError& error) {
    for (const Problem& problem : error.problems()) {
      problems.add(problem.problem, problem.why, problem.suggestion);
    }
  }
}

/// Returns the entry of `candidates` that is closest to `name` by edit distance; empty when none is
/// near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);
/// Returns "Did you mean 'NAME'?" with the nearest candidate, or `otherwise` when none is near.
std::string suggest_name(const std::string& name, const std::vector<std::string>& candidates,
                         const std::string& otherwise = {});
/// Makes the error "unknown `what` 'f61' (one of f16, f32). Did you mean 'f16'?".
UserError unknown_name(const std::string& what, const std::string& name,
                       const std::vector<std::string>& names);

namespace detail {
[[noreturn]] void fail_check(const char* condition, std::source_location where);
}  // namespace detail

}  // namespace heteroperf

/// Checks a precondition: a violation is a bug of the function's caller.
#define HETEROPERF_EXPECT(condition)  \
  ((condition) ? static_cast<void>(0) \
               : ::heteroperf::detail::fail_check(#condition, std::source_location::current()))
/// Checks a postcondition or an invariant: a violation is a bug of the function itself.
#define HETEROPERF_ENSURE(condition) HETEROPERF_EXPECT(condition)
