#include "prunex/comm/gloo/context.h"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/comm/peer_sockets.h"

namespace prunex::comm {
namespace {

class PairedContext final : public gloo::Context {
 public:
  PairedContext(int rank, int size, std::shared_ptr<gloo::transport::Device> device,
                std::shared_ptr<gloo::transport::Context> pairs)
      : gloo::Context(rank, size) {
    device_ = std::move(device);
    transportContext_ = std::move(pairs);
  }
};

void expect(bool done) {
  if (!done) throw std::runtime_error("it closed the connection");
}

template <class Call>
void attempt(const Group& group, int peer, Join& join, const Call& call) {
  const auto name = fmt::format("{}: rank {}", group.name, group.members[static_cast<size_t>(peer)]);
  join.waits_for(name + " has not connected");
  try {
    call();
  } catch (const std::exception& error) {
    throw std::runtime_error(join.over() ? fmt::format("[comm] {} did not connect within {}", name, join.limit())
                                         : fmt::format("[comm] {}: {}", name, plain_text(error.what())));
  }
  join.waits_for("");
}

}  // namespace

std::shared_ptr<gloo::Context> connect_context(const Group& group, const Network& network, Meeting meeting) {
  const auto peers = connect_peers(group, network.address, meeting);
  const auto size = static_cast<int>(group.members.size());
  auto& join = meeting.join;
  auto pairs = network.device->createContext(group.rank, size);
  pairs->setTimeout(join.left() / 5);  // a pair waits five times this for its connection
  for (const auto& [peer, socket] : peers) {
    attempt(group, peer, join, [&, peer = peer, &socket = socket] {
      const auto address = pairs->createPair(peer)->address().bytes();
      expect(send_all(socket, address.data(), address.size(), join.deadline()));
    });
  }
  for (const auto& [peer, socket] : peers) {
    attempt(group, peer, join, [&, peer = peer, &socket = socket] {
      auto& pair = pairs->getPair(peer);
      std::vector<char> address(pair->address().bytes().size());
      expect(receive_all(socket, address.data(), address.size(), join.deadline()));
      pair->connect(address);
    });
  }
  return std::make_shared<PairedContext>(group.rank, size, network.device, std::move(pairs));
}

std::string plain_text(const std::string& gloo_error) {
  const auto place = gloo_error.starts_with('[') ? gloo_error.find("] ") : std::string::npos;
  const auto text = place == std::string::npos ? gloo_error : gloo_error.substr(place + 2);
  for (const char* end : {"closed by peer", "Socket closed", "Broken pipe", "reset by peer", "pair closure"}) {
    if (text.find(end) != std::string::npos) return "its connection closed";
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace prunex::comm
