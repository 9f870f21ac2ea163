// What the model of elastic runs consists of: nodes, what they know, what is under way between them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/elastic/agreement.h"

namespace prunex::comm::model {

struct Node {
  bool dead = false, cut = false;
  bool seeking = false, joining = false;
  bool contributed = false;
  bool outside = false;  // waits to be let in
  bool admits = false;   // has heard with an exchange that somebody waits,
  bool knows = false;    // and now who
  Report report;
  std::optional<Verdict> told;  // not heard yet
  Verdict decision;             // of the joining
  std::vector<int64_t> values;  // of every exchange that it has or entered: the epoch in which it was made
  std::vector<Roster> met;      // all that it has formed

  bool alive() const { return !dead; }
};

struct World {
  std::vector<Node> nodes;
  int deaths = 0, cuts = 0;
  int unheard = 0;          // decisions that were sent and did not arrive
  std::vector<bool> waits;  // by exchange: what its leader says of newcomers
  int64_t announced = -1;   // the epoch in which the leader has said who waits
};

inline constexpr int kNodes = 3;
inline constexpr int kNewcomer = 2;
inline constexpr int kMostUnheard = 1;

/// A byte per number; rosters as their nodes' bits.
inline void add(std::string& key, int64_t number) {
  key += static_cast<char>(number);
}
inline void add(std::string& key, const Roster& roster) {
  int64_t bits = 0;
  for (const int node : roster.nodes) bits |= int64_t{1} << node;
  add(key, roster.epoch);
  add(key, bits);
}

inline std::string key_of(const World& world) {
  std::string key;
  for (const int count : {world.deaths, world.cuts, world.unheard}) add(key, count);
  add(key, world.announced);
  for (const bool waits : world.waits) add(key, waits);
  for (const Node& node : world.nodes) {
    const Report& report = node.report;
    add(key, node.dead | node.cut << 1 | node.seeking << 2 | node.joining << 3 | node.contributed << 4 |
                 report.entered << 5 | node.told.has_value() << 6);
    add(key, node.outside | node.admits << 1 | node.knows << 2);
    add(key, report.committed);
    add(key, report.seen);
    add(key, report.formed);
    for (const auto& roster : report.agreed) add(key, roster);
    key += ',';
    for (const auto value : node.values) add(key, value);
    key += ',';
    for (const auto& roster : node.met) add(key, roster);
    key += ',';
    for (const Verdict* verdict : {node.told ? &*node.told : nullptr, node.joining ? &node.decision : nullptr}) {
      if (verdict == nullptr) continue;
      add(key, verdict->committed);
      add(key, verdict->roster);
    }
  }
  return key;
}

inline std::string text_of(const World& world) {
  std::string text;
  for (const Node& node : world.nodes) {
    text += fmt::format("node {}: {}{}{}{}, {}; ", node.report.node, node.dead ? "dead " : "", node.cut ? "cut " : "",
                        node.seeking ? "seeks " : "", node.joining ? "joins" : "", node.report.text());
  }
  return text;
}

inline bool reach(const Node& a, const Node& b) {
  return !a.cut && !b.cut;
}

/// Whether it is past exchange k + 1, or so far in it as `now` says of the one it is in.
inline bool has(const Node& node, int64_t k, bool now) {
  return node.report.committed > k || (node.report.committed == k && now);
}

inline int64_t epoch_of(const Node& node) {
  return node.report.formed.epoch;
}

}  // namespace prunex::comm::model
