#include "prunex/channels/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/channels/operations.h"

namespace prunex::channels {
namespace {

/// Recorded shapes are what a file says: rules look positions up by them.
void apply_rule(Rule rule, Axes& axes, const Node& node) {
  try {
    rule(axes, node);
  } catch (const std::logic_error&) {  // a position that is not there, or a number that no vector is long
    throw std::invalid_argument(fmt::format("node {}: the shapes that are recorded do not fit its operation",
                                            program::describe(axes.graph(), node)));
  }
}

Axes apply_rules(const Graph& graph, GroupOptions options, const Choices& choices) {
  Axes axes(graph, options, choices);
  for (const Node& node : graph.nodes) {
    axes.enter(node);
    const Rule rule = operation_of(node.target).rule;
    const bool used = !node.outputs.empty() && node.outputs[0] != kNoValue;
    if (rule != nullptr && (used || node.outputs.size() > 1)) {
      apply_rule(rule, axes, node);
      axes.freeze_forgotten(node);
    } else {
      axes.freeze_inputs(node, "has no rule");
    }
  }
  axes.freeze_outputs();
  return axes;
}

/// How well a candidate carries the units of a split.
int merit(const Axes& axes, const Split& split) {
  const auto& labels = *split.labels;
  const auto is_head = [&](Unit unit) { return unit != kFixed && axes.units().has(unit, Mark::kHead); };
  const auto is_frozen = [&](Unit unit) { return unit == kFixed || axes.units().reason(unit) != kFree; };
  if (std::all_of(labels.begin(), labels.end(), is_frozen)) return 0;
  return std::any_of(labels.begin(), labels.end(), is_head) == axes.options().heads ? 2 : 1;
}

/// For each split, how many others in a row take over its units, at most `most`; of very many splits nothing is known.
std::vector<size_t> splits_behind(const Axes& axes, size_t most) {
  constexpr size_t kMostSplits = 1000;
  const Graph& graph = axes.graph();
  const auto& splits = axes.splits();  // in the order of the nodes
  if (splits.size() > kMostSplits) return std::vector<size_t>(splits.size(), 0);
  std::vector<std::set<Unit>> units(splits.size());
  for (size_t i = 0; i < splits.size(); ++i) {
    for (const Unit unit : *splits[i].labels) {
      if (unit != kFixed) units[i].insert(axes.units().find(unit));
    }
  }
  const auto share_units = [&](size_t i, size_t j) {
    return std::any_of(units[i].begin(), units[i].end(), [&](Unit unit) { return units[j].contains(unit); });
  };
  std::vector<size_t> behind(splits.size(), 0);
  for (size_t i = splits.size(); i-- > 0;) {
    std::vector<bool> reached(graph.values.size(), false);
    reached[splits[i].node->outputs[0]] = true;
    size_t next = i + 1;
    for (const Node* node = splits[i].node + 1; node != graph.nodes.data() + graph.nodes.size(); ++node) {
      const auto inputs = tensor_inputs(graph, *node);
      const bool is_reached = std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) { return reached[input]; });
      for (; next < splits.size() && splits[next].node <= node; ++next) {
        if (splits[next].node == node && is_reached && share_units(i, next)) {
          behind[i] = std::max(behind[i], std::min(most, behind[next] + 1));
        }
      }
      if (!is_reached) continue;
      for (const ValueId output : node->outputs) {
        if (output != kNoValue) reached[output] = true;
      }
    }
  }
  return behind;
}

/// How well all splits do: none is to be frozen, and then their mean merit counts.
struct Score {
  size_t frozen = 0;
  double mean = 0;
  bool is_above(const Score& other) const { return frozen != other.frozen ? frozen < other.frozen : mean > other.mean; }
};

/// Tries candidates of the splits, those first behind which no other split has the units: these all at once, one
/// candidate after the other, until each has its first best; then those before them, with each of whose candidates the
/// ones behind them begin anew.
class Search {
 public:
  /// `axes`: as `tried`, the last choices(), made them. False if nothing is left to try.
  bool advance(const Axes& axes, const Choices& tried) {
    const auto& splits = axes.splits();
    Score score;
    bool all_settled = true;
    for (const Split& split : splits) {
      State& state = states_[key_of(split)];
      const int reached = merit(axes, split);
      if (reached > state.merit) state = {.merit = reached, .best = state.now, .now = state.now, .ended = state.ended};
      all_settled &= state.is_settled();
      score.frozen += reached == 0 ? 1 : 0;
      score.mean += reached;
    }
    if (!splits.empty()) score.mean /= static_cast<double>(splits.size());
    if (rounds_ == 0 || score.is_above(best_score_)) {
      best_score_ = score;
      best_ = tried;
    }
    if (all_settled || ++rounds_ == kMostRounds) return false;
    const auto behind = splits_behind(axes, kMostBehind);
    size_t last = kMostBehind;
    for (size_t i = 0; i < splits.size(); ++i) {
      if (!states_.at(key_of(splits[i])).is_settled()) last = std::min(last, behind[i]);
    }
    std::map<Choices::key_type, State> states;  // without those behind the ones that go on
    for (size_t i = 0; i < splits.size(); ++i) {
      State state = states_.at(key_of(splits[i]));
      if (behind[i] < last) continue;
      if (behind[i] == last && !state.is_settled()) {
        state.ended = state.now + 1 >= splits[i].candidates;
        state.now = state.ended ? state.best : state.now + 1;
      }
      states.emplace(key_of(splits[i]), state);
    }
    states_ = std::move(states);
    return true;
  }

  /// To be tried next.
  Choices choices() const {
    Choices now;
    for (const auto& [key, state] : states_) now[key] = state.now;
    return now;
  }

  /// Of all that have been tried, the first with the best score.
  const Choices& best() const { return best_; }

 private:
  static constexpr int kFullMerit = 2;
  static constexpr size_t kMostBehind = 3;
  static constexpr int kMostRounds = 64;
  struct State {
    int merit = -1;
    size_t best = 0, now = 0;
    bool ended = false;  // all candidates have been tried
    bool is_settled() const { return merit == kFullMerit || ended; }
  };

  static Choices::key_type key_of(const Split& split) { return {split.node, split.axis}; }

  std::map<Choices::key_type, State> states_;
  int rounds_ = 0;
  Score best_score_;
  Choices best_;
};

}  // namespace

Axes label_axes(const Graph& graph, GroupOptions options) {
  Search search;
  for (;;) {
    const Choices choices = search.choices();
    Axes axes = apply_rules(graph, options, choices);
    if (search.advance(axes, choices)) continue;
    return search.best() == choices ? axes : apply_rules(graph, options, search.best());
  }
}

}  // namespace prunex::channels
