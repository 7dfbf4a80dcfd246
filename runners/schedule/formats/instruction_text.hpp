#pragma once

#include <string>
#include <string_view>

#include "runners/schedule/ir/instruction.hpp"

namespace heteroperf {

/// An instruction with all of its fields on one line, as schedule files hold it: what to_text()
/// says, then, where they are set, "eN" (edge), "pN" (peer, where to_text() does not say it), "gN"
/// (group), "bN" (buffer), "sN" (sequence), and "+" where it is fused with the next:
/// "F 3.7 +", "SEND_ACT 3.7>1 e3 g0 b2 s5".
void append_instruction(std::string& text, const Instruction& instruction);

/// False where `text` is none. Whether its numbers are in range is the caller's to check.
bool parse_instruction(std::string_view text, Instruction& instruction);

}  // namespace heteroperf
