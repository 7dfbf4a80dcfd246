#pragma once

#include <string>
#include <string_view>

#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// An action of a table taken apart: "12SEND_F3" has stage 12, word SEND_F and micro-batch 3 (none
/// where it has no number). A stage is a segment of the chain.
struct CsvToken {
  SegmentId stage = -1;
  MicroBatchId micro_batch = -1;
  std::string_view word;
};

/// The reason why a token or cell is wrong; empty where it is right.
using CsvComplaint = std::string;

/// Splits "0F3" into its three parts, whatever the word.
CsvComplaint split_token(std::string_view text, CsvToken& token);

/// Takes out the two tokens of "(0F7;7B3)OVERLAP_F_B"; false for other cells.
bool split_pair(std::string_view cell, std::string_view& first, std::string_view& second);

/// Makes the instruction of a token, with segment (the stage) and micro-batch set.
CsvComplaint to_instruction(const CsvToken& token, CsvSpelling spelling, Instruction& instruction);

/// The word of an operation; null where a table has none.
const char* csv_word(Op op, CsvSpelling spelling);

}  // namespace heteroperf
