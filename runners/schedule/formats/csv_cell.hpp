#pragma once

#include <string>
#include <string_view>

#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/ir/instruction.hpp"

namespace heteroperf {

/// "12SEND_F3" taken apart: stage 12, word SEND_F, micro-batch 3 (−1 where there is none).
struct CsvToken {
  int stage = -1, micro_batch = -1;
  std::string_view word;
};

/// Why a token or cell is none; empty: it is one.
using CsvComplaint = std::string;

/// Splits "0F3" into its three parts, whatever the word.
CsvComplaint split_token(std::string_view text, CsvToken& token);

/// The two tokens of "(0F7;7B3)OVERLAP_F_B"; false for other cells.
bool split_pair(std::string_view cell, std::string_view& first, std::string_view& second);

/// What a token's word stands for, with segment (the stage) and micro-batch set.
CsvComplaint to_instruction(const CsvToken& token, CsvSpelling spelling, Instruction& instruction);

/// The word of an operation; null where a table has none.
const char* csv_word(Op op, CsvSpelling spelling);

}  // namespace heteroperf
