#include "prunex/comm/gloo/gloo_communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/context.h>

#include <functional>
#include <stdexcept>

#include "prunex/comm/gloo/collectives.h"
#include "prunex/comm/gloo/context.h"
#include "prunex/comm/gloo/mesh.h"

namespace prunex::comm {
namespace {

std::unique_ptr<Mesh> connect(const Group& group, Meeting meeting, const Network& network,
                              std::chrono::milliseconds timeout) {
  auto context = connect_context(group, network, meeting);
  context->setTimeout(timeout);
  return std::make_unique<Mesh>(std::move(context));
}

class GlooCommunicator final : public RingCommunicator {
 public:
  GlooCommunicator(const Group& group, std::unique_ptr<Mesh> mesh, const Guard& guard)
      : RingCommunicator(group.name, group.rank, static_cast<int>(group.members.size())),
        members_(group.members),
        mesh_(std::move(mesh)),
        guard_(guard),
        listener_(guard_.abort_switch->listen([this](const std::string& reason) { abort(reason); })) {}

  void abort(const std::string& reason) override {
    if (mesh_) mesh_->abort(reason);
  }

  void all_reduce_pieces(FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) override {
    if (size() == 1) return run_alone(range, chunks, hooks);
    run("all_reduce", ring_volume(range.size(), buffer.element_size), [&] {
      guard("all_reduce", ring_peers(rank(), size()), [&] { ring_all_reduce(*mesh_, buffer, range, chunks, hooks); });
    });
  }

 private:
  static void run_alone(Range range, int64_t chunks, const RingHooks& hooks) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      hooks.combine(ring_piece(range, 1, chunks, 0, chunk), nullptr);
      hooks.publish(ring_piece(range, 1, chunks, 0, chunk));
    }
    hooks.first_block_sent();
  }

  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    guard("all_reduce", ring_peers(rank(), size()), [&] {
      comm::all_reduce(*mesh_, flat(tensor), tensor.numel(), reduce_function(tensor.scalar_type(), reduce));
    });
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    guard("broadcast", tree_peers(rank(), size(), root),
          [&] { comm::broadcast(*mesh_, flat(tensor), tensor.numel(), root); });
  }

  void do_barrier() override {
    guard("barrier", barrier_peers(rank(), size()), [&] { comm::barrier(*mesh_); });
  }

  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    guard("reduce_scatter", all_peers(rank(), size()), [&] {
      comm::reduce_scatter(*mesh_, flat(tensor), parts, reduce_function(tensor.scalar_type(), Reduce::kSum));
    });
  }

  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    guard("all_gather", all_peers(rank(), size()), [&] { comm::all_gather(*mesh_, flat(tensor), parts); });
  }

  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    guard("all_to_all", all_peers(rank(), size()), [&] { comm::all_to_all(*mesh_, flat(output), flat(input), parts); });
  }

  static FlatBuffer flat(const at::Tensor& tensor) {
    return {tensor.data_ptr(), static_cast<int64_t>(tensor.element_size())};
  }

  // Runs one operation. If it fails, the group's connections are closed, so that no other rank waits for this one.
  void guard(const char* operation, const std::vector<int>& peers, const std::function<void()>& call) {
    if (broken_) throw std::runtime_error(fmt::format("[comm] {} in {}: the group broke earlier", operation, name()));
    try {
      call();
    } catch (const std::exception& error) {
      broken_ = true;
      const auto text = describe(operation, peers, plain_text(error.what()));
      mesh_->abort(text);
      throw std::runtime_error(text);
    }
  }

  std::string describe(const char* operation, const std::vector<int>& peers, const std::string& reason) {
    const auto head = fmt::format("[comm] rank {}: {} in {}", members_[rank()], operation, name());
    const bool timed_out = reason.starts_with("Timed out");
    // A broken connection says little: the peer may have died, or have ended because another one did.
    if (!timed_out && mesh_->abort_reason().empty()) guard_.abort_switch->reason(guard_.patience);
    if (const auto aborted = mesh_->abort_reason(); !aborted.empty()) return fmt::format("{}: {}", head, aborted);
    if (timed_out) {
      return fmt::format("{}: no answer within {:g} s from rank {}", head, mesh_->timeout_seconds(),
                         fmt::join(world_ranks(peers), " or "));
    }
    const auto lost = world_ranks(mesh_->lost_ranks());
    if (!lost.empty()) return fmt::format("{}: {} {} ({})", head, kLostRank, fmt::join(lost, " and "), reason);
    return fmt::format("{} with rank {}: {}", head, fmt::join(world_ranks(peers), " and "), reason);
  }

  std::vector<int> world_ranks(std::vector<int> ranks) const {
    for (int& rank : ranks) rank = members_[rank];
    return ranks;
  }

  std::vector<int> members_;
  std::unique_ptr<Mesh> mesh_;  // null for a group of one
  bool broken_ = false;
  const Guard guard_;
  const AbortSwitch::Listener listener_;  // the last member: no call comes once the others are destroyed
};

}  // namespace

std::unique_ptr<RingCommunicator> make_gloo_communicator(const Group& group, Meeting meeting, const Network& network,
                                                         std::chrono::milliseconds timeout, const Guard& guard) {
  const bool alone = group.members.size() == 1;
  return std::make_unique<GlooCommunicator>(group, alone ? nullptr : connect(group, meeting, network, timeout), guard);
}

}  // namespace prunex::comm
