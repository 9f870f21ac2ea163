#include "prunex/comm/shm/share_memory.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>

namespace prunex::comm {
namespace {

std::string get(Meeting meeting, const std::string& key) {
  if (auto value = meeting.store.get(key, meeting.join.left())) return *value;
  throw std::runtime_error(fmt::format("[comm] {} did not come within {}", key, meeting.join.limit()));
}

}  // namespace

SharedMemory share_memory(const Layout& layout, Meeting meeting) {
  const auto room = fmt::format("memory of node {}", layout.node());
  const auto key = [&](int local_rank) { return fmt::format("{}, local rank {}", room, local_rank); };
  const NodeMemory::Seat seat{layout.local_rank(), layout.ranks_here(), layout.first_rank(layout.node())};
  const bool first = seat.rank == 0;
  const std::string ticket = first ? "" : get(meeting, room);
  SharedMemory shared;
  try {
    shared.memory = first ? NodeMemory::create(seat) : NodeMemory::open(ticket, seat);
  } catch (const std::exception& error) {
    shared.problem = error.what();
  }
  if (first) meeting.store.set(room, shared.memory ? shared.memory->ticket() : "none");
  meeting.store.set(key(seat.rank), shared.problem);
  for (int rank = 0; rank < seat.ranks; ++rank) {
    const auto problem = shown(get(meeting, key(rank)));
    if (shared.problem.empty()) shared.problem = problem;
  }
  if (first && shared.memory) shared.memory->close_to_others();
  if (!shared.problem.empty()) shared.memory.reset();
  return shared;
}

}  // namespace prunex::comm
