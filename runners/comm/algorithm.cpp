#include "runners/comm/algorithm.hpp"

#include <array>
#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

constexpr std::array<Algorithm, 8> algorithms = {
    Algorithm::native,         Algorithm::recursive_doubling, Algorithm::ring,
    Algorithm::segmented_ring, Algorithm::rabenseifner,       Algorithm::tree,
    Algorithm::leader,         Algorithm::split_rail,
};

}  // namespace

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::native:
      return "native";
    case Algorithm::recursive_doubling:
      return "recursive_doubling";
    case Algorithm::ring:
      return "ring";
    case Algorithm::segmented_ring:
      return "segmented_ring";
    case Algorithm::rabenseifner:
      return "rabenseifner";
    case Algorithm::tree:
      return "tree";
    case Algorithm::leader:
      return "leader";
    case Algorithm::split_rail:
      return "split_rail";
  }
  return "?";
}

Algorithm parse_algorithm(const std::string& text) {
  std::vector<std::string> names;
  for (Algorithm one : algorithms) {
    if (text == to_string(one)) return one;
    names.emplace_back(to_string(one));
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(text, names);
  throw UserError("unknown algorithm \"" + text + "\"", "known are " + known,
                  nearest.empty() ? "" : "Did you mean \"" + nearest + "\"?");
}

std::span<const Algorithm> all_algorithms() { return algorithms; }

}  // namespace heteroperf
