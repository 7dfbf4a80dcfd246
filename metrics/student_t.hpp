#pragma once

namespace heteroperf {

/// Chance that |T| is at least |t| for Student's T with `degrees` > 0 degrees of freedom: the
/// regularised incomplete beta function I_x(degrees/2, 1/2) at x = degrees / (degrees + t²), by its
/// continued fraction (Abramowitz and Stegun 26.5.8, modified Lentz). Small chances keep their
/// digits. `t` may be infinite.
double student_t_two_sided(double t, double degrees);

/// The t with P(|T| <= t) = `coverage`, 0 < coverage < 1: 2.776 for 0.95 and 4 degrees.
double student_t_quantile(double coverage, double degrees);

/// The same for the largest even number of degrees up to `degrees` >= 2, where the distribution is
/// a finite sum (Abramowitz and Stegun 26.7.4): the same bits on every machine.
double even_student_t_quantile(double coverage, int degrees);

}  // namespace heteroperf
