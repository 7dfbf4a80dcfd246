#include "metrics/name_table.hpp"

#include <fmt/format.h>

namespace heteroperf {

UserError unknown_name(const std::string& what, const std::string& name,
                       const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(name, names);
  return {fmt::format("unknown {} '{}'", what, name),
          fmt::format("one of {}", fmt::join(names, ", ")),
          nearest.empty() ? "" : fmt::format("Did you mean '{}'?", nearest)};
}

}  // namespace heteroperf
