#include "prunex/comm/tcp/tcp_communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <utility>

namespace prunex::comm {
namespace {

class TcpCommunicator final : public RingCommunicator {
 public:
  TcpCommunicator(const Group& group, std::unique_ptr<Mesh> mesh, std::chrono::milliseconds timeout, const Guard& guard)
      : RingCommunicator(group, guard), mesh_(std::move(mesh)), timeout_(timeout), listener_(listen()) {}

  void abort(const std::string& reason) override {
    if (mesh_) mesh_->abort(reason);
  }

  void all_reduce_pieces(FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) override {
    if (size() == 1) return run_alone(range, chunks, hooks);
    run("all_reduce", ring_volume(range.size(), buffer.element_size),
        [&] { talk(ring_peers(rank(), size()), [&] { ring_all_reduce(*mesh_, buffer, range, chunks, hooks); }); });
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
    talk(ring_peers(rank(), size()), [&] {
      comm::all_reduce(*mesh_, FlatBuffer(tensor), tensor.numel(), reduce_function(tensor.scalar_type(), reduce));
    });
  }
  void do_broadcast(at::Tensor& tensor, int root) override {
    talk(tree_peers(rank(), size(), root), [&] { comm::broadcast(*mesh_, FlatBuffer(tensor), tensor.numel(), root); });
  }
  void do_barrier() override {
    talk(barrier_peers(rank(), size()), [&] { comm::barrier(*mesh_); });
  }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    talk(all_peers(rank(), size()),
         [&] { comm::reduce_scatter(*mesh_, FlatBuffer(tensor), parts, reduce_function(tensor.scalar_type())); });
  }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    talk(all_peers(rank(), size()), [&] { comm::all_gather(*mesh_, FlatBuffer(tensor), parts); });
  }
  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    talk(all_peers(rank(), size()), [&] { comm::all_to_all(*mesh_, FlatBuffer(output), FlatBuffer(input), parts); });
  }

  void talk(std::vector<int> peers, const std::function<void()>& call) {
    peers_ = world_ranks(std::move(peers));
    try {
      call();
    } catch (const Mesh::Late&) {
      throw TimedOut(timeout_, peers_);
    }
  }

  std::string abort_reason() const override { return mesh_->abort_reason(); }
  std::string explain(const std::string& error) override {
    const auto lost = world_ranks(mesh_->lost_ranks());
    if (!lost.empty()) return fmt::format("{} {} ({})", kLostRank, fmt::join(lost, " and "), error);
    return fmt::format("{}, with rank {}", error, fmt::join(peers_, " or "));
  }

  std::unique_ptr<Mesh> mesh_;  // null for a group of one
  const std::chrono::milliseconds timeout_;
  std::vector<int> peers_;  // of the last operation, by world rank
  const AbortSwitch::Listener listener_;
};

}  // namespace

std::string choose_address(const std::string& interface, bool one_machine) {
  if (!interface.empty()) return address_of_interface(interface);
  return one_machine ? "127.0.0.1" : address_of_host_name();
}

std::unique_ptr<RingCommunicator> make_tcp_communicator(const Group& group, const Meeting& meeting,
                                                        const std::string& address, std::chrono::milliseconds timeout,
                                                        const Guard& guard) {
  std::unique_ptr<Mesh> mesh;
  if (group.members.size() > 1) {
    mesh = std::make_unique<Mesh>(group.rank, connect_peers(group, address, meeting), timeout);
  }
  return std::make_unique<TcpCommunicator>(group, std::move(mesh), timeout, guard);
}

}  // namespace prunex::comm
