#include "prunex/comm/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUntold = -1;

std::string text_of(const Seat& seat) {
  return fmt::format("{} {} {}", seat.node.value_or(kUntold), seat.local_rank, seat.local_size);
}

Seat seat_of(const std::string& text) {
  Seat seat;
  int node = kUntold;
  std::istringstream(text) >> node >> seat.local_rank >> seat.local_size;
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

}  // namespace

std::unique_ptr<Store> make_store(const Environment& environment, std::chrono::milliseconds timeout) {
  // A launcher that restarts its ranks keeps the store, with the keys of the failed attempt.
  const auto prefix = fmt::format("prunex/{}/", environment.restart_count);
  if (environment.rank == 0 && !environment.store_hosted) return host_tcp_store(environment.master_port, prefix).store;
  return reach_tcp_store(environment.master_address, environment.master_port, prefix, timeout);
}

std::vector<std::string> exchange_cards(Store& store, const std::string& topic, const Place& place,
                                        const std::string& card, std::chrono::milliseconds timeout) {
  const auto key = [&](int rank) { return fmt::format("{}/{}", topic, rank); };
  store.set(key(place.rank), card);
  const auto deadline = Clock::now() + timeout;
  std::vector<std::string> cards;
  std::vector<int> missing;
  for (int rank = 0; rank < place.size; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    auto theirs = store.get(key(rank), std::max(left, std::chrono::milliseconds(1)));
    if (theirs)
      cards.push_back(*theirs);
    else
      missing.push_back(rank);
  }
  if (missing.empty()) return cards;
  throw std::runtime_error(fmt::format("[comm] {} of {} ranks joined within {:g} s: missing rank{} {}", cards.size(),
                                       place.size, std::chrono::duration<double>(timeout).count(),
                                       missing.size() > 1 ? "s" : "", fmt::join(missing, ", ")));
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

Layout find_layout(const Environment& environment, Store& store, std::chrono::milliseconds timeout) {
  std::vector<Seat> seats;
  const Place place = {environment.rank, environment.world_size};
  for (const auto& card : exchange_cards(store, "seat", place, text_of(environment.seat), timeout)) {
    seats.push_back(seat_of(card));
  }
  return {node_sizes_of(seats), environment.rank};
}

}  // namespace prunex::comm
