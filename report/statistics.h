// How far to trust means over seeds.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace prunex::report {

/// Of the values of several seeds.
struct Spread {
  size_t count = 0;
  double mean = 0;
  double low = 0, high = 0;  ///< smallest and largest value
  double deviation = 0;      ///< standard deviation with n - 1; 0 for fewer than two values
  double half_width = 0;     ///< of the 95 % confidence interval of the mean, Student's t; 0 for fewer than two values
};
Spread spread_of(const std::vector<double>& values);

/// Of at least one value; of an even number the upper of the two in the middle.
double median(std::vector<double> values);

/// P(|T| <= t) for Student's t with `freedom` >= 1 degrees of freedom.
double student_two_sided(double t, int freedom);
/// The t with student_two_sided(t, freedom) = probability, in (0, 1).
double student_quantile(double probability, double freedom);

/// Difference of two means and the half width of its 95 % confidence interval after Welch; half width 0 if either side
/// has fewer than two values.
struct Difference {
  double mean = 0, half_width = 0;
  size_t pairs = 0;      ///< of equal seeds, whose differences these are; 0: not of pairs
  double deviation = 0;  ///< of the pairs: standard deviation with n - 1

  /// Whether the interval holds 0; without an interval, whether it is 0.
  bool is_none() const;
};
Difference difference(const Spread& a, const Spread& b);

/// Values by seed: over the pairs of equal seeds if there are two or more, which leaves out what a seed does to both;
/// else as above. What rounding leaves of values that are the same is 0.
Difference difference(const std::map<std::string, double>& a, const std::map<std::string, double>& b);

/// The fewest pairs of seeds that tell a difference of `size` from 0 where the pairs' differences have this standard
/// deviation: the smallest n with t(95 %, n - 1) deviation / sqrt(n) < size. Nothing beyond kMostSeeds.
std::optional<int> seeds_to_tell(double size, double deviation);
inline constexpr int kMostSeeds = 1000;

}  // namespace prunex::report
