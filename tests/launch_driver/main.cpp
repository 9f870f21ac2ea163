// Behaves as the tests of the launcher ask: launches itself, or is a rank that fails in a given way.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "launch/launch.h"
#include "prunex/comm/connect.h"

namespace {

using namespace prunex;

void sum_for_ever(comm::Hierarchy& h) {
  auto x = at::ones({1000});
  for (;;) {
    h.node->all_reduce(x);
    h.rail->all_reduce(x);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void run_rank(const std::string& behaviour, comm::Hierarchy& h) {
  const bool culprit = h.layout.rank == 3, ignores = behaviour == "deaf" || behaviour == "stubborn";
  if (ignores) std::signal(SIGTERM, SIG_IGN);  // before it says its process id, which the tests wait for
  fmt::print(stderr, "rank {} has pid {}\n", h.layout.rank, getpid());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (behaviour == "sum") {
    auto x = at::full({1}, int64_t(h.layout.rank));
    h.world->all_reduce(x);
    if (h.layout.rank == 0) fmt::print("sum {} threads {}\n", x.item<int64_t>(), std::getenv("OMP_NUM_THREADS"));
    return h.world->barrier();
  }
  if (behaviour == "throw" && culprit) throw std::runtime_error("out of paper");
  if (behaviour == "all throw") throw std::runtime_error("no such folder");
  if (behaviour == "exit silently" && culprit) _exit(7);
  if (behaviour == "kill" && culprit) raise(SIGKILL);
  if (behaviour == "end on request") {
    if (h.layout.rank == 0) fmt::print(stderr, "goes on\n");
    return h.world->barrier();
  }
  if (behaviour == "deaf" && culprit) raise(SIGKILL);
  if (ignores) std::this_thread::sleep_for(std::chrono::minutes(10));
  sum_for_ever(h);
}

/// SIGTERM is there before the launcher starts ranks, which inherit that it is blocked.
void interrupt_launcher(bool is_rank) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(is_rank ? SIG_UNBLOCK : SIG_BLOCK, &signals, nullptr);
  if (!is_rank) kill(getpid(), SIGTERM);
}

void use_up_descriptors() {
  const rlimit few{64, 64};
  setrlimit(RLIMIT_NOFILE, &few);
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
}

void make_elastic(const std::string& behaviour, launch::LaunchOptions& options) {
  options.elastic = behaviour == "a node leaves" || behaviour.starts_with("elastic, ");
  if (behaviour == "elastic, never join") {
    options.words_to_join = {"--join"};
    options.has_begun = [] { return false; };
  }
  if (behaviour.starts_with("elastic, a node comes back")) options.words_to_join = {"--join"};
  if (behaviour == "elastic, a node comes back in vain") {
    options.has_begun = [] {  // asked when a rank has failed
      use_up_descriptors();
      return true;
    };
  }
}

/// Node 1 is killed; the other one is asked to end later.
int end_after_a_loss(int node) {
  if (node == 1) raise(SIGKILL);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return 128 + SIGINT;
}

/// Node 1 ends as if it had been asked to; the other one for longer than those are waited for who lag behind the end.
int leave_as_node(int node) {
  if (node == 1) return 128 + SIGTERM;
  std::this_thread::sleep_for(std::chrono::seconds(11));
  fmt::print(stderr, "done\n");
  return 0;
}

/// The first node ends without a word, the other one for a reason that one of its ranks tells.
int fail_node_by_node(int rank) {
  if (rank < 2) return 7;
  std::this_thread::sleep_for(std::chrono::seconds(rank == 3 ? 3 : 600));
  throw std::runtime_error("out of paper");
}

/// Node 1 fails, and says who it is when it is started again; the other one ends long after that.
int come_back(const comm::Environment& environment, bool again) {
  if (again) {
    fmt::print(stderr, "rank {} of {} after {}\n", environment.rank, environment.world_size, environment.ranks_before);
    return 0;
  }
  if (environment.rank >= 2) return 7;
  std::this_thread::sleep_for(std::chrono::seconds(10));
  return 0;
}

/// As CUDA does in a process that looks for GPUs: it would take signals that are not blocked.
void start_thread() {
  std::thread([] { std::this_thread::sleep_for(std::chrono::minutes(10)); }).detach();
}

}  // namespace

int main(int, char** argv) {
  try {
    const auto environment = comm::read_environment();
    if (argv[1] == std::string("interrupted")) interrupt_launcher(environment.has_value());
    if (!environment) {
      const launch::BlockedSignals signals = launch::signals_of_launcher();
      start_thread();
      launch::LaunchOptions options{.shape = comm::Layout::even(2, 2), .threads = 3};
      make_elastic(argv[1], options);
      return launch::launch_ranks(options, launch::words_of(argv), signals);
    }
    if (argv[1] == std::string("a node leaves")) return leave_as_node(environment->rank / 2);
    if (argv[1] == std::string("elastic, ends after a loss")) return end_after_a_loss(environment->rank / 2);
    if (argv[1] == std::string("elastic, all nodes fail")) return fail_node_by_node(environment->rank);
    if (std::string(argv[1]).starts_with("elastic, a node comes back"))
      return come_back(*environment, argv[2] != nullptr);
    if (std::string(argv[1]).ends_with("never join") && environment->rank == 3)
      throw std::runtime_error("no such disk");
    auto hierarchy = comm::connect(*environment);
    run_rank(argv[1], hierarchy);
    return argv[1] == std::string("end on request") ? 128 + SIGINT : 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "driver: {}\n", error.what());
    return 1;
  }
}
