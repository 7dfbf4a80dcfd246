// The text is cut into pieces, each a comment, a literal or one character of code; so a mark inside
// another piece never counts. On the code that is left, functions are recognised by the text before
// an opening brace, here called its head: the words since the last ';', '{' or '}'.
#include "tests/architecture/source_lines.hpp"

#include <algorithm>
#include <cctype>
#include <regex>

namespace heteroperf::architecture {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool has_text(const std::string& line) { return !std::ranges::all_of(line, is_space); }

enum class PieceKind { code, comment, literal };

struct Piece {
  PieceKind kind = PieceKind::code;
  std::size_t end = 0;
};

std::size_t end_behind(std::string_view text, std::string_view mark, std::size_t from) {
  const std::size_t at = text.find(mark, from);
  return at == std::string_view::npos ? text.size() : at + mark.size();
}

/// The end of the string or character that opens at `at`; an unclosed one ends with its line.
std::size_t end_of_quoted(std::string_view text, std::size_t at) {
  const char quote = text[at];
  for (std::size_t next = at + 1; next < text.size(); ++next) {
    if (text[next] == '\n') return next;
    if (text[next] == quote) return next + 1;
    if (text[next] == '\\') ++next;
  }
  return text.size();
}

/// The quote at `at` stands inside a number such as 1'000.
bool separates_digits(std::string_view text, std::size_t at) {
  std::size_t first = at;
  while (first > 0 && (is_word(text[first - 1]) || text[first - 1] == '\'')) --first;
  return first < at && std::isdigit(static_cast<unsigned char>(text[first])) != 0;
}

Piece piece_at(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) {
    return {PieceKind::comment, std::min(text.find('\n', at), text.size())};
  }
  if (rest.starts_with("/*")) return {PieceKind::comment, end_behind(text, "*/", at + 2)};
  if (rest.starts_with("R\"")) {
    const std::string delimiter(rest.substr(2, std::min(rest.find('('), rest.size()) - 2));
    return {PieceKind::literal, end_behind(text, ")" + delimiter + "\"", at)};
  }
  const bool quoted = rest.front() == '"' || (rest.front() == '\'' && !separates_digits(text, at));
  if (quoted) return {PieceKind::literal, end_of_quoted(text, at)};
  return {PieceKind::code, at + 1};
}

/// The head without what stands in round, square and angle brackets, of which "()" is kept.
std::string outside_brackets(const std::string& head) {
  static const std::regex operator_name(R"(\boperator\s*[^\s\w(]+)");
  std::string kept;
  std::string open;
  for (const char c : std::regex_replace(head, operator_name, "operator_")) {
    const bool in_angles = open.empty() || open.back() == '<';
    const bool is_arrow = c == '>' && kept.ends_with('-');
    if (c == '(' || c == '[' || (c == '<' && in_angles)) {
      if (c == '(' && open.empty()) kept += "()";
      open += c;
    } else if (c == ')' || c == ']' || (c == '>' && in_angles && !open.empty())) {
      if (!open.empty()) open.pop_back();
    } else if (open.empty() && (c != '>' || is_arrow)) {
      kept += c;
    }
  }
  kept.erase(std::find_if_not(kept.rbegin(), kept.rend(), is_space).base(), kept.end());
  return kept;
}

enum class BraceKind { scope, function, value };

BraceKind kind_of_brace(const std::string& head) {
  static const std::regex scope(R"(\b(namespace|class|struct|union|enum)\b|^extern "+$)");
  static const std::regex function(
      R"((\)|\}|&|\.\.\.|\b(const|noexcept|override|final|mutable|try))$|->|\) *requires\b)");
  const std::string words = outside_brackets(head);
  if (std::regex_search(words, scope)) return BraceKind::scope;
  if (words.find("()") == std::string::npos || words.find('=') != std::string::npos) {
    return BraceKind::value;
  }
  return std::regex_search(words, function) ? BraceKind::function : BraceKind::value;
}

/// Takes the code of a file character by character and finds its functions.
class FunctionReader {
 public:
  void read(char c, int line) {
    if (inner_braces_ > 0) {
      read_inside(c, line);
    } else if (!(head_.empty() && is_space(c))) {
      read_head(c, line);
    }
  }

  std::vector<FunctionLines> functions;

 private:
  void read_head(char c, int line) {
    static const std::regex access("(public|private|protected) *");
    if (head_.empty()) first_line_ = line;
    if (c == '(' || c == '[') ++open_brackets_;
    if (c == ')' || c == ']') --open_brackets_;
    if (open_brackets_ > 0) {
      head_ += c;
    } else if (c == '{') {
      kind_ = kind_of_brace(head_);
      if (kind_ == BraceKind::scope) return head_.clear();
      inner_braces_ = 1;
    } else if (c == ';' || c == '}' || (c == ':' && std::regex_match(head_, access))) {
      head_.clear();
    } else {
      head_ += c;
    }
  }

  /// A value goes on behind its braces: a constructor's members may be followed by its body. A
  /// function that is a try block goes on with its handlers.
  void read_inside(char c, int line) {
    if (c == '{') ++inner_braces_;
    if (c != '}' || --inner_braces_ > 0) return;
    if (kind_ == BraceKind::value) {
      head_ += "{}";
    } else {
      const bool is_handler = head_.starts_with("catch") && !functions.empty();
      if (is_handler) functions.back().last = line;
      if (!is_handler) functions.push_back({first_line_, line});
      head_.clear();
    }
  }

  std::string head_;
  int first_line_ = 0, open_brackets_ = 0, inner_braces_ = 0;
  BraceKind kind_ = BraceKind::value;
};

}  // namespace

bool SourceLine::has_code() const { return has_text(code); }

bool SourceLine::has_comment() const { return has_text(comment); }

std::vector<SourceLine> read_source_lines(std::string_view text) {
  std::vector<SourceLine> lines(1);
  for (std::size_t at = 0; at < text.size();) {
    const auto [kind, end] = piece_at(text, at);
    for (; at < end; ++at) {
      if (text[at] == '\n') {
        lines.emplace_back();
      } else if (kind == PieceKind::comment) {
        lines.back().comment += text[at];
      } else {
        const bool hidden = kind == PieceKind::literal && !is_space(text[at]);
        lines.back().code += hidden ? '"' : text[at];
      }
    }
  }
  if (text.empty() || text.ends_with('\n')) lines.pop_back();
  return lines;
}

std::vector<FunctionLines> read_functions(const std::vector<SourceLine>& lines) {
  FunctionReader reader;
  bool in_directive = false;
  int number = 0;
  for (const SourceLine& line : lines) {
    ++number;
    const std::size_t first = line.code.find_first_not_of(" \t");
    in_directive = in_directive || (first != std::string::npos && line.code[first] == '#');
    if (!in_directive) {
      for (const char c : line.code) reader.read(c, number);
      reader.read(' ', number);
    }
    in_directive = in_directive && line.code.ends_with('\\');
  }
  return reader.functions;
}

}  // namespace heteroperf::architecture
