#include "runners/plan/sailor/sailor_inputs.hpp"

#include <cmath>
#include <limits>

namespace heteroperf {

double SailorCurve::bytes_per_second(double bytes) const {
  const double g = std::log2(bytes / 1e6);
  return ((a * g + b) * g + c) * 1e9;
}

double SailorCurve::seconds(double bytes) const {
  const double rate = bytes_per_second(bytes);
  return rate > 0 ? bytes / rate : std::numeric_limits<double>::infinity();
}

}  // namespace heteroperf
