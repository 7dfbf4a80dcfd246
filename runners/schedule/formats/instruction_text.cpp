#include "runners/schedule/formats/instruction_text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace heteroperf {
namespace {

constexpr bool is_decimal(char c) { return c >= '0' && c <= '9'; }

void append_field(std::string& text, const char* mark, std::int32_t value) {
  if (value < 0) return;
  text += mark;
  fmt::format_to(std::back_inserter(text), FMT_STRING("{}"), value);
}

/// Reads a text from its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  bool at_number() const { return !text_.empty() && is_decimal(text_.front()); }

  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool take_space_before_number() {
    if (text_.size() < 2 || text_[0] != ' ' || !is_decimal(text_[1])) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool take_number(std::int32_t& value) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{}) return false;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return true;
  }

  /// After `mark`; nothing at all where the mark is not there.
  bool take_marked(char mark, std::int32_t& value) {
    if (!take(mark)) return true;
    return at_number() && take_number(value);
  }

  bool take_op(Op& op) {
    std::size_t length = 0;
    while (length < text_.size() &&
           ((text_[length] >= 'A' && text_[length] <= 'Z') || text_[length] == '_')) {
      ++length;
    }
    const std::string_view name = text_.substr(0, length);
    for (int i = 1; i < op_count; ++i) {
      if (name != to_string(static_cast<Op>(i))) continue;
      op = static_cast<Op>(i);
      text_.remove_prefix(length);
      return true;
    }
    if (!text_.starts_with("idle")) return false;
    text_.remove_prefix(4);
    op = Op::idle;
    return true;
  }

 private:
  std::string_view text_;
};

bool take_extra(Scanner& scanner, Instruction& i) {
  if (scanner.take('+')) {
    i.fused_with_next = true;
    return scanner.at_end();
  }
  constexpr struct {
    char mark;
    std::int32_t Instruction::*field;
  } fields[] = {{'e', &Instruction::edge},
                {'p', &Instruction::peer},
                {'g', &Instruction::group},
                {'b', &Instruction::buffer},
                {'s', &Instruction::sequence}};
  for (const auto& [mark, field] : fields) {
    if (!scanner.take(mark)) continue;
    return scanner.at_number() && i.*field == -1 && scanner.take_number(i.*field);
  }
  return false;
}

}  // namespace

void append_instruction(std::string& text, const Instruction& i) {
  text += i.op == Op::idle ? "idle" : to_string(i.op);
  append_field(text, " ", i.segment);
  append_field(text, ".", i.micro_batch);
  if (i.part > 0) append_field(text, "/", i.part);
  const bool message = is_send(i.op) || is_receive(i.op);
  if (message) append_field(text, is_send(i.op) ? ">" : "<", i.peer);
  append_field(text, " e", i.edge);
  if (!message) append_field(text, " p", i.peer);
  append_field(text, " g", i.group);
  append_field(text, " b", i.buffer);
  append_field(text, " s", i.sequence);
  if (i.fused_with_next) text += " +";
}

bool parse_instruction(std::string_view text, Instruction& i) {
  i = {};
  Scanner scanner(text);
  if (!scanner.take_op(i.op)) return false;
  if (scanner.take_space_before_number() && !scanner.take_number(i.segment)) return false;
  std::int32_t part = 0;
  if (!scanner.take_marked('.', i.micro_batch) || !scanner.take_marked('/', part)) return false;
  if (part < 0 || part > UINT16_MAX) return false;
  i.part = static_cast<std::uint16_t>(part);
  if (is_send(i.op) && !scanner.take_marked('>', i.peer)) return false;
  if (is_receive(i.op) && !scanner.take_marked('<', i.peer)) return false;
  while (!scanner.at_end()) {
    if (!scanner.take(' ') || !take_extra(scanner, i)) return false;
  }
  return true;
}

}  // namespace heteroperf
