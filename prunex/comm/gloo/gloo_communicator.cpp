#include "prunex/comm/gloo/gloo_communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace prunex::comm {
namespace {

// Gloo's view of a Store: keys of one group, and an error that names the rank whose address never came.
class GroupStore final : public gloo::rendezvous::Store {
 public:
  GroupStore(const Group& group, comm::Store& store, std::chrono::milliseconds timeout)
      : group_(group), store_(store), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(full(key), std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_.get(full(key), timeout_);
    if (!value) {
      throw std::runtime_error(fmt::format("[comm] {}: rank {} of the group did not come within {:g} s", group_.name,
                                           key, std::chrono::duration<double>(timeout_).count()));
    }
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) get(key);
  }

 private:
  std::string full(const std::string& key) const { return group_.name + "/" + key; }

  const Group& group_;
  comm::Store& store_;
  std::chrono::milliseconds timeout_;
};

using ReduceFunction = gloo::AllreduceOptions::Func;

// c = a op b, element by element; Gloo hands in c == a.
template <class T, class Op>
void combine(void* c, const void* a, const void* b, size_t count) {
  const T* x = static_cast<const T*>(a);
  std::transform(x, x + count, static_cast<const T*>(b), static_cast<T*>(c), Op());
}

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};

template <class T>
ReduceFunction reduce_function(Reduce reduce) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    if (reduce == Reduce::kBitOr) return combine<T, std::bit_or<T>>;
  }
  return reduce == Reduce::kMax ? combine<T, Max> : combine<T, std::plus<T>>;
}

// The text of a Gloo error without the place in Gloo's sources.
std::string reason(const std::exception& error) {
  const std::string text = error.what();
  const auto end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

std::shared_ptr<gloo::Context> connect(const Group& group, Store& store,
                                       std::shared_ptr<gloo::transport::Device> device, const GlooTimeouts& timeouts) {
  auto context = std::make_shared<gloo::rendezvous::Context>(group.rank, static_cast<int>(group.members.size()));
  context->setTimeout(timeouts.connect / 5);  // a pair waits five times this for its connection
  GroupStore addresses(group, store, timeouts.connect);
  context->connectFullMesh(addresses, device);
  context->setTimeout(timeouts.operation);
  return context;
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const Group& group, std::shared_ptr<gloo::Context> context)
      : Communicator(group.name, group.rank, static_cast<int>(group.members.size())),
        members_(group.members),
        context_(std::move(context)) {}

 private:
  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return ring_all_reduce<float>(tensor, reduce);
      case at::kDouble:
        return ring_all_reduce<double>(tensor, reduce);
      case at::kLong:
        return ring_all_reduce<int64_t>(tensor, reduce);
      default:
        return ring_all_reduce<uint8_t>(tensor, reduce);
    }
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    guard("broadcast", tree_peers(root), [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(static_cast<char*>(tensor.data_ptr()), tensor.nbytes());
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  void do_all_gather(at::Tensor& output, const at::Tensor& input) override {
    guard("all_gather", ring_peers(), [&] {
      gloo::AllgatherOptions options(context_);
      options.setInput(static_cast<char*>(input.data_ptr()), input.nbytes());
      options.setOutput(static_cast<char*>(output.data_ptr()), output.nbytes());
      gloo::allgather(options);
    });
  }

  void do_barrier() override {
    guard("barrier", barrier_peers(), [&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

  template <class T>
  void ring_all_reduce(at::Tensor& tensor, Reduce reduce) {
    guard("all_reduce", ring_peers(), [&] {
      gloo::AllreduceOptions options(context_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setOutput(tensor.data_ptr<T>(), tensor.numel());
      options.setReduceFunction(reduce_function<T>(reduce));
      gloo::allreduce(options);
    });
  }

  // Runs one Gloo call. If it fails, the group's connections are closed, so that no other rank waits for this one.
  void guard(const char* operation, const std::vector<int>& peers, const std::function<void()>& call) {
    if (!context_) throw std::runtime_error(fmt::format("[comm] {} in {}: the group broke earlier", operation, name()));
    try {
      call();
    } catch (const std::exception& error) {
      const auto text = describe(operation, peers, reason(error));
      context_.reset();
      throw std::runtime_error(text);
    }
  }

  std::string describe(const char* operation, const std::vector<int>& peers, const std::string& reason) {
    const auto head = fmt::format("[comm] rank {}: {} in {}", members_[rank()], operation, name());
    if (reason.starts_with("Timed out")) {
      const auto seconds = std::chrono::duration<double>(context_->getTimeout()).count();
      return fmt::format("{}: no answer within {:g} s from rank {}", head, seconds, fmt::join(peers, " or "));
    }
    const auto lost = lost_ranks();
    if (lost.empty()) return fmt::format("{} with rank {}: {}", head, fmt::join(peers, " and "), reason);
    return fmt::format("{}: {} {} ({})", head, kLostRank, fmt::join(lost, " and "), reason);
  }

  // The only way to ask a pair whether it is broken is to use it.
  std::vector<int> lost_ranks() {
    std::vector<int> lost;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      try {
        context_->createUnboundBuffer(nullptr, 0)->send(peer, 0);
      } catch (const std::exception&) {
        lost.push_back(members_[peer]);
      }
    }
    return lost;
  }

  // The world ranks that this rank exchanges messages with, by algorithm.
  std::vector<int> ring_peers() const { return world_ranks({rank() + 1, rank() - 1}); }
  std::vector<int> barrier_peers() const {
    std::vector<int> peers;
    for (int step = 1; step < size(); step *= 2) peers.push_back(rank() - step);
    return world_ranks(peers);
  }
  std::vector<int> tree_peers(int root) const {
    const int v = (rank() - root + size()) % size();
    std::vector<int> peers;
    for (int step = 1; step < size(); step *= 2) {
      if (v >= step && v < 2 * step) peers = {v - step + root};
      if (v < step && v + step < size()) peers.push_back(v + step + root);
    }
    return world_ranks(peers);
  }
  std::vector<int> world_ranks(std::vector<int> ranks) const {
    for (int& rank : ranks) rank = members_[(rank + size()) % size()];
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  std::vector<int> members_;
  std::shared_ptr<gloo::Context> context_;  // null for a group of one, and once it is broken
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const Group& group, Store& store,
                                                     std::shared_ptr<gloo::transport::Device> device,
                                                     const GlooTimeouts& timeouts) {
  const bool alone = group.members.size() == 1;
  return std::make_unique<GlooCommunicator>(group,
                                            alone ? nullptr : connect(group, store, std::move(device), timeouts));
}

}  // namespace prunex::comm
