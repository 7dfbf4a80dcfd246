#include "runners/plan/vtrain/vtrain_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t VtrainRow::*columns[] = {
    &VtrainRow::devices, &VtrainRow::global_batch, &VtrainRow::micro_batch, &VtrainRow::hidden,
    &VtrainRow::heads,   &VtrainRow::layers,       &VtrainRow::sequence,    &VtrainRow::tensor,
    &VtrainRow::data,    &VtrainRow::pipeline};
constexpr std::size_t column_count = std::size(columns);
constexpr double most_value = 1e9;
constexpr double milliseconds = 1e-3;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) {
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.pop_back();
    cells.push_back(cell);
  }
  return cells;
}

std::optional<double> positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  if (!(value > 0) || value > most_value) return std::nullopt;
  return value;
}

class RowReader {
 public:
  explicit RowReader(std::string name) : name_(std::move(name)) {}

  std::vector<VtrainRow> read(std::istream& in) {
    std::string line;
    std::getline(in, line);
    headings_ = cells_of(line);
    if (headings_.size() != column_count + 1 && headings_.size() != column_count + 2) {
      throw UserError(
          fmt::format("{} has {} columns", name_, headings_.size()),
          fmt::format("vTrain's tables have {} or {}", column_count + 1, column_count + 2));
    }
    while (problems_.problems().size() < 20 && std::getline(in, line)) {
      ++line_;
      if (!line.empty()) read_row(cells_of(line));
    }
    if (rows_.empty()) problems_.add(name_ + " has no rows");
    problems_.throw_if_any();
    return std::move(rows_);
  }

 private:
  void read_row(const std::vector<std::string>& cells) {
    if (cells.size() != headings_.size()) {
      problems_.add(fmt::format("{}: line {} has {} cells", name_, line_, cells.size()),
                    fmt::format("the first line has {}", headings_.size()));
      return;
    }
    const std::size_t first = headings_.size() - column_count - 1;
    VtrainRow row;
    bool sound = true;
    for (std::size_t c = first; c < cells.size(); ++c) {
      const auto value = positive(cells[c]);
      const bool count = c + 1 < cells.size();
      if (!value || (count && *value != std::floor(*value))) {
        problems_.add(
            fmt::format("{}: line {}: \"{}\" is {}", name_, line_, headings_[c], cells[c]),
            count ? "must be a positive whole number" : "must be positive milliseconds");
        sound = false;
      } else if (count) {
        row.*columns[c - first] = static_cast<std::int64_t>(*value);
      } else {
        row.step_s = *value * milliseconds;
      }
    }
    if (sound) check(row);
    rows_.push_back(row);
  }

  void check(const VtrainRow& row) {
    const auto wrong = [&](const std::string& what, const std::string& why) {
      problems_.add(fmt::format("{}: line {}: {}", name_, line_, what), why);
    };
    // As reals: whole numbers of hostile columns overflow, and the product is exact where it fits.
    const double product = static_cast<double>(row.tensor) * static_cast<double>(row.data) *
                           static_cast<double>(row.pipeline);
    if (product != static_cast<double>(row.devices)) {
      wrong(fmt::format("{} devices", row.devices),
            fmt::format("degrees {} x {} x {}", row.tensor, row.data, row.pipeline));
    }
    if (row.global_batch % (row.micro_batch * row.data) != 0) {
      wrong(fmt::format("a batch of {}", row.global_batch),
            fmt::format("micro-batches of {} on {} replicas", row.micro_batch, row.data));
    }
    if (row.layers % row.pipeline != 0) {
      wrong(fmt::format("{} layers", row.layers), fmt::format("{} stages", row.pipeline));
    }
  }

  std::string name_;
  std::vector<std::string> headings_;
  int line_ = 1;
  std::vector<VtrainRow> rows_;
  ProblemList problems_;
};

}  // namespace

std::vector<VtrainRow> read_vtrain_rows(const std::filesystem::path& file) {
  std::istringstream in(read_text_file(file));
  return RowReader(file.string()).read(in);
}

std::vector<OddRow> odd_rows(const std::vector<VtrainRow>& rows, double excess) {
  std::map<std::vector<std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::int64_t> key;
    for (const auto column : columns) {
      if (column != &VtrainRow::micro_batch) key.push_back(rows[i].*column);
    }
    alike[key].push_back(i);
  }
  std::vector<OddRow> odd;
  for (auto& [key, group] : alike) {
    std::stable_sort(group.begin(), group.end(), [&](std::size_t a, std::size_t b) {
      return rows[a].micro_batch < rows[b].micro_batch;
    });
    for (std::size_t g = 0; g < group.size(); ++g) {
      const VtrainRow& own = rows[group[g]];
      const VtrainRow* before = g > 0 ? &rows[group[g - 1]] : nullptr;
      const VtrainRow* after = g + 1 < group.size() ? &rows[group[g + 1]] : nullptr;
      const auto exceeds = [&](const VtrainRow* other, double by) {
        return other != nullptr && own.step_s > (1 + by) * other->step_s;
      };
      const bool peak = exceeds(before, excess) && exceeds(after, excess);
      // The last of a row of sizes has no next one; twice the time for larger pieces is no trend.
      const bool last = after == nullptr && exceeds(before, 0.9) && own.pipeline == 1;
      const bool twice = before != nullptr && before->micro_batch == own.micro_batch &&
                         (exceeds(before, excess) || before->step_s > (1 + excess) * own.step_s);
      if (!peak && !last && !twice) continue;
      odd.push_back(
          {group[g], twice ? fmt::format("{:.1f} ms and {:.1f} ms for one configuration",
                                         before->step_s * 1e3, own.step_s * 1e3)
                           : fmt::format("{:.1f} ms with micro-batches of {}, {:.1f} ms with {}",
                                         own.step_s * 1e3, own.micro_batch, before->step_s * 1e3,
                                         before->micro_batch)});
    }
  }
  std::sort(odd.begin(), odd.end(),
            [](const OddRow& a, const OddRow& b) { return a.index < b.index; });
  return odd;
}

}  // namespace heteroperf
