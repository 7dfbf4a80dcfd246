// Lays out --help in two columns, at most 100 characters wide. The library's own pages do not wrap
// descriptions under their column and show defaults that say nothing. A formatter replaces only the
// lines of single options and verbs; headings and their order stay the library's.
#include "suite/program/help_page.hpp"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

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

}  // namespace heteroperf
