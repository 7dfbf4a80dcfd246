#pragma once

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {

/// V4: every value that crosses ranks has one send and one receive, in one order at both ends of
/// its channel; groups are in one piece and of at most `most_group_messages`.
void check_messages(const ProgramIndex& index, Findings& findings);
constexpr int most_group_messages = 256;

/// V6: every member of a collective names it once, and all in one order.
void check_collectives(const ProgramIndex& index, Findings& findings);

/// V8: each rank reduces its weights after their last gradient and its tied weights after that, and
/// steps once, after everything.
void check_steps(const ProgramIndex& index, Findings& findings);

}  // namespace heteroperf
