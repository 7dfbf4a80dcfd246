// The words of PyTorch's pipeline tables. Its two spellings give B a different meaning, so that a
// word can only be understood together with the spelling of its table.

#include "runners/schedule/formats/csv_cell.hpp"

#include <charconv>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {
namespace {

/// An operation's words in both spellings.
struct Word {
  Op op;
  const char* iwb;
  const char* bwbw;
};

constexpr Word words[] = {
    {Op::forward, "F", "F"},
    {Op::input_gradient, "I", "B"},
    {Op::weight_gradient, "W", "W"},
    {Op::backward, "B", "BW"},
    {Op::send_act, "SEND_F", "SEND_F"},
    {Op::recv_act, "RECV_F", "RECV_F"},
    {Op::send_grad, "SEND_B", "SEND_B"},
    {Op::recv_grad, "RECV_B", "RECV_B"},
    {Op::reduce_grad, "REDUCE_GRAD", "REDUCE_GRAD"},
};

constexpr std::string_view overlap = ")OVERLAP_F_B";

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes a number off the front of `text`; it is none where no number stands there.
template <class I>
CsvComplaint take_number(std::string_view& text, I& number) {
  number = I::none();
  if (text.empty() || !is_digit(text.front())) return {};
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value >= most_tasks) return "a number beyond every size allowed";
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  number = I(value);
  return {};
}

/// Explains the words that PyTorch has and a schedule here does not.
CsvComplaint unknown_word(const CsvToken& token, CsvSpelling spelling) {
  const std::string word(token.word);
  if (word == "UNSHARD" || word == "RESHARD") {
    return word +
           " gathers and drops the parameters of sharded data parallelism (FSDP), which is no part "
           "of a pipeline schedule here: export the table without it";
  }
  if (word == "I" || word == "BW") {
    return word + " belongs to the other spelling of gradients: a table has I, W, B or B, W, BW";
  }
  std::string known;
  for (const Word& entry : words) {
    known += (known.empty() ? "" : " ");
    known += spelling == CsvSpelling::iwb ? entry.iwb : entry.bwbw;
  }
  return "not an action; known are " + known;
}

}  // namespace

CsvComplaint split_token(std::string_view text, CsvToken& token) {
  CsvComplaint complaint = take_number(text, token.stage);
  if (!complaint.empty()) return complaint;
  if (token.stage < 0) return "an action begins with the number of its stage";
  std::size_t length = 0;
  while (length < text.size() &&
         ((text[length] >= 'A' && text[length] <= 'Z') || text[length] == '_')) {
    ++length;
  }
  token.word = text.substr(0, length);
  text.remove_prefix(length);
  if (length == 0) return "an action is stage, word, micro-batch, as in 0F3";
  complaint = take_number(text, token.micro_batch);
  if (complaint.empty() && !text.empty()) return "an action is stage, word, micro-batch, as in 0F3";
  return complaint;
}

bool split_pair(std::string_view cell, std::string_view& first, std::string_view& second) {
  if (cell.size() <= overlap.size() || cell.front() != '(' || !cell.ends_with(overlap)) {
    return false;
  }
  const std::string_view inside = cell.substr(1, cell.size() - 1 - overlap.size());
  const std::size_t middle = inside.find(';');
  if (middle == std::string_view::npos) return false;
  first = inside.substr(0, middle);
  second = inside.substr(middle + 1);
  return true;
}

CsvComplaint to_instruction(const CsvToken& token, CsvSpelling spelling, Instruction& instruction) {
  const Word* word = nullptr;
  for (const Word& entry : words) {
    if (token.word == (spelling == CsvSpelling::iwb ? entry.iwb : entry.bwbw)) word = &entry;
  }
  if (word == nullptr) return unknown_word(token, spelling);
  const bool per_micro_batch = word->op != Op::reduce_grad;
  if (per_micro_batch && token.micro_batch < 0) return "the number of the micro-batch is missing";
  if (!per_micro_batch && token.micro_batch >= 0) {
    return "REDUCE_GRAD is once per stage and takes no micro-batch";
  }
  instruction = compute(word->op, token.stage, token.micro_batch);
  return {};
}

const char* csv_word(Op op, CsvSpelling spelling) {
  for (const Word& entry : words) {
    if (entry.op == op) return spelling == CsvSpelling::iwb ? entry.iwb : entry.bwbw;
  }
  return nullptr;
}

}  // namespace heteroperf
