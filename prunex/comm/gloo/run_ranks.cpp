#include "prunex/comm/gloo/run_ranks.h"

#include <ATen/Parallel.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace prunex::comm {
namespace {

// Where ranks meet at the end: connections stay open until all are done or one has failed.
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

void run_rank(const Layout& layout, Store& store, const GlooOptions& options,
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

}  // namespace

void run_ranks(const Layout& shape, const std::function<void(Hierarchy&)>& body, const GlooOptions& options) {
  const auto store = make_memory_store();
  Finish finish(shape.world_size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    threads.emplace_back([&, rank] { run_rank({shape.node_sizes, rank, shape.sites}, *store, options, body, finish); });
  }
  for (auto& thread : threads) thread.join();
  finish.rethrow();
}

void run_ranks(int nodes, int ranks_per_node, const std::function<void(Hierarchy&)>& body, const GlooOptions& options) {
  run_ranks(Layout::even(nodes, ranks_per_node), body, options);
}

}  // namespace prunex::comm
