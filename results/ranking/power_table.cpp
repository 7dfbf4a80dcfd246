// Reads the power that a meter outside of the program measured during runs: the mean in watts and
// the level of the measurement, of which a higher one covers more of the system and of the run. The
// program has no meter of its own, so OPS per watt exist for runs in this table alone.

#include <cmath>

#include "results/ranking/ranking.hpp"
#include "results/ranking/table_rows.hpp"

namespace heteroperf {
namespace {

constexpr const char* power_header = "run_id,watts,level";

/// The number that makes up all of the text; NaN where the text is no number. The caller refuses a
/// NaN as it refuses any value that is not above 0.
double whole_number_of(const std::string& text) {
  try {
    std::size_t used = 0;
    const double value = std::stod(text, &used);
    return used == text.size() ? value : std::nan("");
  } catch (const std::exception&) {
    return std::nan("");
  }
}

}  // namespace

PowerTable read_power_table(const std::filesystem::path& file) {
  PowerTable table;
  const std::string form = std::string(power_header) + ", the level 1, 2 or 3";
  read_table_rows(file, "measured power", power_header, form,
                  [&](const auto& cells, const TableRow& row) {
                    const std::string &run_id = cells[0], &level = cells[2];
                    const double watts = whole_number_of(cells[1]);
                    if (!std::isfinite(watts) || watts <= 0) row.refuse("watts are above 0");
                    if (level != "1" && level != "2" && level != "3")
                      row.refuse("'" + level + "' is no level");
                    const MeasuredPower power{watts, static_cast<PowerLevel>(level[0] - '0')};
                    if (!table.emplace(run_id, power).second)
                      row.refuse(run_id + " stands there twice");
                  });
  return table;
}

}  // namespace heteroperf
