#include "prunex/comm/gloo/gloo_communicator.h"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <exception>
#include <stdexcept>
#include <utility>

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

void expect_open(bool done) {
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

std::unique_ptr<Mesh> connect_mesh(const Group& group, const Network& network, Meeting meeting,
                                   std::chrono::milliseconds timeout) {
  const auto peers = connect_peers(group, network.address, meeting);
  const auto size = static_cast<int>(group.members.size());
  auto& join = meeting.join;
  auto pairs = network.device->createContext(group.rank, size);
  pairs->setTimeout(join.left() / 5);  // a pair waits five times this for its connection
  for (const auto& [peer, socket] : peers) {
    attempt(group, peer, join, [&, peer = peer, &socket = socket] {
      const auto address = pairs->createPair(peer)->address().bytes();
      expect_open(send_all(socket, address.data(), address.size(), join.deadline()));
    });
  }
  for (const auto& [peer, socket] : peers) {
    attempt(group, peer, join, [&, peer = peer, &socket = socket] {
      auto& pair = pairs->getPair(peer);
      std::vector<char> address(pair->address().bytes().size());
      expect_open(receive_all(socket, address.data(), address.size(), join.deadline()));
      pair->connect(address);
    });
  }
  auto context = std::make_shared<PairedContext>(group.rank, size, network.device, std::move(pairs));
  context->setTimeout(timeout);
  return std::make_unique<Mesh>(std::move(context));
}

Mesh::Mesh(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

Mesh::~Mesh() = default;

int Mesh::rank() const {
  return context_->rank;
}

int Mesh::size() const {
  return context_->size;
}

uint64_t Mesh::new_tags(uint64_t count) {
  return std::exchange(next_tag_, next_tag_ + count);
}

void Mesh::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_.empty()) return;
  abort_reason_ = reason;
  for (auto* buffer : live_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      context_->getPair(peer)->close();
    } catch (const std::exception&) {  // it is closed already
    }
  }
}

std::string Mesh::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

std::vector<int> Mesh::lost_ranks() {
  std::vector<int> lost;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      context_->createUnboundBuffer(nullptr, 0)->send(peer, next_tag_);
    } catch (const std::exception&) {
      lost.push_back(peer);
    }
  }
  return lost;
}

void Mesh::add(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_.empty()) throw std::runtime_error(abort_reason_);
  live_.insert(buffer);
}

void Mesh::remove(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  live_.erase(buffer);
}

Mesh::Buffer::Buffer(Mesh& mesh, void* data, size_t bytes)
    : mesh_(&mesh), buffer_(mesh.context_->createUnboundBuffer(data, bytes)) {
  mesh.add(buffer_.get());
}

Mesh::Buffer::Buffer() = default;

Mesh::Buffer::Buffer(Buffer&&) noexcept = default;

Mesh::Buffer& Mesh::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(mesh_, other.mesh_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

Mesh::Buffer::~Buffer() {
  if (buffer_) mesh_->remove(buffer_.get());
}

void Mesh::Buffer::send(int peer, uint64_t tag, size_t offset, size_t bytes) {
  buffer_->send(peer, tag, offset, bytes);
}

void Mesh::Buffer::receive(int peer, uint64_t tag) {
  buffer_->recv(peer, tag);
}

void Mesh::Buffer::wait_sent() {
  check(buffer_->waitSend(mesh_->context_->getTimeout()));
}

void Mesh::Buffer::wait_received() {
  check(buffer_->waitRecv(mesh_->context_->getTimeout()));
}

void Mesh::Buffer::check(bool completed) const {
  if (!completed) throw std::runtime_error(mesh_->abort_reason());
}

}  // namespace prunex::comm
