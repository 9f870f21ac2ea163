// How ranks find each other through a store, and learn the shape of their run.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/environment.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/store.h"
#include "prunex/comm/traffic.h"

namespace prunex::comm {

/// Hosts the run's store or connects to it. Throws std::runtime_error if it does not answer within the timeout.
std::unique_ptr<Store> make_store(const Environment& environment, std::chrono::milliseconds timeout);

/// Every rank leaves a card under the topic, which no two exchanges share, and reads those of all, in rank order.
/// Throws std::runtime_error that names the ranks whose cards did not come in time.
std::vector<std::string> exchange_cards(Store& store, const std::string& topic, const Place& place,
                                        const std::string& card, std::chrono::milliseconds timeout);

/// The nodes that the seats of all ranks, in rank order, add up to. Throws std::invalid_argument that names the first
/// rank that breaks the order: ranks are numbered node by node, and from 0 on in each.
std::vector<int> node_sizes_of(const std::vector<Seat>& seats);

/// The layout of the run that a launcher started, on one site; all of its ranks must call. Throws like exchange_cards
/// and node_sizes_of.
Layout find_layout(const Environment& environment, Store& store, std::chrono::milliseconds timeout);

}  // namespace prunex::comm
