// Canonical JSON: equal values become equal bytes, on every machine and in every file that this
// program stores. Hashes are taken of such texts and `verify` compares whole files, so a number has
// one form only. A real is the shortest decimal text that reads back as the same double, with a
// point or an exponent that tells it from an integer. An integer beyond 2^53, which readers with
// doubles would round, is a quoted string. Keys keep the order of the document.
#include "results/text/canonical_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/text/canonical_text_json.hpp"

namespace heteroperf {
namespace {

constexpr int indent_width = 2;
/// The indent of a document on one line, as the JSON library has it.
constexpr int compact = -1;

/// True for text that can stand between quotes as it is, as nearly all text can.
bool is_plain(std::string_view text) {
  return std::ranges::none_of(text, [](signed char c) {     // bytes beyond ASCII are negative: the
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;  // library checks them
  });
}

/// `exact` says that a double holds the value.
template <class Integer>
std::string integer_text(Integer value, bool exact) {
  const std::string digits = std::to_string(value);
  return exact ? digits : fmt::format("\"{}\"", digits);
}

/// Writes one value; `indent` < 0: on one line.
class Dumper {
 public:
  explicit Dumper(int indent) : indent_(indent) {}

  std::string text;

  /// Reals that are not finite have no form in JSON and become null.
  void value(const Json& json, int depth) {
    switch (json.type()) {
      case Json::value_t::object:
        return container(json, '{', '}', depth);
      case Json::value_t::array:
        return container(json, '[', ']', depth);
      case Json::value_t::string:
        text += json_quoted(json.get_ref<const std::string&>());
        return;
      case Json::value_t::number_integer:
        text += json_integer(json.get<std::int64_t>());
        return;
      case Json::value_t::number_unsigned:
        text += json_integer(json.get<std::uint64_t>());
        return;
      case Json::value_t::number_float:
        text += std::isfinite(json.get<double>()) ? json_number(json.get<double>()) : "null";
        return;
      default:
        text += json.dump();
        return;
    }
  }

 private:
  /// An empty container stays on one line.
  void container(const Json& json, char open, char close, int depth) {
    text += open;
    bool first = true;
    for (const auto& item : json.items()) {
      if (!first) text += ',';
      first = false;
      line_break(depth + 1);
      if (json.is_object()) text += json_quoted(item.key()) + (indent_ < 0 ? ":" : ": ");
      value(item.value(), depth + 1);
    }
    if (!first) line_break(depth);
    text += close;
  }

  /// A new line at the depth of what follows; nothing in a document on one line.
  void line_break(int depth) {
    if (indent_ < 0) return;
    text += '\n';
    text.append(static_cast<std::size_t>(depth * indent_), ' ');
  }

  int indent_;
};

std::string written(const Json& document, int indent) {
  Dumper dumper(indent);
  dumper.value(document, 0);
  return std::move(dumper.text);
}

/// Text is parsed before it is written, so that nothing malformed gets into a file.
std::string dump(std::string_view text, const std::string& what, int indent) {
  try {
    return written(Json::parse(text), indent);
  } catch (const Json::exception& error) {
    throw UserError(what + " is not valid JSON", plain_json_words(error.what()));
  }
}

}  // namespace

std::string json_number(double value) {
  HETEROPERF_EXPECT(std::isfinite(value));
  std::array<char, 40> buffer{};
  char* const end = buffer.data() + buffer.size();
  // Large whole numbers would read as integers that are not exact.
  const bool large = std::fabs(value) >= static_cast<double>(largest_exact_integer);
  const auto result = large
                          ? std::to_chars(buffer.data(), end, value, std::chars_format::scientific)
                          : std::to_chars(buffer.data(), end, value);
  std::string text(buffer.data(), result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string json_integer(std::int64_t value) {
  return integer_text(value, value <= largest_exact_integer && value >= -largest_exact_integer);
}

std::string json_integer(std::uint64_t value) {
  return integer_text(value, value <= static_cast<std::uint64_t>(largest_exact_integer));
}

/// Texts with characters to escape go to the library, which also replaces bytes that are not UTF-8.
std::string json_quoted(std::string_view text) {
  if (is_plain(text)) return fmt::format("\"{}\"", text);
  return nlohmann::json(text).dump(compact, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_compact(std::string_view text, const std::string& what) {
  return dump(text, what, compact);
}

std::string json_indented(std::string_view text, const std::string& what) {
  return dump(text, what, indent_width) + '\n';
}

std::string json_compact(const Json& document) { return written(document, compact); }

std::string json_indented(const Json& document) { return written(document, indent_width) + '\n'; }

}  // namespace heteroperf
