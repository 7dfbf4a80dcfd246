#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heteroperf::architecture {

/// One line of a C++ file, taken apart. A blank line has neither code nor comment.
struct SourceLine {
  std::string code;     ///< the line without its comments; a literal's characters stand as '"'
  std::string comment;  ///< the line's comments with their slashes and stars

  bool has_code() const;
  bool has_comment() const;
};

/// The lines of a file. Comment marks inside strings, raw strings and characters are text, and
/// strings inside comments are comment.
std::vector<SourceLine> read_source_lines(std::string_view text);

/// The first and the last line of a function, counted from 1: from the first word of its
/// declaration to its closing brace.
struct FunctionLines {
  int first = 0, last = 0;
};

/// The functions that have a body, in the order of the file. They are recognised by braces: the
/// braces of a namespace, class, struct, union or enum are a scope that is looked into, those
/// behind a value are passed over, and all others enclose a function. Lambdas and types inside a
/// function are lines of that function; lambdas inside a value are lines of no function.
/// Preprocessor lines are passed over.
std::vector<FunctionLines> read_functions(const std::vector<SourceLine>& lines);

}  // namespace heteroperf::architecture
