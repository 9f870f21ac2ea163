#include "report/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace prunex::report {
namespace {

constexpr double kConfidence = 0.95;
constexpr double kRounding = 1e-12;  // far more than rounding does to a few sums, far less than one image of a data set

double quantile_at(double probability, int freedom) {
  double low = 0, high = 1;
  while (student_two_sided(high, freedom) < probability) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, freedom) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// The value, or 0 if it is no more than rounding leaves of a difference of numbers of that magnitude.
double without_rounding(double value, double magnitude) {
  return std::abs(value) < kRounding * magnitude ? 0 : value;
}

}  // namespace

// Abramowitz and Stegun 26.7.3 and 26.7.4.
double student_two_sided(double t, int freedom) {
  const double angle = std::atan(t / std::sqrt(freedom));
  const double cosine = std::cos(angle), squared = cosine * cosine;
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1, sum = freedom == 1 ? 0 : term;
  for (int k = odd ? 3 : 2; k < freedom; k += 2) {
    term *= squared * (k - 1) / k;
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

// Between two whole degrees of freedom its logarithm is nearly a line in 1 / freedom.
double student_quantile(double probability, double freedom) {
  const double below = std::max(1.0, std::floor(freedom));
  const double at_below = quantile_at(probability, static_cast<int>(below));
  if (freedom <= below) return at_below;
  const double share = (1 / below - 1 / freedom) / (1 / below - 1 / (below + 1));
  return at_below * std::pow(quantile_at(probability, static_cast<int>(below) + 1) / at_below, share);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Spread spread_of(const std::vector<double>& values) {
  Spread spread{.count = values.size()};
  if (values.empty()) return spread;
  const auto n = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / n;
  spread.low = *std::min_element(values.begin(), values.end());
  spread.high = *std::max_element(values.begin(), values.end());
  if (spread.low == spread.high) {
    spread.mean = spread.low;  // exactly, which the sum need not be
    return spread;
  }
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (n - 1));
  spread.half_width = student_quantile(kConfidence, n - 1) * spread.deviation / std::sqrt(n);
  return spread;
}

Difference difference(const Spread& a, const Spread& b) {
  Difference result{.mean = a.mean - b.mean};
  if (a.count < 2 || b.count < 2) return result;
  const auto na = static_cast<double>(a.count), nb = static_cast<double>(b.count);
  const double va = a.deviation * a.deviation / na, vb = b.deviation * b.deviation / nb;
  if (va + vb == 0) return result;
  const double freedom = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
  result.half_width = student_quantile(kConfidence, freedom) * std::sqrt(va + vb);
  return result;
}

Difference difference(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  std::vector<double> pairs, of_a, of_b;
  for (const auto& [seed, value] : a) {
    of_a.push_back(value);
    if (const auto other = b.find(seed); other != b.end()) pairs.push_back(value - other->second);
  }
  for (const auto& [seed, value] : b) of_b.push_back(value);
  const Spread of_pairs = spread_of(pairs);
  const bool paired = pairs.size() > 1 || (pairs.size() == 1 && std::min(of_a.size(), of_b.size()) == 1);
  const Difference found = !paired ? difference(spread_of(of_a), spread_of(of_b))
                                   : Difference{of_pairs.mean, of_pairs.half_width, of_pairs.count, of_pairs.deviation};
  const double most = std::max(largest(of_a), largest(of_b));
  return {without_rounding(found.mean, most), without_rounding(found.half_width, most), found.pairs,
          without_rounding(found.deviation, most)};
}

bool Difference::is_none() const {
  return std::abs(mean) <= half_width;
}

// Half widths fall with every further seed.
std::optional<int> seeds_to_tell(double size, double deviation) {
  const auto tell = [&](int n) { return student_quantile(kConfidence, n - 1) * deviation < size * std::sqrt(n); };
  if (!tell(kMostSeeds)) return std::nullopt;
  int too_few = 1, enough = kMostSeeds;
  while (enough - too_few > 1) {
    const int middle = (too_few + enough) / 2;
    (tell(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace prunex::report
