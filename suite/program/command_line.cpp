// Says in this program's words what the library that parses the command line says in its own: the
// pages of --help, and what is wrong with a command line.
//
// The library's own pages do not wrap descriptions under their column and show defaults that say
// nothing. A formatter replaces only the lines of single options and verbs, in two columns of at
// most 100 characters; headings and their order stay the library's. Its messages come as sentences,
// so they are matched by patterns and become what is wrong, why, and what to type instead; one that
// no pattern knows is told as it is.
#include "suite/program/command_line.hpp"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace heteroperf {
namespace {

constexpr std::size_t page_width = 100, text_column = 28;

/// The words of `text` in lines that fit the page; all but the first begin with `indent`, which the
/// caller has printed before the first.
std::string wrapped(const std::string& text, const std::string& indent) {
  std::string lines;
  std::size_t width = indent.size();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool starts_line = width == indent.size();
    if (!starts_line && width + 1 + word.size() > page_width) {
      lines += '\n' + indent;
      width = indent.size();
    } else if (!starts_line) {
      lines += ' ';
      ++width;
    }
    lines += word;
    width += word.size();
  }
  return lines;
}

/// The default that a reader wants to know: not that of an empty text, nor one that the description
/// tells already.
std::string default_of(const CLI::Option& option) {
  const std::string value = option.get_default_str();
  static const std::regex says_nothing(R"(|0|false|\[\]|\{\}|"")");
  if (std::regex_match(value, says_nothing)) return "";
  if (option.get_description().find("default") != std::string::npos) return "";
  return fmt::format(" (default {})", value);
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return help_entry("  " + make_option_name(option, is_positional) + make_option_opts(option),
                      make_option_desc(option) + default_of(*option));
  }

  /// A further long name is an alias from before, which still works but is not shown.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string names = CLI::Formatter::make_option_name(option, is_positional);
    return names.substr(0, names.find(',', names.find("--")));
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    // The library writes a range as "INT:INT in [1 - 8]".
    static const std::regex range(R"(\w+:\w+ in \[(\S+) - (\S+)\])");
    std::string text = std::regex_replace(get_label(option->get_type_name()), range, "$1..$2");
    if (!option->nonpositional()) text.clear();
    if (!text.empty()) text = " " + text;
    // An option that takes any number of values says so with dots.
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " REQUIRED";
    return text;
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), "") + "\n";
  }

  std::string make_subcommand(const CLI::App* verb) const override {
    return help_entry("  " + verb->get_name(), verb->get_description());
  }
};

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

std::string help_entry(const std::string& head, const std::string& text) {
  const std::string gap(head.size() + 2 > text_column ? 0 : text_column - head.size(), ' ');
  const std::string indent(text_column, ' ');
  return head + (gap.empty() ? "\n" + indent : gap) + wrapped(text, indent) + '\n';
}

void use_help_pages(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("TEXT", "NAME");
  for (const char* type : {"INT", "UINT", "FLOAT"}) formatter->label(type, "N");
  app.formatter(formatter);
}

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
