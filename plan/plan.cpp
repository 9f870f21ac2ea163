#include "plan/plan.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>

#include "plan/measured.h"

namespace prunex::plan {
namespace {

constexpr double kAll = std::numeric_limits<double>::infinity();

std::vector<const report::Variant*> fitting(const report::Task& task, const std::string& only) {
  std::vector<const report::Variant*> variants;
  for (const auto& variant : task.variants) {
    if (only.empty() || fnmatch(only.c_str(), variant.name.c_str(), 0) == 0) variants.push_back(&variant);
  }
  return variants;
}

/// The one task that has runs that fit.
std::pair<std::string, std::vector<const report::Variant*>> choose(const std::vector<report::Task>& tasks,
                                                                   const std::string& only) {
  std::vector<std::string> titles;
  std::vector<const report::Variant*> chosen;
  for (const auto& task : tasks) {
    auto variants = fitting(task, only);
    if (variants.empty()) continue;
    titles.push_back(task.title);
    chosen = std::move(variants);
  }
  if (titles.empty()) throw std::invalid_argument(fmt::format("`only`: got '{}', which fits no run", only));
  if (titles.size() > 1) {
    throw std::invalid_argument(
        fmt::format("`from`: got runs of {} networks or data sets ({}; {}{}), wanted one: `only` picks runs by name",
                    titles.size(), titles[0], titles[1], titles.size() > 2 ? "; …" : ""));
  }
  return {titles.front(), chosen};
}

void take_apart_all(Plan& plan, const std::vector<const report::Variant*>& variants) {
  for (const auto* variant : variants) {
    try {
      plan.recorded.push_back(take_apart(*variant));
    } catch (const std::invalid_argument& error) {
      plan.left_out.push_back(fmt::format("{}: {}", variant->name, error.what()));
    }
  }
  if (plan.recorded.empty()) throw std::invalid_argument("`from`: " + plan.left_out.front());
}

/// What was measured elsewhere, in place of what was described and recorded.
void take_measured(Plan& plan) {
  PlanOptions& options = plan.options;
  if (!options.network.empty()) {
    const MeasuredNetwork network = read_network(options.network);
    options.cluster.link = {network.link / options.cluster.goodput};  // that one measured what headers leave
    options.cluster.latency = network.latency;
    plan.network_gap = network.gap;
  }
  if (!options.gpu_kit.empty()) {
    const Recorded& first = plan.recorded.front();
    const GpuRate rate = read_gpu_rate(options.gpu_kit, first.model, first.precision);
    plan.images_per_second = rate.images;
    plan.rate_of = rate.of;
  }
}

/// Seconds of a step say nothing while it is open of how many images.
void refuse_unlike_batches(const Plan& plan) {
  if (!plan.options.seconds_per_step || plan.options.batch_size) return;
  const double first = std::round(plan.recorded.front().batch);
  for (const auto& run : plan.recorded) {
    if (std::round(run.batch) == first) continue;
    throw std::invalid_argument(
        fmt::format("`seconds_per_step`: got runs of {} and {} images per rank and step, wanted `batch_size`, which "
                    "says of how many",
                    first, std::round(run.batch)));
  }
}

class RowMaker {
 public:
  explicit RowMaker(const Plan& plan) : plan_(plan), cluster_(plan.options.cluster) {}

  Row make(size_t recorded, const Setting& setting) const {
    Row row{.recorded = recorded, .setting = setting};
    const Recorded& run = plan_.recorded[recorded];
    row.is_recorded = setting.local_steps == run.local_steps && setting.payload == run.payload;
    row.whole = mean_over_seeds(run, setting, kAll);
    row.range = range_of(run, setting, [](const RecordedSeed&) { return kAll; });
    if (run.images_per_epoch) row.epoch_seconds = row.whole.seconds * *run.images_per_epoch / run.images;
    if (row.is_recorded) row.reaching = reaching(run, row);
    return row;
  }

 private:
  Prediction one(const Recorded& run, const RecordedSeed& seed, const Setting& setting, double images) const {
    return predict(run, seed, setting, cluster_, *plan_.network, images);
  }

  Prediction mean_over_seeds(const Recorded& run, const Setting& setting, double images) const {
    Prediction mean;
    const auto n = static_cast<double>(run.seeds.size());
    for (const auto& seed : run.seeds) {
      const Prediction of_seed = one(run, seed, setting, images);
      for (double Prediction::*part : {&Prediction::steps, &Prediction::exchanges, &Prediction::seconds,
                                       &Prediction::compute, &Prediction::wire, &Prediction::node_bytes}) {
        mean.*part += of_seed.*part / n;
      }
    }
    return mean;
  }

  /// Lowest and highest seed, each widened by the scatter of its steps.
  template <class Images>
  report::Interval range_of(const Recorded& run, const Setting& setting, const Images& images) const {
    report::Interval range{kAll, 0};
    for (const auto& seed : run.seeds) {
      const Prediction there = one(run, seed, setting, images(seed));
      const double scatter = seed.scatter * there.compute * cluster_.straggler + plan_.network_gap * there.wire;
      range.low = std::min(range.low, there.seconds - scatter);
      range.high = std::max(range.high, there.seconds + scatter);
    }
    return range;
  }

  std::optional<Reaching> reaching(const Recorded& run, const Row& row) const {
    const auto images = images_to(run, plan_.target);
    if (!images) return std::nullopt;
    Reaching reaching{.images = *images, .seconds = mean_over_seeds(run, row.setting, *images).seconds};
    reaching.range = range_of(run, row.setting, [&](const RecordedSeed& seed) {
      for (const auto& sample : seed.accuracies) {
        if (sample.y < plan_.target) continue;
        ++reaching.seeds;
        return sample.x;
      }
      return kAll;
    });
    reaching.range.low = std::min(reaching.range.low, reaching.seconds);
    reaching.range.high = std::max(reaching.range.high, reaching.seconds);
    return reaching;
  }

  const Plan& plan_;
  const Cluster& cluster_;
};

Setting base_setting(const Plan& plan, const Recorded& recorded) {
  const PlanOptions& options = plan.options;
  Setting setting = as_recorded(recorded);
  setting.batch = options.batch_size.value_or(setting.batch);
  setting.seconds_per_step = options.seconds_per_step;
  if (plan.images_per_second) setting.seconds_per_step = setting.batch / *plan.images_per_second;
  if (setting.seconds_per_step && recorded.macs > 0) *setting.seconds_per_step *= recorded.macs / plan.macs;
  setting.counts_overhead = options.overhead;
  return setting;
}

/// As recorded first, then every interval with every payload that the strategy has.
std::vector<Setting> settings_of(const Plan& plan, const Recorded& recorded) {
  const PlanOptions& options = plan.options;
  const Setting base = base_setting(plan, recorded);
  std::set<double> intervals{recorded.local_steps};
  if (!recorded.sends_gradients && !recorded.changes_what_it_sends) {
    const double overlapped = recorded.overlap * recorded.local_steps;  // steps, which an interval has more than
    for (const double interval : options.local_steps) {
      if (interval > overlapped) intervals.insert(interval);
    }
  }
  std::vector<std::string> payloads{recorded.payload};
  for (const auto& payload : options.payloads) {
    const bool is_new = std::find(payloads.begin(), payloads.end(), payload) == payloads.end();
    if (is_new && payload_ratio(recorded, payload)) payloads.push_back(payload);
  }
  std::vector<Setting> settings{base};
  for (const auto& payload : payloads) {
    for (const double interval : intervals) {
      Setting setting = base;
      setting.payload = payload;
      setting.local_steps = interval;
      if (payload != base.payload || interval != base.local_steps) settings.push_back(setting);
    }
  }
  return settings;
}

void refuse_without_effect(const Plan& plan) {
  for (const double interval : plan.options.local_steps) {
    if (std::none_of(plan.rows.begin(), plan.rows.end(),
                     [&](const Row& row) { return row.setting.local_steps == interval; })) {
      throw std::invalid_argument(fmt::format(
          "`local_steps`: got {}, wanted runs that exchange weights, with an overlap of fewer steps", interval));
    }
  }
  for (const auto& payload : plan.options.payloads) {
    if (std::none_of(plan.rows.begin(), plan.rows.end(),
                     [&](const Row& row) { return row.setting.payload == payload; })) {
      throw std::invalid_argument(fmt::format("`payload`: got {}, which no recorded strategy has", payload));
    }
  }
  const auto is_new = [&plan](auto of_setting, auto of_run) {
    return std::any_of(plan.rows.begin(), plan.rows.end(),
                       [&](const Row& row) { return row.setting.*of_setting != plan.of(row).*of_run; });
  };
  if (!plan.options.local_steps.empty() && !is_new(&Setting::local_steps, &Recorded::local_steps)) {
    throw std::invalid_argument(fmt::format("`local_steps`: got {}, with which all that exchange weights were recorded",
                                            plan.options.local_steps.front()));
  }
  if (!plan.options.payloads.empty() && !is_new(&Setting::payload, &Recorded::payload)) {
    throw std::invalid_argument(
        fmt::format("`payload`: got {}, in which all were recorded that have it", plan.options.payloads.front()));
  }
}

/// Those that reach the target by the seconds to it, then the other recorded ones, then what only costs are known of.
void sort_rows(std::vector<Row>& rows) {
  const auto key = [](const Row& row) {
    return std::pair(row.reaching      ? 0
                     : row.is_recorded ? 1
                                       : 2,
                     row.reaching ? row.reaching->seconds : row.whole.seconds);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
}

double best_that_all_reach(const std::vector<Recorded>& recorded) {
  double least = 1;
  for (const auto& run : recorded) least = std::min(least, best_accuracy(run));
  return least;
}

/// Doubling, from one node in every site to all.
std::vector<int> node_counts(const Cluster& cluster) {
  std::vector<int> counts;
  for (int nodes = cluster.sites; nodes < cluster.nodes; nodes *= 2) counts.push_back(nodes);
  counts.push_back(cluster.nodes);
  return counts;
}

/// A cluster of fewer nodes, or of all, whose network all rows share.
struct Smaller {
  Cluster cluster;
  std::shared_ptr<const Network> network;
};

std::vector<Smaller> smaller_clusters(const Plan& plan) {
  const Cluster& whole = plan.options.cluster;
  std::vector<Smaller> all;
  for (const int nodes : node_counts(whole)) {
    const Cluster cluster = with_nodes(whole, nodes);
    all.push_back({cluster, nodes == whole.nodes ? plan.network : make_network(cluster)});
  }
  return all;
}

/// The images of a step are those of the record, or, where the batch is not, those of the whole cluster.
std::optional<double> rate_on(const Plan& plan, const Row& row, const Smaller& there, bool is_strong) {
  const Recorded& run = plan.of(row);
  Setting setting = row.setting;
  if (is_strong) {
    const int ranks = plan.options.batch_size ? plan.options.cluster.ranks() : run.ranks;
    const double share = static_cast<double>(ranks) / there.cluster.ranks();
    setting.batch *= share;
    if (setting.seconds_per_step) *setting.seconds_per_step *= share;
  }
  if (setting.batch < 1) return std::nullopt;
  double seconds = 0;
  for (const auto& seed : run.seeds) {
    seconds += predict(run, seed, setting, there.cluster, *there.network, kAll).seconds;
  }
  return run.images * static_cast<double>(run.seeds.size()) / seconds;
}

Scaling scaling_of(const Plan& plan, const std::vector<Smaller>& clusters, bool is_strong) {
  Scaling scaling;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].is_recorded) scaling.rows.push_back(i);
  }
  for (const auto& there : clusters) {
    ScalingPoint point{.nodes = there.cluster.nodes};
    for (const size_t row : scaling.rows) {
      point.images_per_second.push_back(rate_on(plan, plan.rows[row], there, is_strong));
    }
    scaling.points.push_back(std::move(point));
  }
  return scaling;
}

}  // namespace

double Plan::cost(double seconds) const {
  return seconds / 3600 * options.cluster.nodes * options.cluster.price_per_hour;
}

Plan make_plan(const std::vector<report::Run>& runs, const PlanOptions& options) {
  check(options.cluster);
  for (const double interval : options.local_steps) {
    if (interval == std::floor(interval)) continue;
    throw std::invalid_argument(fmt::format("`local_steps`: got {}, wanted a whole number of steps", interval));
  }
  const auto tasks = report::tasks_of(runs);
  const auto [title, variants] = choose(tasks, options.only);
  Plan plan{.options = options, .task = title};
  take_apart_all(plan, variants);
  refuse_unlike_batches(plan);
  take_measured(plan);
  for (const auto& run : plan.recorded) plan.macs = std::max(plan.macs, run.macs);
  plan.network = make_network(plan.options.cluster);
  plan.target = options.accuracy ? *options.accuracy : best_that_all_reach(plan.recorded);
  const RowMaker maker(plan);
  for (size_t i = 0; i < plan.recorded.size(); ++i) {
    for (const auto& setting : settings_of(plan, plan.recorded[i])) plan.rows.push_back(maker.make(i, setting));
  }
  refuse_without_effect(plan);
  sort_rows(plan.rows);
  if (plan.rows.front().reaching) plan.recommended = 0;
  const auto clusters = smaller_clusters(plan);
  plan.weak = scaling_of(plan, clusters, false);
  plan.strong = scaling_of(plan, clusters, true);
  plan.advice = advice_of(plan);
  plan.caveats = caveats_of(plan);
  return plan;
}

}  // namespace prunex::plan
