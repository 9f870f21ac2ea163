// How ranks find each other through a store, and learn the shape of their run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/environment.h"
#include "prunex/comm/join.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/store.h"
#include "prunex/comm/store_server.h"
#include "prunex/comm/traffic.h"

namespace prunex::comm {

/// Where ranks meet, and how long they may take to.
struct Meeting {
  Store& store;
  Join& join;
};

/// What one process of a run has of its store: the client, and on the rank that hosts it the server.
struct RunStore {
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Store> client;
};

/// Hosts the run's store or connects to it. The server listens on what MASTER_ADDR stands for on this machine and on
/// the first of the interfaces, and nowhere else. Throws std::runtime_error if the store cannot be had in time.
RunStore meet(const Environment& environment, const std::vector<std::string>& interfaces, Join& join);

/// Every rank leaves a card under the topic, which no two exchanges share, and reads those of all, in rank order.
/// Throws std::runtime_error that names the ranks whose cards did not come in time.
std::vector<std::string> exchange_cards(Meeting meeting, const std::string& topic, const Place& place,
                                        const std::string& card);

/// What another rank wrote, fit to be shown: short, and without control characters.
std::string shown(const std::string& text);

/// The nodes that the seats of all ranks, in rank order, add up to. Throws std::invalid_argument that names the first
/// rank that breaks the order: ranks are numbered node by node, and from 0 on in each.
std::vector<int> node_sizes_of(const std::vector<Seat>& seats);

/// The layout of the run that a launcher started, on one site; all of its ranks must call. Throws like exchange_cards
/// and node_sizes_of.
Layout find_layout(const Environment& environment, Meeting meeting);

}  // namespace prunex::comm
