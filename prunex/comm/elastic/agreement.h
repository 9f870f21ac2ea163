// Who goes on when nodes are lost: decided from what those who are left say, by nothing else.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

namespace prunex::comm {

constexpr size_t kMostAgreed = 64;  ///< rosters in a report: so often the nodes try to connect

/// The nodes of a run between two changes, by numbers that are given once, ascending.
struct Roster {
  int64_t epoch = 0;
  std::vector<int> nodes;

  bool has(int node) const;
  /// Numbers in a line; read() is false for what is none.
  std::string text() const;
  bool read(std::istream& text);
  bool operator==(const Roster&) const = default;
};

/// What a rank says of itself when it looks for the others.
struct Report {
  int node = 0;
  int local_rank = 0;
  /// The newest roster in which all ranks are known to have met.
  Roster formed;
  /// Newer ones that this rank agreed to without hearing that all had, oldest first.
  std::vector<Roster> agreed = {};
  int64_t seen = 0;  ///< the highest epoch it knows of
  /// Transactions that all ranks are known to have.
  int64_t committed = 0;
  /// Whether it has the next one too, but for the word that all have.
  bool entered = false;

  /// As a line of numbers; from_text() throws std::runtime_error for what is none.
  std::string text() const;
  static Report from_text(const std::string& text);
};

/// What is known of ranks that do not report.
struct Missing {
  std::set<int> dead;    ///< nodes of which a process has ended: its machine said so
  std::set<int> silent;  ///< nodes that do not answer: dead, or cut off and going on

  bool has(int node) const { return dead.count(node) > 0 || silent.count(node) > 0; }
};

struct Verdict {
  enum class Kind { kWait, kGo, kNoQuorum, kTooFew };
  Kind kind = Kind::kWait;
  std::string why;                ///< of kNoQuorum and kTooFew, as a clause
  Roster roster = {};             ///< of kGo: those who go on
  int64_t committed = 0;          ///< of kGo: transactions that they have, once who entered the next one has taken it
  std::vector<int> waiting = {};  ///< of kWait: nodes that may yet come
};

/// How many ranks the nodes hold, by their numbers.
using RanksOf = std::vector<int>;

/// Nodes all of whose ranks are here.
std::set<int> complete_nodes(const std::vector<Report>& here, const RanksOf& ranks_of);

/// Rules of docs/elastic.md. A node is here once all of its ranks are. Those go on who are more
/// than half of the newest formed roster, and of every newer one that somebody agreed to, not counting the dead; where
/// it is half, the half with the lowest number. With `least` = 1, either of two. Fewer than `least` never go on.
Verdict decide(const std::vector<Report>& here, const Missing& missing, const RanksOf& ranks_of, int least);

/// The nodes that `here` know of and that may take part in the decision.
std::set<int> candidates(const std::vector<Report>& here);

}  // namespace prunex::comm
