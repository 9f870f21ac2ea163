#include "launch/starter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

#include "prunex/comm/communicator.h"
#include "prunex/comm/environment.h"

namespace prunex::launch {
namespace {

// Only this user's processes can read the environment of the ranks.
std::vector<std::string> environment_of(const comm::Layout& layout, int before, int threads, int port,
                                        const std::string& secret) {
  return {fmt::format("RANK={}", layout.rank),
          fmt::format("WORLD_SIZE={}", layout.world_size()),
          fmt::format("LOCAL_RANK={}", layout.local_rank()),
          fmt::format("LOCAL_WORLD_SIZE={}", layout.ranks_here()),
          fmt::format("GROUP_RANK={}", layout.node()),
          "MASTER_ADDR=127.0.0.1",
          fmt::format("MASTER_PORT={}", port),
          "TORCHELASTIC_USE_AGENT_STORE=False",
          "TORCHELASTIC_RESTART_COUNT=0",
          fmt::format("{}={}", comm::kStoreSecret, secret),
          fmt::format("{}={}", comm::kRanksBefore, before),
          fmt::format("OMP_NUM_THREADS={}", threads)};
}

}  // namespace

void Starter::start_all(std::list<Rank>& ranks, const GoesOn& goes_on) {
  start(options_.shape, 0, words_, all_meet_at_, ranks, goes_on);
}

void Starter::start_again(int node, std::list<Rank>& ranks, const GoesOn& goes_on) {
  comm::Layout alone{.node_sizes = {options_.shape.node_sizes[static_cast<size_t>(node)]}};
  std::vector<std::string> words = words_;
  words.insert(words.end(), options_.words_to_join.begin(), options_.words_to_join.end());
  start(alone, options_.shape.first_rank(node), words, nodes_meet_at_[node], ranks, goes_on);
}

void Starter::start(comm::Layout layout, int first, const std::vector<std::string>& words, Store& store,
                    std::list<Rank>& ranks, const GoesOn& goes_on) {
  const auto secret = comm::random_secret();
  store.reset();  // of those who were started before, and have ended
  store = std::make_unique<comm::StoreServer>(
      comm::StoreServerOptions{.ranks = layout.world_size(), .key = comm::store_key(options_.privacy, secret)});
  for (layout.rank = 0; layout.rank < layout.world_size(); ++layout.rank) {
    const int number = first + layout.rank;
    const ProcessOptions process{.words = words,
                                 .environment = environment_of(layout, first, options_.threads, store->port(), secret),
                                 .blocked = signals_.previous(),
                                 .dies_by = SIGKILL,
                                 .keeps_output = true,
                                 .keeps_error = number == 0 && isatty(STDERR_FILENO) != 0};
    ranks.push_back({number, Process(fmt::format("rank {}", number), process)});
    if (!goes_on()) return;
  }
}

}  // namespace prunex::launch
