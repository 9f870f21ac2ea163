#include "prunex/comm/shm/share_memory.h"

#include <fmt/format.h>

#include <exception>
#include <random>
#include <stdexcept>

namespace prunex::comm {
namespace {

std::string random_name() {
  std::random_device random;
  return fmt::format("/prunex-{:08x}{:08x}", random(), random());
}

std::string get(Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  if (auto value = store.get(key, timeout)) return *value;
  throw std::runtime_error(
      fmt::format("[comm] {} did not come within {:g} s", key, std::chrono::duration<double>(timeout).count()));
}

}  // namespace

SharedMemory share_memory(const Layout& layout, Store& store, std::chrono::milliseconds timeout) {
  const auto room = fmt::format("memory of node {}", layout.node());
  const auto key = [&](int local_rank) { return fmt::format("{}, local rank {}", room, local_rank); };
  const NodeMemory::Seat seat{layout.local_rank(), layout.ranks_here(), layout.first_rank(layout.node())};
  const bool first = seat.rank == 0;
  const std::string name = first ? random_name() : get(store, room, timeout);
  SharedMemory shared;
  try {
    shared.memory = first ? NodeMemory::create(name, seat) : NodeMemory::open(name, seat);
  } catch (const std::exception& error) {
    shared.problem = error.what();
  }
  if (first) store.set(room, name);
  store.set(key(seat.rank), shared.problem);
  for (int rank = 0; rank < seat.ranks; ++rank) {
    const auto problem = get(store, key(rank), timeout);
    if (shared.problem.empty()) shared.problem = problem;
  }
  if (first) NodeMemory::unlink(name);
  if (!shared.problem.empty()) shared.memory.reset();
  return shared;
}

}  // namespace prunex::comm
