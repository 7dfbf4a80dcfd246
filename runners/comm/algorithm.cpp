#include "runners/comm/algorithm.hpp"

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<Algorithm> names[] = {{Algorithm::native, "native"},
                                      {Algorithm::recursive_doubling, "recursive_doubling"},
                                      {Algorithm::ring, "ring"},
                                      {Algorithm::segmented_ring, "segmented_ring"},
                                      {Algorithm::rabenseifner, "rabenseifner"},
                                      {Algorithm::tree, "tree"},
                                      {Algorithm::leader, "leader"},
                                      {Algorithm::split_rail, "split_rail"}};
constexpr auto algorithms = values_of(names);

}  // namespace

const char* to_string(Algorithm algorithm) { return name_of(names, algorithm); }

Algorithm parse_algorithm(const std::string& text) { return parse_name(names, "algorithm", text); }

std::span<const Algorithm> all_algorithms() { return algorithms; }

}  // namespace heteroperf
