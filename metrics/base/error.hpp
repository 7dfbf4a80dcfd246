#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace heteroperf {

/// What went wrong, from the point of view of whoever started the program.
/// The suite maps each kind to one exit code.
enum class ErrorKind {
  internal,        ///< a bug
  usage,           ///< a wrong flag, key, value, file or combination
  environment,     ///< the machine lacks something; nothing was measured
  run_failed,      ///< a run started and broke
  timeout,         ///< a peer showed no progress within the deadline
  invalid_result,  ///< measured, but against the rules
  verification,    ///< a stored result does not match its recomputation
  not_comparable,  ///< two results with different keys
  interrupted,     ///< stopped by the user
};

/// Short stable name, as printed in `error.kind` ("usage", "run_failed", …).
const char* to_string(ErrorKind kind);

/// One thing that is wrong: *problem (why) suggestion*, with the values in the text.
struct Problem {
  std::string problem;
  std::string why;         ///< may be empty
  std::string suggestion;  ///< may be empty

  std::string text() const;
};

/// Base of everything this program throws on purpose. Carries at least one problem.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::vector<Problem> problems);

  ErrorKind kind() const { return kind_; }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  ErrorKind kind_;
  std::vector<Problem> problems_;
};

/// The user can mend it: flags, configuration, files, site.
class UserError : public Error {
 public:
  UserError(std::string problem, std::string why = {}, std::string suggestion = {});
  explicit UserError(std::vector<Problem> problems);
};

/// A library or the operating system refused; `why` holds its own words.
class SystemError : public Error {
 public:
  SystemError(std::string problem, std::string why = {}, std::string suggestion = {},
              ErrorKind kind = ErrorKind::run_failed);
};

/// What a run that breaks tells of an exception that this program did not throw on purpose: too
/// little memory, or the first line of a library's own words.
SystemError unexpected_failure(const std::exception& error);

/// Collects problems so that validation reports all of them at once.
class ProblemList {
 public:
  void add(std::string problem, std::string why = {}, std::string suggestion = {});
  bool empty() const { return problems_.empty(); }
  const std::vector<Problem>& problems() const { return problems_; }
  /// Throws UserError with every problem collected; returns when there is none.
  void throw_if_any() const;

 private:
  std::vector<Problem> problems_;
};

/// Runs `check`, and adds the problems of a UserError that it throws to `problems`.
template <class Check>
void collect_problems(ProblemList& problems, Check&& check) {
  try {
    check();
  } catch (const UserError& error) {
    for (const Problem& each : error.problems()) {
      problems.add(each.problem, each.why, each.suggestion);
    }
  }
}

/// The entry of `candidates` closest to `name` by edit distance; empty when none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);
/// The error "unknown `what` 'f61' (one of f16, f32). Did you mean 'f16'?"
UserError unknown_name(const std::string& what, const std::string& name,
                       const std::vector<std::string>& names);

namespace detail {
[[noreturn]] void fail_check(const char* condition, std::source_location where);
}  // namespace detail

}  // namespace heteroperf

/// Precondition of a function: a violation is a bug of the caller.
#define HETEROPERF_EXPECT(condition)  \
  ((condition) ? static_cast<void>(0) \
               : ::heteroperf::detail::fail_check(#condition, std::source_location::current()))
/// Postcondition or invariant: a violation is a bug of this function.
#define HETEROPERF_ENSURE(condition) HETEROPERF_EXPECT(condition)
