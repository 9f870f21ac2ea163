// Every interleaving of messages, deaths, cuts and a join in a model of elastic runs that decides by the same function
// as the code (docs/elastic.md).
//
// Three nodes of one rank make exchanges; one step is: a node contributes to its next exchange, has all
// contributions (enters), hears that all have entered (commits), looks for the others, is told a decision, agrees to
// it, hears that all did (forms), gives up on it; a node dies; a node is cut off from the others, which find it silent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/comm/agreement_world.h"

namespace prunex::comm {
namespace {

using namespace model;
using Kind = Verdict::Kind;

class Explorer {
 public:
  /// `joins`: the last node is none of the run's, and waits to be let in.
  Explorer(int deaths, int cuts, int64_t exchanges, bool joins = false)
      : most_deaths_(deaths), most_cuts_(cuts), exchanges_(exchanges), joins_(joins) {}

  void explore() {
    World start;
    for (int i = 0; i < kNodes; ++i) {
      Node node;
      node.report = {.node = i, .formed = {0, joins_ ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}}};
      if (joins_ && i == kNewcomer) {
        node.outside = true;
        node.report.formed = {-1, {}};
      }
      start.nodes.push_back(node);
    }
    start.waits.assign(static_cast<size_t>(exchanges_), false);
    push(start);
    while (!open_.empty()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      const size_t before = steps_;
      step(world);
      if (steps_ == before) expect_end(world);
      if (testing::Test::HasFailure()) return;
    }
  }

  size_t states() const { return seen_.size(); }

 private:
  template <class Change>
  void go(const World& world, int i, const Change& change) {
    ++steps_;
    World next = world;
    change(next.nodes[i], next);
    push(next);
  }

  void push(const World& world) {
    if (!seen_.insert(key_of(world)).second) return;
    check(world);
    open_.push_back(world);
  }

  void step(const World& world) {
    for (int i = 0; i < kNodes; ++i) {
      const Node& node = world.nodes[i];
      if (node.dead || (node.outside && !node.told)) continue;
      if (!node.seeking && !node.told) node.admits ? admit(world, i) : train(world, i);
      if (node.seeking || node.told) seek(world, i);
    }
    const size_t progress = steps_;
    for (int i = 0; i < kNodes; ++i) disturb(world, i);
    steps_ = progress;  // what need not happen is no way on
  }

  void train(const World& world, int i) {
    const Node& node = world.nodes[i];
    const auto& [epoch, members] = node.report.formed;
    const auto all = [&](const auto& holds) {
      return std::all_of(members.begin(), members.end(), [&, e = epoch](int m) {
        const Node& other = world.nodes[m];
        return other.report.formed.epoch == e && holds(other);
      });
    };
    const int64_t k = node.report.committed;
    if (k < exchanges_ && !node.contributed) {
      go(world, i, [](Node& n, World&) { n.contributed = true; });
    }
    const bool contributed = all([&](const Node& n) { return has(n, k, n.contributed); });
    if (node.contributed && !node.report.entered && contributed) {
      const bool leads = i == members.front();
      const Node& newcomer = world.nodes[kNewcomer];
      const bool may_wait = joins_ && leads && newcomer.outside && !newcomer.dead && reach(node, newcomer);
      for (const bool waits : may_wait ? std::vector<bool>{false, true} : std::vector<bool>{false}) {
        go(world, i, [&](Node& n, World& w) {
          n.report.entered = true;
          n.values.push_back(n.report.formed.epoch);
          if (leads) w.waits[static_cast<size_t>(k)] = waits;
        });
      }
    }
    const bool entered = all([&](const Node& n) { return has(n, k, n.report.entered); });
    if (node.report.entered && entered) {
      go(world, i, [&](Node& n, World& w) {
        ++n.report.committed;
        n.report.entered = n.contributed = false;
        n.admits = w.waits[static_cast<size_t>(k)];
      });
    }
    lose(world, i);
  }

  /// Rank 0 says who waits; once all have heard, everybody agrees to the roster with the newcomer, who hears of it.
  void admit(const World& world, int i) {
    const Node& node = world.nodes[i];
    const auto& members = node.report.formed.nodes;
    const int64_t epoch = epoch_of(node);
    if (i == members.front() && world.announced != epoch) {
      go(world, i, [&](Node&, World& w) { w.announced = epoch; });
    }
    const bool reached = reach(node, world.nodes[members.front()]);
    if (world.announced == epoch && !node.knows && reached) go(world, i, [](Node& n, World&) { n.knows = true; });
    const bool all_know = std::all_of(members.begin(), members.end(), [&](int m) { return world.nodes[m].knows; });
    if (node.knows && all_know) {
      Verdict verdict{.kind = Kind::kGo, .roster = {epoch + 1, members}, .committed = node.report.committed};
      verdict.roster.nodes.push_back(kNewcomer);
      go(world, i, [&](Node& n, World& w) {
        n.told = verdict;
        agree(n);
        n.seeking = true;
        Node& newcomer = w.nodes[kNewcomer];
        if (i != members.front() || newcomer.dead || !reach(n, newcomer)) return;
        newcomer.told = verdict;
        newcomer.report = {
            .node = kNewcomer, .formed = n.report.formed, .seen = epoch, .committed = n.report.committed};
        newcomer.values = n.values;
      });
    }
    lose(world, i);
  }

  void lose(const World& world, int i) {
    const Node& node = world.nodes[i];
    const auto& members = node.report.formed.nodes;
    const bool troubled = std::any_of(members.begin(), members.end(), [&](int m) {
      const Node& other = world.nodes[m];
      const bool with_us = other.seeking ? other.joining && other.decision.roster.epoch == epoch_of(node)
                                         : epoch_of(other) == epoch_of(node);
      return m != i && (other.dead || !with_us || !reach(node, other));
    });
    if (troubled) go(world, i, [](Node& n, World&) { n.seeking = true; });
  }

  void seek(const World& world, int i) {
    const Node& node = world.nodes[i];
    if (node.told) {
      go(world, i, [](Node& n, World&) {
        agree(n);
        n.seeking = true;
        n.outside = false;
      });
      if (world.unheard < kMostUnheard) {
        go(world, i, [](Node& n, World& w) {
          n.told.reset();
          n.dead = n.outside;  // it comes back with another number and door
          ++w.unheard;
        });
      }
    }
    if (node.joining) {
      const auto& roster = node.decision.roster;
      const bool met = std::all_of(roster.nodes.begin(), roster.nodes.end(), [&](int m) {
        const Node& other = world.nodes[m];
        const bool agreed = other.joining && other.decision.roster == roster;
        return agreed || std::find(other.met.begin(), other.met.end(), roster) != other.met.end();
      });
      if (met) go(world, i, form);
      const bool broken = std::any_of(roster.nodes.begin(), roster.nodes.end(), [&](int m) {
        const Node& other = world.nodes[m];
        const bool with_us = other.told || (other.joining && other.decision.roster == roster) ||
                             other.report.formed.epoch == roster.epoch;
        return other.dead || !with_us || (m != i && !reach(node, other));
      });
      if (broken) go(world, i, [](Node& n, World&) { n.joining = false; });
      return;
    }
    if (is_out(world, node.report)) return go(world, i, [](Node& n, World&) { n.dead = true; });  // as it is told
    if (!node.told) lead(world, i);
  }

  static void agree(Node& n) {
    n.decision = *n.told;
    n.told.reset();
    n.joining = true;
    n.report.agreed.push_back(n.decision.roster);
    n.report.seen = std::max(n.report.seen, n.decision.roster.epoch);
  }

  static void form(Node& n, World&) {
    const bool adopts = n.decision.committed > n.report.committed;
    if (!adopts && n.report.entered) n.values.pop_back();
    n.report.formed = n.decision.roster;
    n.report.agreed.clear();
    n.met.push_back(n.decision.roster);
    n.report.committed = n.decision.committed;
    n.report.entered = n.contributed = n.seeking = n.joining = n.admits = n.knows = false;
  }

  void lead(const World& world, int i) {
    const Node& node = world.nodes[i];
    Missing missing;
    std::vector<Report> here;
    for (int m = 0; m < kNodes; ++m) {
      const Node& other = world.nodes[m];
      const bool is_here = m == i || (reach(node, other) && other.seeking && !other.joining && !other.told);
      const bool knocks = other.outside && !other.told;  // it cannot be going on in any roster
      if ((other.dead || knocks) && reach(node, other)) {
        missing.dead.insert(m);
      } else if (m != i && !reach(node, other)) {
        missing.silent.insert(m);
      } else if (is_here && !other.dead) {
        here.push_back(other.report);
      }
    }
    // The lowest that may be there leads; who was left behind is sent away by who formed a newer roster.
    for (const int m : candidates({node.report})) {
      if (m < i && missing.dead.count(m) == 0 && missing.silent.count(m) == 0) return;
    }
    std::erase_if(here, [&](const Report& report) { return is_out(world, report); });
    const Verdict verdict = decide(here, missing, RanksOf(kNodes, 1), 0);
    if (verdict.kind != Kind::kGo) return;
    go(world, i, [&](Node& leader, World& next) {
      for (const int m : verdict.roster.nodes) next.nodes[m].told = verdict;
      agree(leader);
    });
  }

  static bool is_out(const World& world, const Report& report) {
    return std::any_of(world.nodes.begin(), world.nodes.end(), [&](const Node& other) {
      return !other.dead && reach(other, world.nodes[report.node]) && other.report.formed.epoch > report.formed.epoch &&
             !other.report.formed.has(report.node);
    });
  }

  void disturb(const World& world, int i) {
    const Node& node = world.nodes[i];
    if (!node.dead && world.deaths < most_deaths_) {
      go(world, i, [](Node& n, World& w) {
        n.dead = true;
        ++w.deaths;
      });
    }
    if (!node.cut && world.cuts < most_cuts_) {
      go(world, i, [](Node& n, World& w) {
        n.cut = true;
        ++w.cuts;
      });
    }
    if (node.cut) go(world, i, [](Node& n, World&) { n.cut = false; });
  }

  /// What must hold always: nodes of one roster, or of an older one without having been left behind, have the same
  /// exchanges; an epoch has one roster.
  void check(const World& world) {
    std::map<int64_t, Roster> rosters;
    for (const Node& node : world.nodes) {
      const Roster& formed = node.report.formed;
      const bool forgotten = joins_ && node.dead;  // of two nodes one may go on and end before the other does
      if (!forgotten) {
        ASSERT_EQ(rosters.emplace(formed.epoch, formed).first->second, formed) << "split: " << text_of(world);
      }
      ASSERT_GE(static_cast<int64_t>(node.values.size()), node.report.committed) << text_of(world);
      for (const Node& other : world.nodes) {
        const bool together =
            !node.dead && !other.dead && epoch_of(node) <= epoch_of(other) && other.report.formed.has(node.report.node);
        if (together) expect_same(node, other, world);
      }
    }
  }

  static void expect_same(const Node& a, const Node& b, const World& world) {
    const auto both = static_cast<size_t>(std::min(a.report.committed, b.report.committed));
    for (size_t k = 0; k < both; ++k) ASSERT_EQ(a.values[k], b.values[k]) << "exchange " << k << ": " << text_of(world);
  }

  /// Where nothing more needs to happen: everybody who is left and not cut off is done, unless too few are.
  void expect_end(const World& world) {
    std::vector<const Node*> left;
    for (const Node& node : world.nodes) {
      const bool member = node.report.formed.has(node.report.node);
      if (!node.dead && !node.cut && member && !is_out(world, node.report)) left.push_back(&node);
    }
    const auto dead = std::count_if(world.nodes.begin(), world.nodes.end(), [](const Node& n) {
      return (n.dead && !n.cut) || !n.report.formed.has(n.report.node);
    });
    if (2 * static_cast<int64_t>(left.size()) <= kNodes - dead) return;
    // Who is cut off may be the one who has heard that a roster met.
    const bool uncertain =
        std::any_of(left.begin(), left.end(), [](const Node* n) { return !n->report.agreed.empty(); });
    const bool cut =
        std::any_of(world.nodes.begin(), world.nodes.end(), [](const Node& n) { return n.cut && !n.dead; });
    if (uncertain && cut) return;
    for (const Node* node : left) ASSERT_EQ(node->report.committed, exchanges_) << "stuck: " << text_of(world);
  }

  const int most_deaths_, most_cuts_;
  const int64_t exchanges_;
  const bool joins_;
  size_t steps_ = 0;
  std::vector<World> open_;
  std::unordered_set<std::string> seen_;
};

void explore(int deaths, int cuts, int64_t exchanges, bool joins = false) {
  Explorer explorer(deaths, cuts, exchanges, joins);
  explorer.explore();
  EXPECT_GT(explorer.states(), 10'000U);
  testing::Test::RecordProperty("states", static_cast<int>(explorer.states()));
}

TEST(AgreementModel, WhoGoesOnAgreesWhoeverDies) {
  explore(2, 0, 3);
}

TEST(AgreementModel, WhoGoesOnAgreesWhoeverIsCutOff) {
  explore(0, 2, 1);
}

TEST(AgreementModel, WhoGoesOnAgreesWhenOneDiesAndOneIsCutOff) {
  explore(1, 1, 3);
}

TEST(AgreementModel, WhoJoinsAgreesWhoeverDies) {
  explore(2, 0, 3, true);
}

TEST(AgreementModel, WhoJoinsAgreesWhoeverIsCutOff) {
  explore(0, 1, 3, true);
}

TEST(AgreementModel, WhoJoinsAgreesWhenOneDiesAndOneIsCutOff) {
  explore(1, 1, 2, true);
}

}  // namespace
}  // namespace prunex::comm
