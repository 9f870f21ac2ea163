#include "prunex/comm/elastic/elastic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/watch/watch.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAskEvery{20};          // between two looks at who has come
constexpr milliseconds kConnectWithin{5'000};  // for those who were told to connect, at least
constexpr int64_t kCardBytes = 64;             // "address port"
constexpr int64_t kTokenWords = 4;

std::string random_words(int64_t count) {
  std::random_device random;
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += fmt::format("{:08x}", random());
  return text;
}

/// Rank 0's text, of so many bytes, on all ranks.
std::string broadcast(Communicator& world, const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  world.broadcast(bytes);
  return {static_cast<const char*>(bytes.const_data_ptr()), text.size()};
}

std::vector<std::string> gather(Communicator& world, const std::string& card) {
  TORCH_CHECK(static_cast<int64_t>(card.size()) < kCardBytes, "[comm] a card of ", card.size(), " bytes");
  at::Tensor mine = at::zeros({kCardBytes}, at::kByte);
  std::memcpy(mine.data_ptr(), card.data(), card.size());
  at::Tensor all = at::zeros({world.size(), kCardBytes}, at::kByte);
  world.all_gather(all, mine);
  if (world.size() == 1) all.copy_(mine);
  std::vector<std::string> cards;
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    cards.emplace_back(static_cast<const char*>(all[rank].const_data_ptr()));
  }
  return cards;
}

Endpoint endpoint_of(const std::string& card) {
  Endpoint endpoint;
  std::istringstream fields(card);
  fields >> endpoint.host >> endpoint.port;
  return endpoint;
}

}  // namespace

std::string Elastic::Decision::text() const {
  return fmt::format("{} {} {} {} {} {}", committed, store.host, store.port, roster.epoch, roster.nodes.size(),
                     fmt::join(roster.nodes, " "));
}

Elastic::Decision Elastic::Decision::from_text(const std::string& text) {
  Decision decision;
  std::istringstream fields(text);
  size_t count = 0;
  bool fits = static_cast<bool>(fields >> decision.committed >> decision.store.host >> decision.store.port >>
                                decision.roster.epoch >> count) &&
              count <= text.size();
  decision.roster.nodes.resize(fits ? count : 0);
  for (int& node : decision.roster.nodes) fits = fits && static_cast<bool>(fields >> node);
  if (!fits) throw std::runtime_error("[comm] a decision that is none");
  return decision;
}

Elastic::Elastic(Hierarchy& ranks, const ElasticOptions& options)
    : ranks_(ranks),
      options_(options),
      node_(ranks.layout.node()),
      local_rank_(ranks.layout.local_rank()),
      ranks_of_(ranks.layout.node_sizes),
      committed_(options.exchanges) {
  TORCH_CHECK(ranks.layout.sites == 1, "[comm] an elastic run on ", ranks.layout.sites, " sites");
  if (!ranks.connect_others) throw std::invalid_argument("`elastic`: another program has connected these ranks");
  const std::string token = broadcast(*ranks.world, random_words(kTokenWords));
  door_key_ = link_key(ranks.privacy, "door", token);
  store_key_ = store_key(ranks.privacy, token);
  const auto silence = options_.silence;
  const std::string address = ranks.address.empty() ? "127.0.0.1" : ranks.address;
  door_ = std::make_unique<Door>(address, door_key_, std::min(milliseconds(300), silence / 5));
  const auto cards = gather(*ranks.world, fmt::format("{} {}", address, door_->endpoint().port));
  size_t rank = 0;
  for (const int size : ranks_of_) {
    auto& doors = doors_.emplace_back();
    for (int i = 0; i < size; ++i) doors.push_back(endpoint_of(cards[rank++]));
    formed_.nodes.push_back(static_cast<int>(formed_.nodes.size()));
  }
  door_->set_formed(formed_);
}

Elastic::~Elastic() = default;

void Elastic::commit(int64_t exchange, uint64_t hash) {
  TORCH_CHECK(exchange == committed_ + 1, "[comm] exchange ", exchange, " after ", committed_);
  entered_ = true;
  Communicator& world = *ranks_.world;
  at::Tensor mine = at::full({1}, static_cast<int64_t>(hash), at::kLong);
  at::Tensor all = at::zeros({world.size(), 1}, at::kLong);
  world.all_gather(all, mine);
  committed_ = exchange;
  entered_ = false;
  for (int rank = 0; world.size() > 1 && rank < world.size(); ++rank) {
    if (all[rank].equal(mine)) continue;
    throw std::logic_error(fmt::format("[comm] after exchange {} rank {} has {:016x}, rank {} {:016x}", exchange,
                                       ranks_.layout.rank, hash, rank,
                                       static_cast<uint64_t>(all[rank].item<int64_t>())));
  }
}

bool Elastic::has_lost() const {
  return !ranks_.watch->abort_switch()->reason(options_.silence).empty();
}

void Elastic::say(const std::string& line) const {
  if (options_.say) options_.say(line);
}

Report Elastic::report() const {
  return {.node = node_,
          .local_rank = local_rank_,
          .formed = formed_,
          .agreed = agreed_,
          .seen = seen_,
          .committed = committed_,
          .entered = entered_};
}

Change Elastic::regroup() {
  const auto begin = Clock::now();
  ranks_.watch->abort_switch()->abort("the nodes regroup");
  const Roster before = formed_;
  for (;;) {
    const Decision decision = seek();
    agreed_.push_back(decision.roster);
    seen_ = std::max(seen_, decision.roster.epoch);
    try {
      Hierarchy next = connect_in(decision);
      ranks_ = std::move(next);
    } catch (const std::runtime_error& error) {
      say(fmt::format("{}: the nodes meet again", error.what()));
      store_.reset();
      door_->dismiss();
      continue;
    }
    store_.reset();
    formed_ = decision.roster;
    agreed_.clear();
    door_->dismiss();
    door_->set_formed(formed_);
    Change change{.roster = formed_, .exchange = decision.committed, .adopts = decision.committed > committed_};
    committed_ = decision.committed;
    entered_ = false;
    for (const int node : before.nodes) {
      if (!formed_.has(node)) change.lost.push_back(node);
    }
    change.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return change;
  }
}

/// The lowest node that may be there.
int Elastic::leader(const Missing& missing) const {
  for (const int node : candidates({report()})) {
    if (node == node_) return node;
    if (missing.dead.count(node) == 0 && missing.silent.count(node) == 0) return node;
  }
  return node_;
}

Elastic::Decision Elastic::seek() {
  Missing missing;
  for (;;) {
    const int node = leader(missing);
    if (node == node_ && local_rank_ == 0) return lead(missing);
    bool heard = false;
    Decision decision = follow(node, missing, heard);
    if (heard) return decision;
    if (missing.dead.count(node_) == 0 && missing.silent.count(node_) == 0) continue;
    throw std::runtime_error(fmt::format("[comm] {} 0 of this node, {}: the node is lost", kLostRank, node_));
  }
}

/// What that node's first rank says; else `missing` has learnt of it, or it is to be asked again.
Elastic::Decision Elastic::follow(int node, Missing& missing, bool& heard) {
  const Endpoint& door = doors_[static_cast<size_t>(node)].front();
  const auto silence = options_.silence;
  const Report mine = report();
  Call call(door, door_key_, &mine, silence);
  for (;;) {
    const auto answer = call.hear(kAskEvery);
    if (!answer) continue;
    if (answer->is_out) {
      throw LeftBehind(fmt::format("[comm] the others went on without this node, {}", node_));
    }
    heard = !answer->message.empty();
    if (heard) return Decision::from_text(answer->message);
    auto presence = answer->presence;
    if (presence == Presence::kEnded && call.lives()) presence = presence_at(door, door_key_, silence);
    if (presence == Presence::kEnded) missing.dead.insert(node);
    if (presence == Presence::kSilent) missing.silent.insert(node);
    return {};
  }
}

/// Asks for signs of life of ranks that have not come.
class Elastic::Lead {
 public:
  Lead(const Elastic& of, Missing& missing) : of_(of), missing_(missing) {}

  void ask(const std::vector<int>& nodes, const std::vector<Report>& here) {
    for (const int node : nodes) {
      for (int i = 0; i < of_.ranks_of_[static_cast<size_t>(node)]; ++i) {
        const bool came =
            std::any_of(here.begin(), here.end(), [&](const Report& r) { return r.node == node && r.local_rank == i; });
        if (!came) ask(node, i);
      }
    }
  }

 private:
  void ask(int node, int local_rank) {
    auto& asked = asked_[{node, local_rank}];
    if (!asked.valid()) {
      const Endpoint door = of_.doors_[static_cast<size_t>(node)][static_cast<size_t>(local_rank)];
      const auto silence = of_.options_.silence;
      asked = std::async(std::launch::async, [door, silence, key = of_.door_key_] {
        const Presence presence = presence_at(door, key, silence);
        if (presence == Presence::kThere) std::this_thread::sleep_for(5 * kAskEvery);  // it may be a long wait
        return presence;
      });
      return;
    }
    if (asked.wait_for(milliseconds(0)) != std::future_status::ready) return;
    const Presence presence = asked.get();
    if (presence == Presence::kEnded) missing_.dead.insert(node);
    if (presence == Presence::kSilent) missing_.silent.insert(node);
  }

  const Elastic& of_;
  Missing& missing_;
  std::map<std::pair<int, int>, std::future<Presence>> asked_;
};

/// As the first rank of the lowest node: waits for all who live, decides, tells them.
Elastic::Decision Elastic::lead(Missing& missing) {
  Lead others(*this, missing);
  const auto begin = Clock::now();
  constexpr auto kNever = Clock::time_point::max();
  auto gives_up = kNever;
  for (;; std::this_thread::sleep_for(kAskEvery)) {
    std::vector<Report> here = door_->reports();
    here.push_back(report());
    for (const Report& report : here) missing.silent.erase(report.node);
    const Verdict verdict = decide(here, missing, ranks_of_, options_.least_nodes);
    if (missing.dead.count(node_) > 0) {
      throw std::runtime_error(fmt::format("[comm] {} of this node, {}: the node is lost", kLostRank, node_));
    }
    switch (verdict.kind) {
      case Verdict::Kind::kGo:
        return decided(verdict);
      case Verdict::Kind::kTooFew:
        throw std::runtime_error(
            fmt::format("[comm] {}, fewer than `min_nodes` {}", verdict.why, options_.least_nodes));
      case Verdict::Kind::kWait:
        gives_up = kNever;
        if (Clock::now() - begin > options_.timeout) {
          missing.silent.insert(verdict.waiting.begin(), verdict.waiting.end());
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
        others.ask(silent, here);
        break;
    }
  }
}

Elastic::Decision Elastic::decided(const Verdict& verdict) {
  Decision decision{.roster = verdict.roster, .committed = verdict.committed};
  int ranks = 0;
  for (const int node : verdict.roster.nodes) ranks += ranks_of_[static_cast<size_t>(node)];
  const std::string& address = door_->endpoint().host;
  store_ = std::make_unique<StoreServer>(StoreServerOptions{{address}, 0, ranks, store_key_});
  decision.store = {address, store_->port()};
  door_->tell(decision.roster, decision.text());
  return decision;
}

Layout Elastic::layout_of(const Roster& roster) const {
  Layout layout{.node_sizes = {}};
  for (const int node : roster.nodes) {
    const int size = ranks_of_[static_cast<size_t>(node)];
    if (node == node_) layout.rank = layout.node_sizes.empty() ? local_rank_ : layout.world_size() + local_rank_;
    layout.node_sizes.push_back(size);
  }
  return layout;
}

Hierarchy Elastic::connect_in(const Decision& decision) const {
  const auto within = std::max(kConnectWithin, 2 * options_.silence);
  Join join(within);
  const Layout layout = layout_of(decision.roster);
  const auto store = layout.world_size() == 1
                         ? make_memory_store()
                         : reach_store({decision.store.host, decision.store.port, store_key_}, join);
  return ranks_.connect_others(layout, *store, within);
}

}  // namespace prunex::comm
