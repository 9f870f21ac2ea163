// How those who are left of a run find each other and connect anew.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/watch/watch.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAskEvery{20};               // between two looks at who has come
constexpr milliseconds kConnectWithin{5'000};       // for those who were told to connect, at least
constexpr milliseconds kConnectPerRank{1'000};      // and for each of them, one after the other asks over long links
constexpr milliseconds kGpusConnectWithin{60'000};  // NCCL makes each group within seconds, on many machines more
constexpr milliseconds kConnectsSoon{200};          // who takes longer is asked for signs of life

}  // namespace

/// Asks for signs of life of ranks that have not come.
class Elastic::Inquiries {
 public:
  Inquiries(const Elastic& of, Missing& missing) : of_(of), missing_(missing), calls_(of.door_key(), of.report()) {}

  /// Whether somebody has gone on without this node.
  bool is_out() const { return is_out_; }

  /// Returns those of which every rank has come, or answered when it was last asked.
  std::vector<int> ask(const std::vector<int>& nodes, const std::vector<Report>& here) {
    std::vector<int> there;
    for (const int node : nodes) {
      bool all = true;
      for (int i = 0; i < of_.ranks_of_[static_cast<size_t>(node)]; ++i) {
        const bool came =
            std::any_of(here.begin(), here.end(), [&](const Report& r) { return r.node == node && r.local_rank == i; });
        if (!came) all = ask(node, i) && all;
      }
      if (all) there.push_back(node);
    }
    return there;
  }

 private:
  bool ask(int node, int local_rank) {
    const Endpoint& door = of_.doors_[static_cast<size_t>(node)][static_cast<size_t>(local_rank)];
    const auto presence = calls_.ask(door, of_.patience_with(node));
    if (presence == Presence::kEnded) missing_.dead.insert(node);
    if (presence == Presence::kSilent) missing_.silent.insert(node);
    if (presence == Presence::kWentOn) is_out_ = true;
    return calls_.is_there(door);
  }

  const Elastic& of_;
  Missing& missing_;
  RollCall calls_;
  bool is_out_ = false;
};

/// While the ranks of a roster connect: if one is lost meanwhile, the others do not wait until it should have come.
class Elastic::Escort {
 public:
  Escort(Elastic& of, const Roster& roster) : of_(of), roster_(roster), thread_([this] { watch(); }) {}
  ~Escort() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Escort(const Escort&) = delete;
  Escort& operator=(const Escort&) = delete;

 private:
  bool over_after(milliseconds pause) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, pause, [this] { return over_; });
  }

  /// Whether a rank that had agreed to the roster seeks anew.
  bool has_given_up() const {
    const auto reports = of_.door_->reports();
    return std::any_of(reports.begin(), reports.end(), [this](const Report& report) {
      return std::find(report.agreed.begin(), report.agreed.end(), roster_) != report.agreed.end();
    });
  }

  /// Without a store nobody connects.
  void watch() {
    if (over_after(kConnectsSoon)) return;
    Missing missing;
    Inquiries others(of_, missing);
    while (missing.dead.empty() && missing.silent.empty() && !others.is_out() && !has_given_up()) {
      others.ask(roster_.nodes, {});
      if (over_after(kAskEvery)) return;
    }
    of_.store_.reset();
  }

  Elastic& of_;
  const Roster& roster_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

std::string Elastic::Decision::text() const {
  return fmt::format("{} {} {}", committed, store.text(), roster.text());
}

Elastic::Decision Elastic::Decision::from_text(const std::string& text) {
  Decision decision;
  std::istringstream fields(text);
  const bool fits =
      static_cast<bool>(fields >> decision.committed) && decision.store.read(fields) && decision.roster.read(fields);
  if (!fits) throw std::runtime_error("[comm] a decision that is none");
  return decision;
}

Change Elastic::regroup() {
  ranks_.watch->abort_switch()->abort("the nodes regroup");
  if (const auto rank = ranks_.watch->silent_rank()) {
    silent_ = formed_.nodes[static_cast<size_t>(ranks_.layout.node_of(*rank))];
  }
  return settle(std::nullopt);
}

/// Connects as decided, or as is decided next if somebody does not come.
Change Elastic::settle(std::optional<Decision> decision) {
  const auto begin = Clock::now();
  const Roster before = formed_;
  for (;; decision.reset()) {
    if (!decision) decision = seek();
    if (agreed_.size() == kMostAgreed) {
      throw std::runtime_error(fmt::format("[comm] the nodes met {} times and could never connect", kMostAgreed));
    }
    agreed_.push_back(decision->roster);
    seen_ = std::max(seen_, decision->roster.epoch);
    try {
      std::optional<Escort> escort;
      if (store_) escort.emplace(*this, decision->roster);
      Hierarchy next = connect_in(*decision);
      escort.reset();  // it reads ranks_
      ranks_ = std::move(next);
      break;
    } catch (const std::runtime_error& error) {
      say(fmt::format("{}: the nodes meet again", error.what()));
      store_.reset();
      door_->dismiss();
    }
  }
  store_.reset();
  silent_.reset();
  formed_ = decision->roster;
  agreed_.clear();
  door_->dismiss();
  door_->set_formed(formed_, door_of(formed_.nodes.front()));
  Change change{.roster = formed_, .transactions = decision->committed};
  committed_ = decision->committed;
  entered_ = false;
  for (const int node : before.nodes) {
    if (formed_.has(node)) continue;
    change.lost.push_back(node);
    const auto joined = joined_at_.find(node);
    const bool took_part = options_.join_at_once || joined == joined_at_.end() || joined->second < committed_;
    if (took_part) change.ranks_lost += ranks_of_[static_cast<size_t>(node)];
  }
  for (const int node : formed_.nodes) {
    if (before.has(node)) continue;
    change.joined.push_back(node);
    joined_at_[node] = committed_;
  }
  weigh();
  open_entrance();
  change.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return change;
}

/// A node that has been silent for long enough to be lost gets a second chance, not all of that time again.
milliseconds Elastic::patience_with(int node) const {
  return node == silent_ ? options_.silence / 2 : options_.silence;
}

std::string Elastic::without_this_node() const {
  return fmt::format("[comm] the others went on without this node, {}", node_);
}

/// The lowest node that may be there.
int Elastic::leader(const Missing& missing) const {
  for (const int node : candidates({report()})) {
    if (node == node_) return node;
    if (!missing.has(node)) return node;
  }
  return node_;
}

Elastic::Decision Elastic::seek() {
  Missing missing;
  std::set<int> late;  // they are there, and do not answer
  for (;;) {
    const int node = leader(missing);
    const bool leads = node == node_ && local_rank_ == 0;
    if (const auto decision = leads ? lead(missing) : follow(node, missing, late)) return *decision;
    if (leads) continue;  // a lower node is there again
    if (!missing.has(node_)) continue;
    throw std::runtime_error(fmt::format("[comm] {} 0 of this node, {}: the node is lost", kLostRank, node_));
  }
}

/// What that node's first rank says; else `missing` has learnt of it, or it is to be asked again. It answers within the
/// time that it may wait for others itself, unless it stands still although its process lives. Or a lower node that had
/// been silent is there again: by then this one may follow that, and nobody looks at its door.
std::optional<Elastic::Decision> Elastic::follow(int node, Missing& missing, std::set<int>& late) {
  const Endpoint& door = door_of(node);
  const auto silence = patience_with(node);
  Call call(door, door_key(), report(), silence);
  Inquiries others(*this, missing);
  const auto begin = Clock::now(), end = begin + 2 * options_.timeout;
  for (;;) {
    const auto answer = call.hear(kAskEvery);
    if (!answer) {
      if (Clock::now() < begin + silence) continue;  // an inquiry outlives the decision by as long
      std::vector<int> lower;
      std::copy_if(missing.silent.begin(), missing.silent.lower_bound(node), std::back_inserter(lower),
                   [&](int silent) { return late.count(silent) == 0; });
      const std::vector<int> back = others.ask(lower, {});
      if (others.is_out()) throw LeftBehind(without_this_node());
      for (const int there : back) missing.silent.erase(there);
      if (!back.empty()) return std::nullopt;
      if (Clock::now() < end) continue;
      missing.silent.insert(node);
      late.insert(node);
      return std::nullopt;
    }
    if (answer->is_out) throw LeftBehind(without_this_node());
    if (!answer->message.empty()) return Decision::from_text(answer->message);
    auto presence = answer->presence;
    if (presence == Presence::kBroken) presence = presence_at(door, door_key(), silence);
    if (presence == Presence::kEnded) missing.dead.insert(node);
    if (presence == Presence::kSilent) missing.silent.insert(node);
    if (presence == Presence::kThere) missing.silent.clear();  // it may have found them
    return std::nullopt;
  }
}

/// As the first rank of the lowest node: waits for all who live, decides, tells them. Nothing if it is not the lowest
/// any more: one that had been silent is there again.
std::optional<Elastic::Decision> Elastic::lead(Missing& missing) {
  Inquiries others(*this, missing);
  std::set<int> late;  // they are there, and do not come
  const auto begin = Clock::now();
  constexpr auto kNever = Clock::time_point::max();
  auto gives_up = kNever;
  for (;; std::this_thread::sleep_for(kAskEvery)) {
    std::vector<Report> here = door_->reports();
    here.push_back(report());
    for (const int node : complete_nodes(here, ranks_of_)) missing.silent.erase(node);
    for (size_t node = 0; node < doors_.size(); ++node) {  // who waits to be let in goes on nowhere
      const bool waits = std::any_of(doors_[node].begin(), doors_[node].end(),
                                     [this](const Endpoint& door) { return door_->is_waiting(door); });
      if (waits) missing.dead.insert(static_cast<int>(node));
    }
    const Verdict verdict = decide(here, missing, ranks_of_, options_.least_nodes);
    if (missing.has(node_)) {
      throw std::runtime_error(fmt::format("[comm] {} of this node, {}: the node is lost", kLostRank, node_));
    }
    if (others.is_out()) throw LeftBehind(without_this_node());
    switch (verdict.kind) {
      case Verdict::Kind::kGo:
        return decided(verdict);
      case Verdict::Kind::kTooFew:
        throw std::runtime_error("[comm] " + verdict.why);
      case Verdict::Kind::kWait:
        gives_up = kNever;
        if (Clock::now() - begin > options_.timeout) {
          missing.silent.insert(verdict.waiting.begin(), verdict.waiting.end());
          late.insert(verdict.waiting.begin(), verdict.waiting.end());
        }
        others.ask(verdict.waiting, here);
        break;
      case Verdict::Kind::kNoQuorum:
        if (gives_up == kNever) {
          gives_up = Clock::now() + options_.patience;
          say(fmt::format("{}; looking for them for {} s", verdict.why, options_.patience.count() / 1000));
        }
        if (Clock::now() > gives_up) {
          throw std::runtime_error(
              fmt::format("[comm] {}: gave up after {} s", verdict.why, options_.patience.count() / 1000));
        }
        const std::vector<int> silent(missing.silent.begin(), missing.silent.end());
        for (const int node : others.ask(silent, here)) {
          if (late.count(node) == 0) missing.silent.erase(node);
        }
        if (leader(missing) == node_) break;
        door_->dismiss();
        return std::nullopt;
    }
  }
}

Elastic::Decision Elastic::decided(const Verdict& verdict) {
  const Decision decision{
      .roster = verdict.roster, .committed = verdict.committed, .store = open_store(verdict.roster)};
  door_->tell(decision.roster, decision.text());
  return decision;
}

Hierarchy Elastic::connect_in(const Decision& decision) const {
  const Layout layout = layout_of(decision.roster);
  const auto within = std::max(ranks_.device.is_cuda() ? kGpusConnectWithin : kConnectWithin, 2 * options_.silence) +
                      layout.world_size() * kConnectPerRank;
  Join join(within);
  const auto store =
      layout.world_size() == 1
          ? make_memory_store()
          : reach_store({decision.store.host, decision.store.port, store_key(ranks_.privacy, token_)}, join);
  return ranks_.connect_others(layout, *store, within);
}

}  // namespace prunex::comm
