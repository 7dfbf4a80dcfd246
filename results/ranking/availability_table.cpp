// A record cannot know if other people can have the system that it was measured on, so a table
// beside the records says so: one line per run with one of three words. An unknown word or a run
// that stands there twice is refused with its line, as a list must not depend on which of two lines
// was read last.

#include <algorithm>
#include <iterator>

#include "metrics/base/name_table.hpp"
#include "results/ranking/ranking.hpp"
#include "results/ranking/table_rows.hpp"

namespace heteroperf {
namespace {

constexpr const char* availability_header = "run_id,availability";
constexpr Named<SystemAvailability> names[] = {{SystemAvailability::available, "available"},
                                               {SystemAvailability::preview, "preview"},
                                               {SystemAvailability::research, "research"}};

}  // namespace

SystemAvailability parse_availability(const std::string& name) {
  return parse_name(names, "availability", name);
}

const char* to_string(SystemAvailability availability) { return name_of(names, availability); }

AvailabilityTable read_availability_table(const std::filesystem::path& file) {
  AvailabilityTable table;
  const std::string form = std::string(availability_header) + ": available, preview or research";
  read_table_rows(
      file, "availability", availability_header, form, [&](const auto& cells, const TableRow& row) {
        const auto known = std::find_if(std::begin(names), std::end(names),
                                        [&](const auto& one) { return cells[1] == one.name; });
        if (known == std::end(names)) row.refuse("'" + cells[1] + "' is none");
        if (!table.emplace(cells[0], known->value).second) {
          row.refuse(cells[0] + " stands there twice");
        }
      });
  return table;
}

}  // namespace heteroperf
