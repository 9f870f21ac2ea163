#include "prunex/comm/elastic/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

namespace prunex::comm {
namespace {

constexpr size_t kMostNodes = 1 << 16;

/// The rosters that those who go on need a quorum of: what was agreed to before the newest formed one is history.
std::vector<Roster> rosters_to_win(const std::vector<Report>& here) {
  const auto newest = std::max_element(
      here.begin(), here.end(), [](const Report& a, const Report& b) { return a.formed.epoch < b.formed.epoch; });
  std::vector<Roster> rosters{newest->formed};
  for (const Report& report : here) {
    for (const Roster& roster : report.agreed) {
      const bool known = std::find(rosters.begin(), rosters.end(), roster) != rosters.end();
      if (roster.epoch > newest->formed.epoch && !known) rosters.push_back(roster);
    }
  }
  return rosters;
}

/// Nodes of the roster that are here.
std::vector<int> members_here(const Roster& roster, const std::set<int>& complete) {
  std::vector<int> members;
  std::copy_if(roster.nodes.begin(), roster.nodes.end(), std::back_inserter(members),
               [&](int node) { return complete.count(node) > 0; });
  return members;
}

/// Why the nodes may not go on for this roster; empty if they may.
std::string why_not(const Roster& roster, const std::vector<int>& members, const std::set<int>& dead, int least) {
  std::vector<int> alive;  // as far as anybody knows
  std::copy_if(roster.nodes.begin(), roster.nodes.end(), std::back_inserter(alive),
               [&](int node) { return dead.count(node) == 0; });
  if (2 * members.size() > alive.size()) return "";
  const bool half = 2 * members.size() == alive.size() && !members.empty();
  if (half && (members.front() == alive.front() || (alive.size() == 2 && least == 1))) return "";
  return fmt::format("{} of {} nodes are here, and the others may go on without them", members.size(), alive.size());
}

/// Once one rank has heard that all have a transaction, all have entered it: who has not heard takes it.
int64_t agreed_transactions(const std::vector<Report>& here) {
  int64_t most = 0;
  bool all_entered = true;
  for (const Report& report : here) most = std::max(most, report.committed);
  for (const Report& report : here) {
    const int64_t has = report.committed + (report.entered ? 1 : 0);
    if (has < most) {
      throw std::runtime_error(
          fmt::format("[comm] rank {} of node {} has {} transactions, another one {}: wanted at most "
                      "one less, and that begun",
                      report.local_rank, report.node, report.committed, most));
    }
    all_entered = all_entered && has > most;
  }
  return all_entered ? most + 1 : most;
}

}  // namespace

bool Roster::has(int node) const {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

std::string Roster::text() const {
  return fmt::format("{} {} {}", epoch, nodes.size(), fmt::join(nodes, " "));
}

bool Roster::read(std::istream& text) {
  size_t count = 0;
  if (!(text >> epoch >> count) || count > kMostNodes) return false;
  nodes.resize(count);
  for (int& node : nodes) {
    if (!(text >> node)) return false;
  }
  return std::is_sorted(nodes.begin(), nodes.end());
}

std::string Report::text() const {
  std::string text = fmt::format("{} {} {} {} {} {} {}", node, local_rank, seen, committed, entered ? 1 : 0,
                                 formed.text(), agreed.size());
  for (const Roster& roster : agreed) text.append(" ").append(roster.text());
  return text;
}

Report Report::from_text(const std::string& text) {
  std::istringstream fields(text);
  Report report;
  size_t agreed = 0;
  bool fits = static_cast<bool>(fields >> report.node >> report.local_rank >> report.seen >> report.committed >>
                                report.entered) &&
              report.formed.read(fields) && static_cast<bool>(fields >> agreed) && agreed <= kMostAgreed;
  report.agreed.resize(fits ? agreed : 0);
  for (Roster& roster : report.agreed) fits = fits && roster.read(fields);
  if (!fits || report.node < 0 || report.local_rank < 0) throw std::runtime_error("[comm] a report that is none");
  return report;
}

std::set<int> candidates(const std::vector<Report>& here) {
  std::set<int> nodes;
  for (const Roster& roster : rosters_to_win(here)) nodes.insert(roster.nodes.begin(), roster.nodes.end());
  return nodes;
}

std::set<int> complete_nodes(const std::vector<Report>& here, const RanksOf& ranks_of) {
  std::map<int, int> count;
  for (const Report& report : here) ++count[report.node];
  std::set<int> complete;
  for (const auto& [node, ranks] : count) {
    if (ranks == ranks_of.at(static_cast<size_t>(node))) complete.insert(node);
  }
  return complete;
}

Verdict decide(const std::vector<Report>& here, const Missing& missing, const RanksOf& ranks_of, int least) {
  Verdict verdict;
  const std::set<int> complete = complete_nodes(here, ranks_of);
  const std::vector<Roster> rosters = rosters_to_win(here);
  for (const int node : candidates(here)) {
    if (!missing.has(node) && complete.count(node) == 0) verdict.waiting.push_back(node);
  }
  if (!verdict.waiting.empty()) return verdict;

  const auto& formed = rosters.front().nodes;
  if (std::all_of(formed.begin(), formed.end(), [&](int node) { return missing.dead.count(node) > 0; })) {
    verdict.kind = Verdict::Kind::kTooFew;
    verdict.why = "nobody is left who has what the run has come to";
    return verdict;
  }
  std::set<int> present = complete;  // who is here and does not go on will be told, and goes on nowhere else
  for (const int node : missing.dead) present.erase(node);  // one of its ranks has ended
  const std::vector<int> members = members_here(rosters.front(), present);
  for (const Roster& roster : rosters) {
    verdict.why = why_not(roster, members_here(roster, present), missing.dead, least);
    if (verdict.why.empty()) continue;
    verdict.kind = Verdict::Kind::kNoQuorum;
    return verdict;
  }
  if (static_cast<int>(members.size()) < least) {
    verdict.kind = Verdict::Kind::kTooFew;
    verdict.why = fmt::format("{} of {} nodes are left, fewer than `min_nodes` {}", members.size(),
                              rosters.front().nodes.size(), least);
    return verdict;
  }
  verdict.kind = Verdict::Kind::kGo;
  verdict.committed = agreed_transactions(here);
  int64_t seen = 0;
  for (const Report& report : here) seen = std::max(seen, report.seen);
  verdict.roster = {seen + 1, members};
  return verdict;
}

}  // namespace prunex::comm
