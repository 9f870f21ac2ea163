#include "prunex/comm/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestNap{500};  // a process that is stopped loses no more of its patience
constexpr short kEnds = POLLRDHUP | POLLHUP | POLLERR;
const char* const kClosed = "its connection closed";

// What stands before a message.
struct Header {
  uint64_t tag = 0;
  uint64_t bytes = 0;

  bool operator==(const Header&) const = default;
};

// Ends a connection that another thread may be using. The peer is not to take what is still on its way for a success:
// it gets a reset.
void disconnect(int socket) {
  const sockaddr nowhere = {.sa_family = AF_UNSPEC};
  if (connect(socket, &nowhere, sizeof(nowhere)) != 0) shutdown(socket, SHUT_RDWR);
}

}  // namespace

struct Mesh::Message {
  Header header;
  char* data;
  int64_t* pending;  // of its buffer
  size_t done = 0;   // bytes of header and data that have passed

  size_t size() const { return sizeof(Header) + header.bytes; }
  bool in_header() const { return done < sizeof(Header); }
  char* next() const { return data + (done - sizeof(Header)); }
};

// The connection to one rank.
struct Mesh::Lane {
  Link link;
  std::deque<Message> leaving, expected;
  Header arriving = {};  // of the first that is expected
  std::string broken = {};
  uint64_t passed = 0;  // bytes, both ways

  explicit Lane(Link open) : link(std::move(open)) {}

  // Both move as much of the first message as they can without waiting; whether that was all of it.
  bool send_first() {
    Message& message = leaving.front();
    while (message.done < message.size()) {
      const char* header = reinterpret_cast<const char*>(&message.header);
      const ssize_t bytes = message.in_header() ? link.send(header + message.done, sizeof(Header) - message.done, true)
                                                : link.send(message.next(), message.size() - message.done);
      if (!count(bytes, message)) return false;
    }
    --*message.pending;
    leaving.pop_front();
    return true;
  }

  bool receive_first() {
    Message& message = expected.front();
    while (message.done < message.size()) {
      char* header = reinterpret_cast<char*>(&arriving);
      const ssize_t bytes = message.in_header() ? link.receive(header + message.done, sizeof(Header) - message.done)
                                                : link.receive(message.next(), message.size() - message.done);
      if (bytes == 0) broken = kClosed;
      if (bytes == 0 || !count(bytes, message)) return false;
      if (message.done == sizeof(Header) && arriving != message.header) {
        broken = fmt::format("message {} of {} bytes came, expected was {} of {}", arriving.tag, arriving.bytes,
                             message.header.tag, message.header.bytes);
        return false;
      }
    }
    --*message.pending;
    expected.pop_front();
    return true;
  }

  // False if nothing passed: for now, or because the connection is broken.
  bool count(ssize_t bytes, Message& message) {
    if (bytes >= 0) {
      message.done += static_cast<size_t>(bytes);
      passed += static_cast<uint64_t>(bytes);
      return true;
    }
    if (errno == EINTR) return true;
    if (!is_later(errno)) broken = kClosed;
    return false;
  }

  short events() const {
    short events = 0;
    if (!leaving.empty()) events |= POLLOUT;
    if (!expected.empty()) events |= POLLIN;
    return events;
  }
};

Mesh::Mesh(int rank, std::map<int, Link> links, std::chrono::milliseconds timeout)
    : rank_(rank), timeout_(timeout), wake_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  for (auto& [peer, link] : links) {
    send_at_once(link.fd());
    keep_alive(link.fd());
    lanes_.emplace(peer, std::move(link));
  }
}

Mesh::~Mesh() = default;

uint64_t Mesh::new_tags(uint64_t count) {
  return std::exchange(next_tag_, next_tag_ + count);
}

void Mesh::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_.empty()) return;
  abort_reason_ = reason;
  aborted_ = true;
  for (const auto& [peer, lane] : lanes_) disconnect(lane.link.fd());
  eventfd_write(wake_.fd(), 1);
}

std::string Mesh::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

std::vector<int> Mesh::lost_ranks() const {
  std::vector<int> lost;
  for (const auto& [peer, lane] : lanes_) {
    pollfd descriptor = {lane.link.fd(), kEnds, 0};
    poll(&descriptor, 1, 0);
    if (!lane.broken.empty() || (descriptor.revents & kEnds) != 0) lost.push_back(peer);
  }
  return lost;
}

Mesh::Lane& Mesh::lane(int peer) {
  return lanes_.at(peer);
}

uint64_t Mesh::bytes_passed() const {
  uint64_t bytes = 0;
  for (const auto& [peer, lane] : lanes_) bytes += lane.passed;
  return bytes;
}

// However long a message is: its peer is late when nothing more of it comes.
void Mesh::wait(const int64_t& pending) {
  auto deadline = Clock::now() + timeout_;
  const int64_t wanted = std::max<int64_t>(pending - 1, 0);
  for (;;) {
    const uint64_t before = bytes_passed();
    while (pending > wanted && !aborted_ && move_all()) {
    }
    if (bytes_passed() > before) deadline = Clock::now() + timeout_;
    if (aborted_) throw std::runtime_error(abort_reason());
    if (pending <= wanted) return;
    for (const auto& [peer, lane] : lanes_) {
      if (!lane.broken.empty() && lane.events() != 0) throw std::runtime_error(lane.broken);
    }
    if (Clock::now() >= deadline) throw Late("no answer");
    const auto until = std::min(deadline, Clock::now() + kLongestNap);
    poll_until(until);
    deadline += lateness(until);
  }
}

// Whether a message has passed.
bool Mesh::move_all() {
  bool passed = false;
  for (auto& [peer, lane] : lanes_) {
    if (!lane.broken.empty()) continue;
    if (!lane.expected.empty()) passed = lane.receive_first() || passed;
    if (lane.broken.empty() && !lane.leaving.empty()) passed = lane.send_first() || passed;
  }
  return passed;
}

void Mesh::poll_until(Deadline deadline) {
  std::vector<pollfd> descriptors = {{wake_.fd(), POLLIN, 0}};
  for (const auto& [peer, lane] : lanes_) {
    if (lane.events() != 0) descriptors.push_back({lane.link.fd(), lane.events(), 0});
  }
  poll(descriptors.data(), descriptors.size(), milliseconds_until(deadline));
}

// What is under way when its buffer ends will never be whole: the connection is of no use any more.
void Mesh::forget(const Buffer& buffer) {
  const auto* pending = buffer.pending_.get();
  if (pending == nullptr || pending->sent + pending->received == 0) return;
  const auto is_its = [&](const Message& m) { return m.pending == &pending->sent || m.pending == &pending->received; };
  for (auto& [peer, lane] : lanes_) {
    const size_t dropped = std::erase_if(lane.leaving, is_its) + std::erase_if(lane.expected, is_its);
    if (dropped > 0 && lane.broken.empty()) lane.broken = "a message was given up";
  }
}

Mesh::Buffer::Buffer() = default;

Mesh::Buffer::Buffer(Mesh& mesh, void* data, size_t bytes)
    : mesh_(&mesh), data_(static_cast<char*>(data)), bytes_(bytes), pending_(std::make_unique<Pending>()) {
  if (mesh.aborted_) throw std::runtime_error(mesh.abort_reason());
}

Mesh::Buffer::Buffer(Buffer&&) noexcept = default;

Mesh::Buffer& Mesh::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(mesh_, other.mesh_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pending_, other.pending_);
  return *this;
}

Mesh::Buffer::~Buffer() {
  if (pending_) mesh_->forget(*this);
}

void Mesh::Buffer::send(int peer, uint64_t tag, size_t offset, size_t bytes) {
  Lane& lane = mesh_->lane(peer);
  ++pending_->sent;
  lane.leaving.push_back({{tag, bytes}, data_ + offset, &pending_->sent});
  if (lane.leaving.size() == 1 && lane.broken.empty()) lane.send_first();
}

void Mesh::Buffer::receive(int peer, uint64_t tag) {
  ++pending_->received;
  mesh_->lane(peer).expected.push_back({{tag, bytes_}, data_, &pending_->received});
}

void Mesh::Buffer::wait_sent() {
  mesh_->wait(pending_->sent);
}

void Mesh::Buffer::wait_received() {
  mesh_->wait(pending_->received);
}

}  // namespace prunex::comm
