// Turns the messages of the library that parses the command line into problems of this program:
// what is wrong, why, and what to type instead. The library gives its sentences as text only, so
// they are matched by patterns; one that no pattern knows is told as it is.
#include "suite/program/parse_problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace heteroperf {
namespace {

/// The last resort of a suggestion: the page that lists what there is.
std::string help_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return fmt::format("See `{}{} --help`.", parent == nullptr ? "" : parent->get_name() + " ",
                     command.get_name());
}

std::vector<std::string> long_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

/// The parser lists the words that are too many from last to first, values among them.
std::vector<Problem> unexpected(const std::string& list, const CLI::App& command) {
  std::istringstream words(list);
  std::vector<std::string> options;
  std::string first;
  for (std::string word; words >> word;) {
    first = word;
    if (word[0] == '-') options.insert(options.begin(), word);
  }
  if (options.empty()) {
    return {{"'" + first + "' is one argument too many", "", help_of(command)}};
  }
  std::vector<Problem> problems;
  for (const std::string& option : options) problems.push_back(unknown_option(option, command));
  return problems;
}

/// A sentence of the parser and what this program says instead; `$1` … are its parts.
struct Wording {
  const char* pattern;
  const char *problem, *why;
};
constexpr Wording wordings[] = {
    {"(\\S+): Value (.*) not in range (\\S+) to (\\S+)", "$1 $2 is out of range",
     "a whole number from $3 to $4"},
    {"Could not convert: (\\S+) = (.*)", "$1 $2 is not usable", "not a value of this option"},
    {"(\\S+): 1 required (.*) missing", "$1 has no value", "expected $2"},
    {"(\\S+): At Most 1 required but received (\\d+)", "$1 is given $2 times",
     "one value is taken"},
    {"A subcommand is required", "no verb is given", ""},
    {"(\\S+) is required", "the argument '$1' is missing", ""},
};

/// Finds an option for a single letter: the same letter in the other case, or a long option that
/// begins with it. Empty where there is none.
std::string option_of_letter(char letter, const CLI::App& command) {
  const auto same = [&](char c) { return std::tolower(c) == std::tolower(letter); };
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_snames()) {
      if (same(name.front())) return "-" + name;
    }
  }
  for (const std::string& name : long_options(command)) {
    if (same(name.front())) return "--" + name;
  }
  return {};
}

}  // namespace

Problem unknown_option(const std::string& word, const CLI::App& command) {
  const std::string bare = word.substr(0, word.find('='));
  const std::string name = bare.substr(std::min(bare.find_first_not_of('-'), bare.size()));
  std::string meant = nearest_name(name, long_options(command));
  if (!meant.empty()) meant.insert(0, "--");
  if (name.size() == 1) meant = option_of_letter(name.front(), command);
  return {"there is no option " + word, "",
          meant.empty() ? help_of(command) : "Did you mean " + meant + "?"};
}

std::vector<Problem> parse_problems(const CLI::ParseError& error, const CLI::App& command) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return unexpected(text.substr(text.find(": ") + 1), command);
  }
  for (const Wording& wording : wordings) {
    std::smatch match;
    if (!std::regex_match(text, match, std::regex(wording.pattern))) continue;
    return {{match.format(wording.problem), match.format(wording.why), help_of(command)}};
  }
  return {{text, "", help_of(command)}};
}

}  // namespace heteroperf
