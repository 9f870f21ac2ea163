#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/plan.h"
#include "report/format.h"

namespace prunex::plan {
namespace {

using report::Unit;

constexpr double kFewExchanges = 10;
constexpr double kLittleWire = 0.05;  // of the time: more is looked at

std::string seconds_text(double seconds) {
  return report::format(seconds, Unit::kSeconds);
}

std::string range_text(const report::Interval& range) {
  return fmt::format("{} to {}", seconds_text(range.low), seconds_text(range.high));
}

std::string share_text(double share) {
  return report::format(share, Unit::kShare, 2);
}

std::string with_cost(const Plan& plan, double seconds) {
  if (plan.options.cluster.price_per_hour == 0) return seconds_text(seconds);
  return fmt::format("{} at a price of {}", seconds_text(seconds), report::plain(plan.cost(seconds), 3));
}

std::string short_record_sentence(const Plan& plan, const Row& best) {
  const size_t exchanges = plan.of(best).seeds.front().stretches.size();
  if (static_cast<double>(exchanges) >= kFewExchanges) return "";
  return fmt::format("{} was recorded for {}: too few for what follows to mean much.", plan.of(best).name,
                     report::count_of(exchanges, "exchange"));
}

std::string best_sentence(const Plan& plan, const Row& best) {
  const auto& reaching = *best.reaching;
  return fmt::format("{} is the first at {}: {} ({}), {} of it waiting for the network.", plan.of(best).name,
                     report::percent(plan.target), with_cost(plan, reaching.seconds), range_text(reaching.range),
                     share_text(best.wire_share()));
}

/// How sure it is that nothing else is faster.
std::string next_sentence(const Plan& plan, const Row& best) {
  std::vector<std::string> close;
  const Row* next = nullptr;
  for (const auto& row : plan.rows) {
    if (&row == &best || !row.reaching) continue;
    if (next == nullptr) next = &row;
    if (row.reaching->range.low <= best.reaching->range.high) close.push_back(plan.of(row).name);
  }
  if (next == nullptr) return "";
  std::string text = fmt::format("Next is {} with {} ({}).", plan.of(*next).name, seconds_text(next->reaching->seconds),
                                 range_text(next->reaching->range));
  if (close.empty()) return text + " The ranges do not touch: that order is what the recorded seeds and timings say.";
  return text + fmt::format(" Not sure: the range of {} touches that of {}.",
                            best.reaching->seeds > 1 ? "seeds and timings" : "timings",
                            close.size() == 1 ? close.front() : fmt::format("{} others", close.size()));
}

const Row* find_ddp(const Plan& plan) {
  const Row* most = nullptr;  // of the whole network, not rounded
  for (const auto& row : plan.rows) {
    const bool is_ddp = row.is_recorded && plan.of(row).strategy == "ddp";
    if (is_ddp && (most == nullptr || row.whole.node_bytes > most->whole.node_bytes)) most = &row;
  }
  return most;
}

std::string ddp_sentence(const Plan& plan, const Row& best) {
  const Row* ddp = find_ddp(plan);
  if (ddp == nullptr || ddp == &best) return "";
  const std::string& name = plan.of(*ddp).name;
  if (!ddp->reaching) return fmt::format("{} does not get there in the run that was recorded.", name);
  std::string text = fmt::format("{} takes {} ({} of it waiting for the network), {} times as long", name,
                                 with_cost(plan, ddp->reaching->seconds), share_text(ddp->wire_share()),
                                 report::plain(ddp->reaching->seconds / best.reaching->seconds, 3));
  if (best.whole.node_bytes == 0) return text + ".";
  return text +
         fmt::format("; it sends {} times the bytes.", report::plain(ddp->whole.node_bytes / best.whole.node_bytes, 3));
}

/// Against one node by itself, which computes what all nodes did, and sends nothing.
std::string one_node_sentence(const Plan& plan, const Row& best) {
  const auto nodes = plan.options.cluster.nodes;
  if (nodes == 1) return "";
  const double alone = best.whole.compute / best.whole.seconds * best.reaching->seconds * nodes;
  const double times = alone / best.reaching->seconds;
  std::string text = fmt::format("One node takes about {} for the same images: {} nodes are {} times as fast",
                                 seconds_text(alone), nodes, report::plain(times, 3));
  if (times <= 1) return text + ". It does not pay.";
  const double price = plan.options.cluster.price_per_hour;
  if (price == 0) return text + ".";
  return text + fmt::format(", for {} times the price.", report::plain(nodes / times, 3));
}

/// Whether ranks wait for exchanges that another interval or payload would shorten.
bool waits_for_exchanges(const Plan& plan, const Row& row) {
  const Recorded& run = plan.of(row);
  return !run.sends_gradients && run.overlap == 0 && row.whole.wire > 0;
}

/// The interval at which little of the time is waiting.
std::string interval_sentence(const Plan& plan, const Row& best) {
  if (!waits_for_exchanges(plan, best)) return "";
  const double message = best.whole.wire / best.whole.exchanges;
  const double step = best.whole.compute / best.whole.steps * plan.options.cluster.straggler;
  const double interval = interval_for(kLittleWire, message, step);
  if (interval <= 1) return "Even an exchange in every step would wait for less than 5 % of the time.";
  if (interval < best.setting.local_steps) {
    return fmt::format(
        "An exchange every {} steps, where {} were recorded, would wait for 5 % of the time; it is nearer to averaging "
        "in every step, but no run of it says what accuracy that gives.",
        interval, best.setting.local_steps);
  }
  return fmt::format(
      "To wait for 5 % of the time only, it would take {} steps between exchanges, where {} were recorded.", interval,
      best.setting.local_steps);
}

/// The payload that rounds least of those with which little of the time is waiting.
std::string payload_sentence(const Plan& plan, const Row& best) {
  if (!waits_for_exchanges(plan, best)) return "";
  const Recorded& run = plan.of(best);
  for (const char* payload : {"fp32", "bf16", "int8", "int4", "int2", "int1"}) {
    if (!payload_ratio(run, payload)) continue;
    Setting setting = best.setting;
    setting.payload = payload;
    const Prediction there = predict(run, run.seeds.front(), setting, plan.options.cluster, *plan.network, run.images);
    if (there.wire > kLittleWire * there.seconds) continue;
    const double ratio = *payload_ratio(run, payload);
    if (ratio == 1) return "";  // its own, or one of as many bytes
    return fmt::format(
        "At this interval {} waits for {} of the time: {} than {}, but no run of it says what accuracy that gives.",
        payload, share_text(there.wire / there.seconds), ratio > 1 ? "rounded less" : "fewer bytes", run.payload);
  }
  return "";
}

void add(std::vector<std::string>& lines, std::string line) {
  if (!line.empty()) lines.push_back(std::move(line));
}

double images_per_step(const Row& row, const Cluster& cluster) {
  return row.setting.batch * cluster.ranks();
}

std::string batch_caveat(const Plan& plan) {
  const Row& row = plan.rows.front();
  const Recorded& run = plan.of(row);
  const double recorded = run.batch * run.ranks, here = images_per_step(row, plan.options.cluster);
  if (recorded == here && run.ranks == plan.options.cluster.ranks()) return "";
  const auto ranks = [](int count) { return report::count_of(static_cast<size_t>(count), "rank"); };
  return fmt::format(
      "Accuracies, and images until one, are those of {} with {} images per step in all; here it is {} with {}. More "
      "images per step, or more ranks between exchanges, may need more images: no run says how many.",
      ranks(run.ranks), report::plain(recorded, 4), ranks(plan.options.cluster.ranks()), report::plain(here, 4));
}

std::string listed(const std::string& what, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("{}: {}.", what, fmt::join(names, ", "));
}

std::string exchanges_caveat(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& row : plan.rows) {
    if (!row.is_recorded || row.whole.exchanges >= kFewExchanges || plan.of(row).sends_gradients) continue;
    names.push_back(fmt::format("{} ({})", plan.of(row).name, report::plain(row.whole.exchanges, 2)));
  }
  return listed("Fewer than 10 exchanges in the whole run, far from how they were recorded", names);
}

std::string single_seed_caveat(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& run : plan.recorded) {
    if (run.seeds.size() == 1) names.push_back(run.name);
  }
  return listed("One seed, so that the range is that of its timings alone", names);
}

std::string end_caveat(const Plan& plan) {
  const bool coarse = std::any_of(plan.rows.begin(), plan.rows.end(), [&](const Row& row) {
    return row.reaching && plan.of(row).seeds.front().accuracies.size() == 1;
  });
  return coarse ? "Where a run was evaluated at its end alone, seconds to an accuracy are those of the whole run." : "";
}

std::string seconds_caveat(const Plan& plan) {
  const auto& seconds = plan.options.seconds_per_step;
  if (!seconds && !plan.images_per_second) return "";
  std::vector<std::string> smaller, unknown;
  for (const auto& run : plan.recorded) {
    const auto is_dense = begins_dense(run, run.seeds.front());
    if (!is_dense) unknown.push_back(run.name);
    if (is_dense == false || (is_dense && run.macs < plan.macs)) smaller.push_back(run.name);
  }
  std::string text = seconds ? fmt::format("Steps take {}", seconds_text(*seconds))
                             : fmt::format("A rank takes {} images per second (the kit's {})",
                                           report::plain(*plan.images_per_second, 4), plan.rate_of);
  text +=
      " with the whole network, where they were measured at another speed; what a cut saves, and exchanges in the "
      "nodes, are scaled alike.";
  for (const auto& more : {listed("By multiply-accumulates, since they began with a smaller network", smaller),
                           listed("Their records do not say of which network their steps were", unknown)}) {
    if (!more.empty()) text += " " + more;
  }
  return text;
}

std::string in_node_caveat(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& run : plan.recorded) {
    if (run.averages_in_node) {
      names.push_back(fmt::format("{} ({} in a node)", run.name, report::count_of(run.ranks / run.nodes, "rank")));
    }
  }
  return listed(
      "Their steps hold the averaging of gradients in the node, which counts as computing and is that of the "
      "ranks they were recorded with",
      names);
}

std::string network_caveat(const Plan& plan) {
  if (plan.options.network.empty()) return "";
  return fmt::format("Link and latency were fitted to {}, whose times are {} (root mean square) from the fit.",
                     plan.options.network, share_text(plan.network_gap));
}

std::string links_caveat(const Cluster& cluster) {
  if (uses_flows(cluster)) return "Bytes on the network are flows that share links fairly (SimGrid).";
  return cluster.has_equal_links()
             ? ""
             : "Links differ: the slowest holds for all, since every step of a ring waits for it.";
}

}  // namespace

std::vector<std::string> advice_of(const Plan& plan) {
  std::vector<std::string> lines;
  if (!plan.recommended) {
    double best = 0;
    for (const auto& run : plan.recorded) best = std::max(best, best_accuracy(run));
    return {fmt::format("No run reaches {}; the best has {}.", report::percent(plan.target), report::percent(best))};
  }
  const Row& best = plan.rows[*plan.recommended];
  for (const auto& sentence : {short_record_sentence, best_sentence, next_sentence, ddp_sentence, one_node_sentence,
                               interval_sentence, payload_sentence}) {
    add(lines, sentence(plan, best));
  }
  return lines;
}

std::vector<std::string> caveats_of(const Plan& plan) {
  std::vector<std::string> lines;
  add(lines, batch_caveat(plan));
  add(lines, exchanges_caveat(plan));
  add(lines, single_seed_caveat(plan));
  add(lines, end_caveat(plan));
  add(lines, seconds_caveat(plan));
  add(lines, in_node_caveat(plan));
  add(lines, network_caveat(plan));
  add(lines, links_caveat(plan.options.cluster));
  lines.emplace_back(
      plan.options.overhead
          ? "Not in the seconds: evaluation and starting. Packing, rounding and waiting for each other are those of "
            "the recorded runs, whose nodes must have been one machine."
          : "Not in the seconds: evaluation, starting, packing and rounding of messages, and that ranks wait for each "
            "other's slower steps beyond --straggler.");
  for (const auto& line : plan.left_out) lines.push_back("Left out: " + line + ".");
  return lines;
}

}  // namespace prunex::plan
