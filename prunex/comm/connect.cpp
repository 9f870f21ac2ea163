#include "prunex/comm/connect.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "prunex/comm/nccl/gpu.h"
#include "prunex/comm/shm/node_memory.h"
#include "prunex/comm/tcp/tcp_communicator.h"
#include "prunex/comm/watch/watch.h"

namespace prunex::comm {
namespace {

// Cards read "layout|network".
void check_layouts(const std::vector<std::string>& cards, const Layout& layout) {
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const auto other = cards[rank].substr(0, cards[rank].find('|'));
    if (other == describe(layout)) continue;
    throw std::invalid_argument(
        fmt::format("[comm] rank {} has {}, rank {} has {}", layout.rank, describe(layout), rank, shown(other)));
  }
}

bool on_one_machine(const std::vector<std::string>& cards) {
  return std::all_of(cards.begin(), cards.end(), [&](const auto& card) { return card == cards.front(); });
}

// Where this rank's groups listen; nothing for a single rank.
struct Networks {
  std::string first, rail;
};

Networks make_networks(const Layout& layout, const std::vector<std::string>& interfaces, bool one_machine) {
  const auto first = choose_address(interfaces.empty() ? "" : interfaces[0], one_machine);
  const size_t mine = interfaces.empty() ? 0 : static_cast<size_t>(layout.local_rank()) % interfaces.size();
  return {first, mine == 0 ? first : choose_address(interfaces[mine], one_machine)};
}

// None within one machine.
std::vector<std::string> interfaces_of(const Networks& networks) {
  if (networks.first.empty() || is_loopback(networks.first)) return {};
  return {interface_with(networks.first)};
}

void check_wanted(const Layout& layout, const Layout& wanted) {
  if (layout.node_sizes == wanted.node_sizes) return;
  throw std::invalid_argument(fmt::format("`nodes`, `ranks_per_node`: got {}, the launcher started {}",
                                          describe({wanted.node_sizes}), describe(layout)));
}

Meeting meeting_in(Store& store, Join& join, const ConnectOptions& options) {
  return {store, join, options.privacy, options.ports};
}

// One card per rank; without a network, of this rank alone.
struct Joined {
  std::vector<std::string> cards;
  Networks networks;
};

// Meets the other ranks, without connecting to them.
Joined join_ranks(const Layout& layout, const Meeting& meeting, const ConnectOptions& options) {
  const auto card = describe(layout) + "|" + network_identity();
  if (layout.world_size() == 1) return {{card}, {}};
  const auto cards = exchange_cards(meeting, "joined", {layout.rank, layout.world_size()}, card);
  check_layouts(cards, layout);
  return {cards, make_networks(layout, options.interfaces, on_one_machine(cards))};
}

Guard guard_of(const Hierarchy& hierarchy, const ConnectOptions& options) {
  return {hierarchy.watch->abort_switch(), options.heartbeat_timeout};
}

Hierarchy make_groups(const Layout& layout, const Meeting& meeting, const ConnectOptions& options,
                      const Networks& networks) {
  Hierarchy hierarchy{.layout = layout, .interfaces = options.interfaces, .privacy = options.privacy};
  hierarchy.watch =
      std::make_shared<Watch>(layout, WatchOptions{options.timeout, options.reports, options.report_signal});
  const Guard guard = guard_of(hierarchy, options);
  SharedMemory shared;
  if (layout.ranks_here() > 1 && options.shared_memory) shared = share_memory(layout, meeting, options.timeout);
  hierarchy.no_shared_memory = shared.problem;
  RingCommunicator* rail = nullptr;
  for (const auto& membership : memberships(layout)) {
    auto& group = hierarchy.*membership.group;
    if (membership.group == &Hierarchy::node && shared.memory) {
      group = make_shm_communicator(membership.members, shared.memory, guard);
    } else {
      const auto& network = membership.crosses_nodes() ? networks.rail : networks.first;
      auto ring = make_tcp_communicator(membership.members, meeting, network, options.timeout, guard);
      if (membership.group == &Hierarchy::rail) rail = ring.get();
      group = std::move(ring);
    }
    group->record_in(hierarchy.watch->journal());
    group->stand_on(nodes_of(layout, membership.members));
  }
  if (shared.memory && layout.sites == 1) {
    hierarchy.pipeline = make_pipeline(layout, *hierarchy.node, *rail, shared.memory);
  }
  return hierarchy;
}

// All groups serve this rank's GPU from here on.
void extend_to_gpus(Hierarchy& hierarchy, const Gpu& gpu, const Meeting& meeting, const ConnectOptions& options,
                    const Networks& networks) {
  const Layout& layout = hierarchy.layout;
  let_nccl_use(options.interfaces.empty() ? interfaces_of(networks) : options.interfaces);
  hierarchy.device = gpu.device;
  const DeviceGroups gpus(exchange_cards(meeting, "gpus", {layout.rank, layout.world_size()}, gpu.identity),
                          meeting.store, {meeting.join.left(), options.timeout}, guard_of(hierarchy, options));
  hierarchy.pipeline.reset();  // it adds up in the CPU's memory
  for (const auto& [group, members] : memberships(layout)) {
    hierarchy.*group = gpus.extend(std::move(hierarchy.*group), members, hierarchy.watch->journal());
  }
  hierarchy.staged = gpus.sharing();
}

// The same for a device that no transport knows.
void extend_by_host(Hierarchy& hierarchy, const c10::Device& device) {
  hierarchy.device = device;
  hierarchy.pipeline.reset();
  for (const auto& membership : memberships(hierarchy.layout)) {
    auto& group = hierarchy.*membership.group;
    group = make_device_communicator(std::move(group), nullptr);
  }
  hierarchy.staged = fmt::format("no transport knows {}", device.str());
}

// A pipeline's messages are others than those of a ring without: all ranks have one, or none. Likewise all know of a
// node whose ranks cannot share memory.
void agree_on_memory(Hierarchy& hierarchy, const Meeting& meeting) {
  const Layout& layout = hierarchy.layout;
  if (layout.world_size() == 1) return;
  const char has = hierarchy.pipeline ? '+' : '-';
  for (const auto& card :
       exchange_cards(meeting, "memory", {layout.rank, layout.world_size()}, has + hierarchy.no_shared_memory)) {
    if (!card.starts_with('+')) hierarchy.pipeline.reset();
    if (hierarchy.no_shared_memory.empty() && card.size() > 1) hierarchy.no_shared_memory = shown(card.substr(1));
  }
}

// gpu: where this rank's tensors lie already, if it was connected before.
Hierarchy connect(const Layout& layout, const Meeting& meeting, const ConnectOptions& options,
                  std::optional<Gpu> gpu = {}) {
  check(layout);
  if (layout.world_size() > 1) {
    check_interfaces(options.interfaces);
    reserve_descriptors(descriptors_of_rank(layout));
  }
  if (options.report_signal != 0) block_signal(options.report_signal);
  const bool on_gpus = options.device == c10::DeviceType::CUDA;
  if (on_gpus) check_gpu();
  const auto [cards, networks] = join_ranks(layout, meeting, options);
  Hierarchy hierarchy = make_groups(layout, meeting, options, networks);
  if (on_gpus) {
    if (!gpu) gpu = choose_gpu(cards, layout, options.ranks_before);
    extend_to_gpus(hierarchy, *gpu, meeting, options, networks);
  } else if (options.device != c10::DeviceType::CPU) {
    extend_by_host(hierarchy, c10::Device(options.device, 0));
  }
  agree_on_memory(hierarchy, meeting);
  hierarchy.address = networks.rail;
  hierarchy.ports = options.ports;
  hierarchy.connect_others = [options, gpu](const Layout& others, Store& store, std::chrono::milliseconds within) {
    ConnectOptions again = options;
    again.join_timeout = within;
    again.announce = false;
    Join join(again.join_timeout, again.announce);
    return connect(others, meeting_in(store, join, again), again, gpu);
  };
  hierarchy.flat = make_view("flat", *hierarchy.world);
  if (layout.world_size() > 1 && options.heartbeat_timeout.count() > 0) {
    const auto& address = networks.rail;  // so that a cut of any rail's network is noticed
    hierarchy.watch->start(meeting.store,
                           {options.heartbeat_timeout, address, meeting.join.left(), options.privacy, options.ports});
  }
  hierarchy.world->barrier();
  if (layout.rank == 0) meeting.store.release();
  return hierarchy;
}

// Where ranks that are threads meet at the end: connections stay open until all are done or one has failed.
class Finish {
 public:
  explicit Finish(int ranks) : running_(ranks) {}

  void done() {
    std::unique_lock lock(mutex_);
    --running_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0 || failure_; });
  }

  void failed(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    changed_.notify_all();
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
  std::exception_ptr failure_;
};

void run_rank(const Layout& layout, Store& store, const ConnectOptions& options,
              const std::function<void(Hierarchy&)>& body, Finish& finish) {
  Hierarchy hierarchy;  // outlives the handler: the first failure is noted before its connections close
  try {
    at::set_num_threads(1);
    hierarchy = connect(layout, store, options);
    body(hierarchy);
    finish.done();
  } catch (...) {
    finish.failed(std::current_exception());
  }
}

int64_t open_files() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : std::distance(begin(files), end(files));
}

}  // namespace

Hierarchy connect(const Layout& layout, Store& store, const ConnectOptions& options) {
  Join join(options.join_timeout, options.announce);
  return connect(layout, meeting_in(store, join, options), options);
}

Hierarchy connect(const Environment& environment, ConnectOptions options, const std::optional<Layout>& wanted) {
  if (options.report_signal != 0) block_signal(options.report_signal);  // before the store starts threads
  if (options.interfaces.empty()) {
    check_interfaces(environment.interfaces, "GLOO_SOCKET_IFNAME");
    options.interfaces = environment.interfaces;
  }
  if (options.privacy.secret.empty()) options.privacy = read_privacy("", options.privacy.encrypt);
  options.ranks_before = environment.ranks_before;
  if (environment.world_size == 1) check_interfaces(options.interfaces);  // whose bytes it counts
  Join join(options.join_timeout, options.announce);
  const auto store = environment.world_size == 1
                         ? RunStore{nullptr, make_memory_store()}
                         : meet(environment, options.interfaces, options.privacy, options.ports, join);
  const Meeting meeting = meeting_in(*store.client, join, options);
  Layout layout = find_layout(environment, meeting);
  if (wanted) check_wanted(layout, *wanted);
  if (wanted) layout.sites = wanted->sites;
  Hierarchy hierarchy = connect(layout, meeting, options);
  hierarchy.world->barrier();  // the store is closed: who connects once more does not meet in it
  hierarchy.port = environment.master_port;
  return hierarchy;
}

void run_ranks(const Layout& shape, const std::function<void(Hierarchy&)>& body, const ConnectOptions& options) {
  const auto store = make_memory_store();
  Finish finish(shape.world_size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    threads.emplace_back([&, rank] { run_rank({shape.node_sizes, rank, shape.sites}, *store, options, body, finish); });
  }
  for (auto& thread : threads) thread.join();
  finish.rethrow();
}

void run_ranks(int nodes, int ranks_per_node, const std::function<void(Hierarchy&)>& body,
               const ConnectOptions& options) {
  run_ranks(Layout::even(nodes, ranks_per_node), body, options);
}

// A connection to every member of world, node, rail, site and cross, and of the heartbeat; while a group connects, as
// many again; beside them data sets, run directory, devices, strangers.
int descriptors_of_rank(const Layout& layout) {
  constexpr int kSpare = 24;
  const int largest_node = *std::max_element(layout.node_sizes.begin(), layout.node_sizes.end());
  return 3 * layout.world_size() + largest_node + 2 * layout.nodes() + kSpare;
}

void reserve_descriptors(int more) {
  rlimit limit = {};
  const auto wanted = static_cast<rlim_t>(open_files() + more);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t permitted = limit.rlim_max;
  limit.rlim_cur = std::min(wanted, permitted);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (permitted >= wanted) return;
  throw std::runtime_error(fmt::format(
      "[comm] open files: ulimit -n permits {}, wanted {} for the connections between ranks", permitted, wanted));
}

}  // namespace prunex::comm
