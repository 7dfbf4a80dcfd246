#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "results/journal/journal.hpp"

namespace heteroperf {

/// One column of samples.h5: equal lengths within a table.
struct SampleColumn {
  using Values =
      std::variant<std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
                   std::vector<std::uint8_t>, std::vector<std::string>>;
  const char* name;
  const char* long_name;
  const char* units;  ///< "1" for counts
  Values values;
  int since = 1;  ///< format_version of the first archive that has it
};

/// A table is a group in the file, and each of its columns a dataset in that group.
struct SampleTable {
  const char* name;  ///< the group in the file: "steps", "trials", …
  std::vector<SampleColumn> columns;
  const char* scale;  ///< the column that says what a row is of: a dimension scale of the others
  int since = 1;      ///< as of a column
};

/// Raised with every new table or column; those that an archive's version lacks are not compared.
inline constexpr int samples_format_version = 2;

/// The journal's rows as columns, in the order of its lines. Absent whole numbers are -1, absent
/// reals NaN. Operations are split into ops_hi and ops_lo: ops = hi · 2^64 + lo.
std::vector<SampleTable> sample_tables(const Journal& journal);

}  // namespace heteroperf
