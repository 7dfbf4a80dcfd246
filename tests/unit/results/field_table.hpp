#pragma once

#include <string>
#include <vector>

namespace heteroperf {

/// A field of a journal's lines, and how it is held: "recomputed", "bounded" or "word".
struct FieldRow {
  std::string line, field, held;
};

/// The table "Fields" of results/README.md.
std::vector<FieldRow> fields_in_readme();
/// Every field that a journal's lines can have; `held` is empty.
std::vector<FieldRow> fields_of_events();

}  // namespace heteroperf
