#include "prunex/comm/elastic/elastic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <stdexcept>

#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/watch/watch.h"

namespace prunex::comm {

std::string address_of_doors(const Hierarchy& ranks) {
  if (!ranks.address.empty()) return ranks.address;
  return ranks.interfaces.empty() ? "127.0.0.1" : address_of_interface(ranks.interfaces[0]);
}

Elastic::Elastic(Hierarchy& ranks, const ElasticOptions& options)
    : ranks_(ranks),
      options_(options),
      node_(ranks.layout.node()),
      local_rank_(ranks.layout.local_rank()),
      ranks_of_(ranks.layout.node_sizes),
      port_(ranks.port),
      committed_(options.transactions) {
  const Layout& layout = ranks.layout;
  for (int node = 0; layout.sites > 1 && node < layout.nodes(); ++node) {
    site_of_.push_back(node / layout.nodes_per_site());
  }
  token_ = broadcast_text(*ranks.world, random_secret());
  open_door(address_of_doors(ranks));
  const auto cards = gather_texts(*ranks.world, door_->endpoint().text());
  size_t rank = 0;
  for (const int size : ranks_of_) {
    auto& doors = doors_.emplace_back();
    for (int i = 0; i < size; ++i) {
      std::istringstream card(cards[rank++]);
      doors.emplace_back().read(card);
    }
    formed_.nodes.push_back(static_cast<int>(formed_.nodes.size()));
  }
  door_->set_formed(formed_, door_of(formed_.nodes.front()));
  open_entrance();
}

void Elastic::open_door(const std::string& address) {
  if (!ranks_.connect_others) throw std::invalid_argument("`elastic`: another program has connected these ranks");
  PortRange ports = ranks_.ports;
  for (const Endpoint& known : run_.doors) {  // who answers there would be taken for the rank that had it
    if (known.host == address) ports.except.push_back(known.port);
  }
  door_ = std::make_unique<Door>(Endpoint{address}, door_key(), pause_of(options_), ports);
}

Elastic::~Elastic() = default;

void Elastic::enter(int64_t transaction) {
  if (entered_) ++committed_;
  TORCH_CHECK(transaction == committed_ + 1, "[comm] transaction ", transaction, " after ", committed_);
  entered_ = true;
}

bool Elastic::commit(int64_t transaction, uint64_t hash) {
  enter(transaction);
  Communicator& world = *ranks_.world;
  const bool waits = leads() && next_newcomer().has_value();
  const at::Tensor mine = at::tensor({static_cast<int64_t>(hash), int64_t{waits}}, at::kLong);
  at::Tensor all = at::zeros({world.size(), 2}, at::kLong);
  world.all_gather(all, mine);
  committed_ = transaction;
  entered_ = false;
  door_->offer(nullptr);
  weigh();
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto other = static_cast<uint64_t>(all[rank][0].item<int64_t>());
    if (other == hash) continue;
    throw std::logic_error(fmt::format("[comm] after transaction {} rank {} has {:016x}, rank {} {:016x}", transaction,
                                       ranks_.layout.rank, hash, rank, other));
  }
  return all[0][1].item<int64_t>() != 0;
}

LinkKey Elastic::door_key() const {
  return link_key(ranks_.privacy, "door", token_);
}

bool Elastic::has_lost() const {
  constexpr std::chrono::milliseconds kLookEvery{20};
  const auto end = std::chrono::steady_clock::now() + options_.silence;
  do {  // who left was done with this operation, perhaps, when others who regroup broke it off
    if (ranks_.watch->has_leavers() || !ranks_.watch->abort_switch()->reason(kLookEvery).empty()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
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

/// Where the ranks of the roster, and so many new ones, meet.
Endpoint Elastic::open_store(const Roster& roster, int newcomers) {
  int ranks = newcomers;
  for (const int node : roster.nodes) {
    if (static_cast<size_t>(node) < ranks_of_.size()) ranks += ranks_of_[static_cast<size_t>(node)];
  }
  const std::string& address = door_->endpoint().host;
  store_ = std::make_unique<StoreServer>(
      StoreServerOptions{{address}, 0, ranks, store_key(ranks_.privacy, token_), ranks_.ports});
  return {address, store_->port()};
}

Layout Elastic::layout_of(const Roster& roster) const {
  Layout layout{.node_sizes = {}};
  for (const int node : roster.nodes) {
    const int size = ranks_of_[static_cast<size_t>(node)];
    if (node == node_) layout.rank = layout.world_size() + local_rank_;
    layout.node_sizes.push_back(size);
  }
  layout.sites = sites_of(roster);
  return layout;
}

/// One unless all that have nodes have as many.
int Elastic::sites_of(const Roster& roster) const {
  std::map<int, int> nodes;
  for (const int node : roster.nodes) {
    if (static_cast<size_t>(node) < site_of_.size()) ++nodes[site_of_[static_cast<size_t>(node)]];
  }
  const bool equal =
      std::all_of(nodes.begin(), nodes.end(), [&](const auto& site) { return site.second == nodes.begin()->second; });
  return equal && !nodes.empty() ? static_cast<int>(nodes.size()) : 1;
}

}  // namespace prunex::comm
