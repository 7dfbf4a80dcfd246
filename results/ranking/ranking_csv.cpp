// This file writes a ranking as CSV: one row per entry, then one per published score of AIPerf,
// then one per excluded record. All kinds of rows share the columns of the ranking, so the file
// stays one table, and the column `state` says which kind a row is. A row fills its cells by the
// names of columns, so a new column leaves the other kinds of rows as they are.

#include <fmt/format.h>

#include <map>

#include "results/ranking/ranking_columns.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Cells = std::map<std::string, std::string>;  ///< by the names of columns

/// Columns without a cell stay empty.
std::string row_of(const Cells& cells) {
  std::string row;
  for (const RankColumn& column : rank_columns()) {
    if (&column != rank_columns().data()) row += ',';
    const auto cell = cells.find(column.name);
    if (cell != cells.end()) row += csv_cell(cell->second);
  }
  return row + '\n';
}

Cells cells_of(const RankList& list, const RankEntry& entry) {
  Cells cells;
  for (const RankColumn& column : rank_columns()) cells[column.name] = column.value(list, entry);
  return cells;
}

Cells cells_of(const PublishedScore& one) {
  Cells cells{{"name", one.source},
              {"ops_per_second", json_number(one.ops_per_second)},
              {"convention", "aiperf"},
              {"state", "published"},
              {"remark", one.remark}};
  if (one.regulated) cells["regulated_score"] = json_number(*one.regulated);
  return cells;
}

Cells cells_of(const ExcludedRecord& one) {
  return {{"workload", one.workload},
          {"name", one.record},
          {"run_id", one.run_id},
          {"state", "excluded"},
          {"remark", fmt::format("{}", fmt::join(one.reasons, "; "))}};
}

}  // namespace

std::string ranking_csv_text(const RankingReport& ranking) {
  Cells names;
  for (const RankColumn& column : rank_columns()) names[column.name] = column.name;
  std::string text = row_of(names);
  for (const RankList& list : ranking.lists) {
    for (const RankEntry& entry : list.entries) text += row_of(cells_of(list, entry));
  }
  for (const PublishedScore& one : ranking.published) text += row_of(cells_of(one));
  for (const ExcludedRecord& one : ranking.excluded) text += row_of(cells_of(one));
  return text;
}

}  // namespace heteroperf
