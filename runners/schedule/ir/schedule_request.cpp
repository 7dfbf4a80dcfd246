#include "runners/schedule/ir/schedule_request.hpp"

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<Objective> objectives[] = {{Objective::makespan, "makespan"},
                                           {Objective::span, "span"}};

}  // namespace

const char* to_string(Objective objective) { return name_of(objectives, objective); }

Objective parse_objective(const std::string& name) {
  return parse_name(objectives, "objective", name);
}

}  // namespace heteroperf
