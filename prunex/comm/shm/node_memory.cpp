#include "prunex/comm/shm/node_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/socket.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;
constexpr int kCounters = 3;
constexpr int kSpinsBeforeSleep = 100;
constexpr std::chrono::milliseconds kNap{50};
const std::string kMemoryName = "prunex-";
constexpr int kSeals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

// Among others, as the kernel adds one where vm.memfd_noexec is 1.
bool has_seals(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

[[noreturn]] void fail_memory(const char* what) {
  throw std::runtime_error(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

// std::atomic::wait does not look into other processes.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
  constexpr timespec kPause = {0, std::chrono::nanoseconds(kNap).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kPause, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool has_reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

std::string wait_for_key(const Meeting& meeting, const std::string& key) {
  if (auto value = meeting.store.get(key, meeting.join.left())) return *value;
  throw std::runtime_error(fmt::format("[comm] {} did not come within {}", key, meeting.join.limit()));
}

}  // namespace

// On a cache line of its own.
struct alignas(64) NodeMemory::Cell {
  std::atomic<uint32_t> value;
};

struct NodeMemory::Control {
  Cell aborted;  // 1 + the first rank that gave up
  Cell cells[];  // counter by counter, then what is announced by window, each with one cell per rank

  static size_t bytes(int ranks) {
    return (sizeof(Control) + sizeof(Cell) * static_cast<size_t>((kCounters + 2) * ranks) + kPage - 1) / kPage * kPage;
  }
  static size_t segment_bytes(int ranks) {
    return bytes(ranks) + 2 * static_cast<size_t>(ranks + 1) * static_cast<size_t>(kWindowBytes);
  }
};

NodeMemory::NodeMemory(Socket file, const Seat& seat) : seat_(seat), file_(std::move(file)) {
  void* memory = mmap(nullptr, Control::segment_bytes(seat.ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0);
  if (memory == MAP_FAILED) fail_memory("mmap");
  base_ = static_cast<char*>(memory);
}

NodeMemory::~NodeMemory() {
  leave();
  munmap(base_, Control::segment_bytes(size()));
}

std::unique_ptr<NodeMemory> NodeMemory::create(const Seat& seat) {
  std::random_device random;
  const auto number = fmt::format("{:08x}{:08x}", random(), random());
  Socket file(memfd_create((kMemoryName + number).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.fd() < 0) fail_memory("memfd_create");
  if (fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0) fail_memory("fchmod");
  // Reserved now: writing to a page that the kernel cannot provide would be a bus error.
  errno = posix_fallocate(file.fd(), 0, static_cast<off_t>(Control::segment_bytes(seat.ranks)));
  if (errno != 0) fail_memory("no room");
  if (fcntl(file.fd(), F_ADD_SEALS, kSeals) != 0) fail_memory("fcntl");
  const auto ticket = fmt::format("{} {} {}", getpid(), file.fd(), number);
  std::unique_ptr<NodeMemory> memory(new NodeMemory(std::move(file), seat));
  memory->ticket_ = ticket;
  return memory;
}

// Where the two processes do not see each other in /proc, or the ticket is forged, it may lead to any file: that must
// be the memory that was made, sealed at its size, or reading it could end in a bus error.
std::unique_ptr<NodeMemory> NodeMemory::open(const std::string& ticket, const Seat& seat) {
  int process = 0, descriptor = -1;
  std::string number;
  std::istringstream(ticket) >> process >> descriptor >> number;
  const auto path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  std::error_code error;
  const auto target = std::filesystem::read_symlink(path, error).string();
  if (number.empty() || target != fmt::format("/memfd:{}{} (deleted)", kMemoryName, number)) {
    throw std::runtime_error(fmt::format("shared memory: {} is not that of the node's first rank", path));
  }
  Socket file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.fd() < 0) fail_memory("open");
  struct stat status = {};
  const bool whole = fstat(file.fd(), &status) == 0 && status.st_uid == geteuid() &&
                     static_cast<size_t>(status.st_size) == Control::segment_bytes(seat.ranks) && has_seals(file.fd());
  if (!whole) throw std::runtime_error(fmt::format("shared memory: {} has another size or owner", path));
  std::unique_ptr<NodeMemory> memory(new NodeMemory(std::move(file), seat));
  memory->close_to_others();
  return memory;
}

char* NodeMemory::input(int rank, uint32_t window) const {
  return base_ + Control::bytes(size()) + (2 * rank + window % 2) * kWindowBytes;
}

char* NodeMemory::output(uint32_t window) const {
  return input(size(), window);
}

std::atomic<uint32_t>& NodeMemory::cell(int row, int rank) const {
  return reinterpret_cast<Control*>(base_)->cells[row * size() + rank].value;
}

void NodeMemory::announce(uint32_t window, uint32_t call) {
  cell(kCounters + static_cast<int>(window % 2), rank()).store(call, std::memory_order_relaxed);
}

uint32_t NodeMemory::announced(uint32_t window, int rank) const {
  return cell(kCounters + static_cast<int>(window % 2), rank).load(std::memory_order_relaxed);
}

void NodeMemory::advance(Counter counter, uint32_t by) {
  auto& word = cell(counter, rank());
  word.fetch_add(by, std::memory_order_release);
  wake(word);
}

uint32_t NodeMemory::value(Counter counter) const {
  return cell(counter, rank()).load(std::memory_order_relaxed);
}

bool NodeMemory::reached(Counter counter, int rank, uint32_t value) const {
  return has_reached(cell(counter, rank).load(std::memory_order_acquire), value);
}

void NodeMemory::wait(Counter counter, int rank, uint32_t value) const {
  auto& word = cell(counter, rank);
  const auto& aborted = reinterpret_cast<Control*>(base_)->aborted.value;
  auto deadline = Clock::now() + timeout_;
  for (int round = 0;; ++round) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (has_reached(seen, value)) return;
    if (const uint32_t by = aborted.load(std::memory_order_acquire); by != 0) {
      const auto own = abort_reason();
      throw std::runtime_error(own.empty() ? fmt::format("{} {}", kLostRank, by - 1) : own);
    }
    if (round < kSpinsBeforeSleep) continue;
    const auto until = Clock::now() + kNap;
    sleep_on(word, seen);
    deadline += lateness(until);
    if (Clock::now() > deadline) throw TimedOut(timeout_, {seat_.first_rank + rank});
  }
}

void NodeMemory::wait_for_all(Counter counter, uint32_t value) const {
  for (int rank = 0; rank < size(); ++rank) wait(counter, rank, value);
}

void NodeMemory::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (abort_reason_.empty()) abort_reason_ = reason;
  }
  leave();
}

void NodeMemory::leave() {
  uint32_t nobody = 0;
  const auto me = static_cast<uint32_t>(seat_.first_rank + seat_.rank + 1);
  reinterpret_cast<Control*>(base_)->aborted.value.compare_exchange_strong(nobody, me);
  for (int counter = 0; counter < kCounters; ++counter) {
    for (int rank = 0; rank < size(); ++rank) wake(cell(static_cast<Counter>(counter), rank));
  }
}

std::string NodeMemory::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

SharedMemory share_memory(const Layout& layout, const Meeting& meeting, std::chrono::milliseconds timeout) {
  const auto room = fmt::format("memory of node {}", layout.node());
  const auto key = [&](int local_rank) { return fmt::format("{}, local rank {}", room, local_rank); };
  const NodeMemory::Seat seat{layout.local_rank(), layout.ranks_here(), layout.first_rank(layout.node())};
  const bool first = seat.rank == 0;
  const std::string ticket = first ? "" : wait_for_key(meeting, room);
  SharedMemory shared;
  try {
    shared.memory = first ? NodeMemory::create(seat) : NodeMemory::open(ticket, seat);
  } catch (const std::exception& error) {
    shared.problem = error.what();
  }
  if (first) meeting.store.set(room, shared.memory ? shared.memory->ticket() : "none");
  meeting.store.set(key(seat.rank), shared.problem);
  for (int rank = 0; rank < seat.ranks; ++rank) {
    const auto problem = shown(wait_for_key(meeting, key(rank)));
    if (shared.problem.empty()) shared.problem = problem;
  }
  if (first && shared.memory) shared.memory->close_to_others();
  if (shared.problem.empty()) {
    shared.memory->set_timeout(timeout);
  } else {
    shared.memory.reset();
  }
  return shared;
}

}  // namespace prunex::comm
