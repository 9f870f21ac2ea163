// Runs in order: those that differ only by seed belong together, those of one task are compared; what runs were told,
// as one would type it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/plot.h"
#include "report/run.h"
#include "report/statistics.h"

namespace prunex::report {

/// The same options with several seeds.
struct Variant {
  std::string name;
  int style = 0;  ///< see Style
  std::vector<const Run*> runs;

  const Run& first() const { return *runs.front(); }
  /// One of every seed.
  std::vector<const Run*> finished() const;
  /// The further runs of seeds, finished or not, which count nowhere.
  std::vector<const Run*> repeated() const;
  /// Runs that count once they have finished.
  size_t seeds() const { return runs.size() - repeated().size(); }
  /// Whether its runs begin with another run's network: what that one took and sent is not in their records.
  bool is_later_stage() const;
  std::string strategy() const { return first().option("strategy"); }
};

/// One data set, whose nodes may have folders of their own, and one network: what is drawn in one plot.
struct Task {
  std::string title;
  std::vector<Variant> variants;
  std::map<std::string, std::string> shared;  ///< options on which all variants agree
};

/// Names a comparison's variants as it does, others by the options on which they differ. Runs must outlive the result.
std::vector<Task> tasks_of(const std::vector<Run>& runs);

/// Options of which a variant is made: not the seed, nor where files are, if all nodes read the same, and how much is
/// printed.
std::map<std::string, std::string> identity(const Run& run);

/// A quantity of finished runs over the seeds; runs for which it is nothing are left out.
using Quantity = std::function<std::optional<double>(const Run&)>;
Spread over_seeds(const Variant& variant, const Quantity& quantity);
std::map<std::string, double> by_seed(const Variant& variant, const Quantity& quantity);

/// From the lowest to the highest seed; nothing for fewer than two.
std::optional<Interval> whisker(const Spread& spread);

/// A quantity of exchanges along another one, such as accuracy along time. The means over seeds, and from the lowest to
/// the highest y, at every exchange of which all finished runs know it; while none has finished, of which any does.
struct Sample {
  int64_t exchange = 0;
  double x = 0, y = 0;
};
using Curve = std::function<std::vector<Sample>(const Run&)>;
std::vector<Point> over_seeds(const Variant& variant, const Curve& curve);

/// "2 seeds".
std::string count_of(size_t n, const std::string& noun);

/// Empty where no file says what the runs were told; else `prunex train` with the options on which all variants agree:
/// what one types to repeat them. Options that are off or left to prunex are not named.
std::string shared_command(const Task& task);

/// Those of the variant's options that not all share.
std::string own_options(const Task& task, const Variant& variant);

}  // namespace prunex::report
