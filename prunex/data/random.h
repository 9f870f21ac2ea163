// The data's own random numbers: the same on every platform, independent of any other draw in the process.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace prunex::data {

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
/// Different keys give independent streams; making one costs a few multiplications.
class Random {
 public:
  explicit Random(std::initializer_list<uint64_t> keys) {
    for (uint64_t key : keys) state_ = mix(state_ + kStep + key);
  }

  uint64_t next() { return mix(state_ += kStep); }

  /// A stream of its own, whatever is drawn from it.
  Random split() { return Random({next()}); }

  /// Uniform in 0 … n - 1, for 1 <= n <= 2^32; no value is favoured by more than n / 2^32.
  int64_t below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }

  /// Uniform in low … high, both included.
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }

  /// Uniform in (0, 1).
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

  /// In low … high, without high itself.
  double uniform(double low, double high) {
    constexpr double kStepOfUnit = 0x1p-53;
    return low + (high - low) * (static_cast<double>(next() >> 11) * kStepOfUnit);
  }

  /// Fisher and Yates'.
  void shuffle(std::vector<int64_t>& numbers) {
    for (auto i = static_cast<int64_t>(numbers.size()) - 1; i > 0; --i) std::swap(numbers[i], numbers[below(i + 1)]);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  uint64_t state_ = 0;
};

}  // namespace prunex::data
