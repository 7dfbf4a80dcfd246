#pragma once

namespace heteroperf {

/// ln x for finite x > 0, within 2 units in the last place, from +, −, ×, ÷ alone: the C library's
/// logarithm differs in the last bit between machines (it picks a variant with or without FMA at
/// run time), and a stored score must be recomputed to the same bytes anywhere.
double natural_log(double x);

}  // namespace heteroperf
