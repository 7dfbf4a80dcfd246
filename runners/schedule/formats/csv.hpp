#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// PyTorch's pipeline tables have two spellings of the gradients.
enum class CsvSpelling {
  iwb,   ///< I input gradient, W weight gradient, B both
  bwbw,  ///< B input gradient, W weight gradient, BW both
};
constexpr std::array<const char*, 2> value_names(CsvSpelling) { return {"iwb", "bwbw"}; }

/// A table as PyTorch's pipelining writes it: a row per rank, a cell per action ("0F3", "1RECV_F2",
/// "0REDUCE_GRAD", "(0F7;7B3)OVERLAP_F_B"); an empty cell is idle.
struct CsvSchedule {
  Schedule schedule;
  CsvSpelling spelling = CsvSpelling::iwb;
};

/// Reads a table. Its stages are a chain; each lies on the rank whose row computes it; its costs
/// and its activation are 1/(stages on the rank) of the rank's. The level is lowered where the
/// table holds messages. Without `spelling`, a table is iwb where an `I` occurs, else bwbw where a
/// `BW` or a `W` occurs, else iwb. Without `costs`, they are 1, 1, 1 and no latency. Rows end in
/// "\n" or
/// "\r\n", the last one in either or nothing. Throws UserError with row, column and cell of
/// everything that is wrong (both from 1); check_schedule() has to say whether the order makes
/// sense.
CsvSchedule read_csv(std::string_view text, std::optional<CsvSpelling> spelling,
                     const std::optional<StageCosts>& costs);

/// Writes a table; every row ends with '\n'. It holds messages and REDUCE_GRAD of a lowered
/// schedule too; LOAD, LOSS, FREE and OPT_STEP, which PyTorch does by itself, are left out. Throws
/// UserError for schedules that a table cannot say (segments that are not one chain, parts,
/// interactions, recomputation).
std::string write_csv(const Schedule& schedule, CsvSpelling spelling = CsvSpelling::iwb);

}  // namespace heteroperf
