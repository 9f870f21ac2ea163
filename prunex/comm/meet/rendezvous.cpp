#include "prunex/comm/meet/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "prunex/comm/watch/signals.h"
#include "prunex/say.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirst{5'000}, kThen{30'000};  // when a rank says what it waits for
constexpr int kUntold = -1;
constexpr const char* kStoreCard = "store";  // in torchrun's store: where the run's own one is
constexpr milliseconds kLook{250};           // between two looks at who is missing

std::string text_of(Clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string text_of(const Seat& seat) {
  return fmt::format("{} {} {}", seat.node.value_or(kUntold), seat.local_rank, seat.local_size);
}

Seat seat_of(const std::string& text, int rank, int ranks) {
  Seat seat;
  int node = kUntold;
  std::istringstream fields(text);
  const bool read = static_cast<bool>(fields >> node >> seat.local_rank >> seat.local_size);
  if (!read || seat.local_size < 1 || seat.local_size > ranks || seat.local_rank < 0 || node < kUntold) {
    throw std::runtime_error(fmt::format(
        "[comm] rank {} left a card that is none: wanted \"node local_rank ranks\" of {} ranks", rank, ranks));
  }
  if (node != kUntold) seat.node = node;
  return seat;
}

[[noreturn]] void refuse(size_t rank, const Seat& got, const Seat& wanted) {
  const auto node = got.node ? fmt::format(" on node {}", *got.node) : "";
  throw std::invalid_argument(fmt::format(
      "rank {} is local rank {} of {}{}: wanted local rank {} of {} on node {}; ranks must be numbered node "
      "by node (torchrun, srun --distribution=block, mpirun --map-by slot)",
      rank, got.local_rank, got.local_size, node, wanted.local_rank, wanted.local_size, *wanted.node));
}

// "missing ranks 1, 3"
std::string missing_ranks(std::vector<int> ranks) {
  constexpr size_t kNamed = 16;
  const size_t count = ranks.size();
  if (count > kNamed) ranks.resize(kNamed);
  const auto more = count > kNamed ? fmt::format(" and {} more", count - kNamed) : "";
  return fmt::format("missing rank{} {}{}", count > 1 ? "s" : "", fmt::join(ranks, ", "), more);
}

// What the store listens on: where MASTER_ADDR leads to on this machine, and, since a host name may lead to loopback
// here and elsewhere not, the interface that was named. If it leads elsewhere (to what forwards connections), the
// interface, or what the host name stands for.
std::vector<std::string> hosts_of_store(const Environment& environment, const std::vector<std::string>& interfaces,
                                        Join& join) {
  auto resolution = resolve_host(environment.master_address, join.deadline());
  while (!resolution.problem.empty() && !join.over()) {
    join.waits_for(fmt::format("MASTER_ADDR {}: {}", environment.master_address, resolution.problem));
    std::this_thread::sleep_for(kLook);
    resolution = resolve_host(environment.master_address, join.deadline());
  }
  if (!resolution.problem.empty()) {
    throw std::runtime_error(fmt::format("[comm] MASTER_ADDR {}: {}; gave up after {} (`join_timeout`)",
                                         environment.master_address, resolution.problem, join.limit()));
  }
  auto& hosts = resolution.hosts;
  std::erase_if(hosts, [](const auto& host) { return !is_own_address(host); });
  if (!interfaces.empty()) hosts.push_back(address_of_interface(interfaces.front()));
  if (hosts.empty()) hosts.push_back(address_of_host_name());
  std::vector<std::string> once;
  for (const auto& host : hosts) {
    if (std::find(once.begin(), once.end(), host) == once.end()) once.push_back(host);
  }
  const bool named = environment.master_address != "localhost" && !is_loopback(environment.master_address);
  const bool alone = environment.seat.local_size == environment.world_size;
  if (named && !alone && std::all_of(once.begin(), once.end(), is_loopback)) {
    say(
        fmt::format("prunex: MASTER_ADDR {} is {} on rank 0's machine: other machines cannot reach it; `interface` "
                    "names the network\n",
                    environment.master_address, fmt::join(once, ", ")));
  }
  return once;
}

Endpoint read_store_card(Store& launchers, Join& join) {
  join.waits_for("rank 0 has not come");
  const auto card = launchers.get(kStoreCard, join.left());
  if (!card)
    throw std::runtime_error(fmt::format("[comm] rank 0 did not come within {} (`join_timeout`)", join.limit()));
  Endpoint store;
  std::istringstream fields(*card);
  if (fields >> store.host >> store.port) return store;
  throw std::runtime_error("[comm] rank 0 left a card that is none: wanted \"address port\"");
}

std::unique_ptr<StoreServer> host_store(const StoreServerOptions& options) {
  try {
    return std::make_unique<StoreServer>(options);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        fmt::format("[comm] MASTER_ADDR, MASTER_PORT: the store cannot {}; wanted a free port", said_by(error)));
  }
}

}  // namespace

Join::Join(milliseconds limit, bool announce) : limit_(limit) {
  if (announce) thread_ = std::thread([this] { this->announce(); });
}

Join::~Join() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

milliseconds Join::left() const {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline() - Clock::now()), milliseconds(1));
}

std::string Join::limit() const {
  return text_of(limit_);
}

void Join::waits_for(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void Join::announce() {
  block_all_signals();
  auto next = begin_ + std::min(kFirst, limit_ / 4);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_until(lock, next, [&] { return over_; })) {
    next += std::min(kThen, limit_ / 4);
    if (what_.empty()) continue;
    const auto line = fmt::format("prunex: {}; waiting for {}, gives up after {} (the join timeout)\n", what_,
                                  text_of(Clock::now() - begin_), limit());
    say(line);
  }
}

RunStore meet(const Environment& environment, const std::vector<std::string>& interfaces, const Privacy& privacy,
              const PortRange& ports, Join& join) {
  StorePlace place = {environment.master_address, environment.master_port,
                      store_key(privacy, environment.store_secret)};
  std::unique_ptr<Store> launchers;
  if (environment.store_host == StoreHost::kTorchrun) {
    // A launcher that restarts its ranks keeps the store, with the keys of the failed attempt.
    launchers = reach_torch_store(place, fmt::format("prunex/{}/", environment.restart_count), join);
    if (privacy.secret.empty()) return {nullptr, std::move(launchers)};
    place.port = 0;
  }
  RunStore run;
  if (environment.rank == 0 && environment.store_host != StoreHost::kLauncher) {
    const auto hosts = hosts_of_store(environment, interfaces, join);
    run.server = host_store({hosts, place.port, environment.world_size, place.key, ports});
    place = {hosts.front(), run.server->port(), place.key};
    if (launchers) launchers->set(kStoreCard, fmt::format("{} {}", hosts.back(), place.port));
  } else if (launchers) {
    const Endpoint store = read_store_card(*launchers, join);
    place = {store.host, store.port, place.key};
  }
  run.client = reach_store(place, join);
  return run;
}

std::vector<std::string> exchange_cards(const Meeting& meeting, const std::string& topic, const Place& place,
                                        const std::string& card) {
  const auto key = [&](int rank) { return fmt::format("{}/{}", topic, rank); };
  meeting.store.set(key(place.rank), card);
  std::vector<std::string> cards(static_cast<size_t>(place.size));
  std::vector<int> missing(cards.size());
  std::iota(missing.begin(), missing.end(), 0);
  const auto look_for = [&](int rank, milliseconds wait) {
    auto theirs = meeting.store.get(key(rank), wait);
    if (theirs) cards[static_cast<size_t>(rank)] = std::move(*theirs);
    return theirs.has_value();
  };
  while (!missing.empty()) {
    if (look_for(missing.front(), std::min(meeting.join.left(), kLook))) {
      missing.erase(missing.begin());
      continue;
    }
    std::erase_if(missing, [&](int rank) { return look_for(rank, milliseconds(1)); });
    if (missing.empty()) break;
    const auto joined = fmt::format("{} of {} ranks joined", cards.size() - missing.size(), cards.size());
    if (meeting.join.over()) {
      throw std::runtime_error(fmt::format("[comm] {} within {}: {} (`join_timeout`)", joined, meeting.join.limit(),
                                           missing_ranks(missing)));
    }
    // The first of those who have joined speaks for all.
    const bool speaks =
        std::count_if(missing.begin(), missing.end(), [&](int r) { return r < place.rank; }) == place.rank;
    meeting.join.waits_for(speaks ? joined + ": " + missing_ranks(missing) : "");
  }
  meeting.join.waits_for("");
  return cards;
}

std::string shown(const std::string& text) {
  constexpr size_t kMost = 200;
  std::string fit = text.substr(0, kMost) + (text.size() > kMost ? "…" : "");
  std::replace_if(
      fit.begin(), fit.end(), [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
  return fit;
}

std::vector<int> node_sizes_of(const std::vector<Seat>& seats) {
  std::vector<int> sizes;
  int local_rank = 0;
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const Seat& seat = seats[rank];
    const bool first = sizes.empty() || local_rank == sizes.back();
    if (first) {
      local_rank = 0;
      sizes.push_back(seat.local_size);
    }
    const Seat wanted = {static_cast<int>(sizes.size()) - 1, local_rank, sizes.back()};
    const bool fits = seat.local_rank == wanted.local_rank && seat.local_size == wanted.local_size;
    if (!fits || seat.node.value_or(*wanted.node) != *wanted.node) refuse(rank, seat, wanted);
    ++local_rank;
  }
  if (local_rank != sizes.back()) {
    throw std::invalid_argument(
        fmt::format("rank {} is the last one and local rank {} of {} on node {}: {} are missing", seats.size() - 1,
                    local_rank - 1, sizes.back(), sizes.size() - 1, sizes.back() - local_rank));
  }
  return sizes;
}

Layout find_layout(const Environment& environment, const Meeting& meeting) {
  std::vector<Seat> seats;
  const Place place = {environment.rank, environment.world_size};
  for (const auto& card : exchange_cards(meeting, "seat", place, text_of(environment.seat))) {
    seats.push_back(seat_of(card, static_cast<int>(seats.size()), place.size));
  }
  return {node_sizes_of(seats), environment.rank};
}

}  // namespace prunex::comm
