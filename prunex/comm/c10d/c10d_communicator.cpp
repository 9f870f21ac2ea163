#include "prunex/comm/c10d/c10d_communicator.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "prunex/comm/c10d/plain_text.h"

namespace prunex::comm {
namespace {

using Work = c10::intrusive_ptr<::c10d::Work>;

::c10d::ReduceOp operation_of(Reduce reduce) {
  return reduce == Reduce::kMax ? ::c10d::ReduceOp::MAX : ::c10d::ReduceOp::SUM;
}

/// The same memory, as bytes where its type is one that Gloo does not know.
at::Tensor as_known(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  const bool known = type != at::kShort && type != at::kUInt16 && type != at::kUInt32 && type != at::kUInt64;
  return known || !tensor.is_contiguous() ? tensor : tensor.view({-1}).view(at::kByte);
}

std::vector<int64_t> sizes_of(const std::vector<Range>& parts) {
  std::vector<int64_t> sizes;
  for (const Range& part : parts) sizes.push_back(part.size());
  return sizes;
}

class C10dCommunicator final : public Backend {
 public:
  C10dCommunicator(const Group& group, c10::intrusive_ptr<::c10d::ProcessGroup> process_group,
                   std::chrono::milliseconds timeout, const Guard& guard)
      : Backend(group, guard), group_(std::move(process_group)), timeout_(timeout), listener_(listen()) {
    TORCH_CHECK(group_->getRank() == rank() && group_->getSize() == size(), "[comm] ", name(), ": rank ", rank(),
                " of ", size(), " over a process group's rank ", group_->getRank(), " of ", group_->getSize());
  }

  bool serves(const c10::Device& device) const override {
    const auto devices = group_->getDeviceTypes();
    return std::any_of(devices.begin(), devices.end(),
                       [&](const c10::Device& served) { return served.type() == device.type(); });
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(reason_mutex_);
      if (!abort_reason_.empty()) return;
      abort_reason_ = reason;
    }
    try {
      group_->abort();
    } catch (const std::exception&) {  // a backend that cannot: its operations end by their time
    }
  }

 private:
  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    ::c10d::AllreduceOptions options;
    options.reduceOp = operation_of(reduce);
    options.timeout = timeout_;
    std::vector<at::Tensor> tensors{tensor};
    finish([&] { return group_->allreduce(tensors, options); }, tensor.device());
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    ::c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout_;
    std::vector<at::Tensor> tensors{as_known(tensor)};
    finish([&] { return group_->broadcast(tensors, options); }, tensor.device());
  }

  void do_barrier() override {
    ::c10d::BarrierOptions options;
    options.timeout = timeout_;
    finish([&] { return group_->barrier(options); }, at::kCPU);
  }

  /// Everyone's part of everyone else, added up in the order of ranks.
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    at::Tensor mine = slice(tensor, parts[static_cast<size_t>(rank())]);
    at::Tensor received = at::empty({size(), mine.numel()}, tensor.options());
    swap(received, tensor, every(mine.numel()), sizes_of(parts));
    received.select(0, rank()).copy_(mine);
    at::Tensor sum = received.select(0, 0);
    for (int from = 1; from < size(); ++from) sum.add_(received.select(0, from));
    mine.copy_(sum);
  }

  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    const at::Tensor mine = slice(tensor, parts[static_cast<size_t>(rank())]);
    at::Tensor sent = mine.repeat({size()});
    swap(tensor, sent, sizes_of(parts), every(mine.numel()));
  }

  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    const int64_t mine = parts[static_cast<size_t>(rank())].size();
    swap(output, input, every(mine), sizes_of(parts));
  }

  std::vector<int64_t> every(int64_t count) const { return std::vector<int64_t>(static_cast<size_t>(size()), count); }

  /// Each rank's stretch of the input goes to it, and its stretch of the output is what it sent.
  void swap(at::Tensor& output, const at::Tensor& input, std::vector<int64_t> output_sizes,
            std::vector<int64_t> input_sizes) {
    ::c10d::AllToAllOptions options;
    options.timeout = timeout_;
    at::Tensor to = as_known(output.view({-1})), from = as_known(input.view({-1}));
    const int64_t width = to.scalar_type() == output.scalar_type() ? 1 : output.element_size();
    for (std::vector<int64_t>* sizes : {&output_sizes, &input_sizes}) {
      for (int64_t& size : *sizes) size *= width;
    }
    finish([&] { return group_->alltoall_base(to, from, output_sizes, input_sizes, options); }, input.device());
  }

  /// Starts an operation and returns when its result is there.
  template <class Start>
  void finish(const Start& start, const c10::Device& device) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    try {
      const Work work = start();
      // wait() lets a device's stream wait, not its caller: a lost rank would never be noticed
      if (!device.is_cpu() || asks_while_waiting()) wait_until([&] { return work->isCompleted(); }, timeout_, deadline);
      if (!work->wait(device.is_cpu() ? timeout_ : kNoTimeout)) throw std::runtime_error("it was aborted");
    } catch (const TimedOut&) {
      throw;
    } catch (const c10::Error& error) {
      rethrow(error.what_without_backtrace());
    } catch (const std::exception& error) {
      rethrow(error.what());
    }
  }

  [[noreturn]] void rethrow(const std::string& error) const {
    if (error.find("imed out") != std::string::npos || error.find("imeout") != std::string::npos) {
      throw TimedOut(timeout_, others());
    }
    throw std::runtime_error(fmt::format("{} (with rank {})", plain_text(error), fmt::join(others(), " or ")));
  }

  std::string abort_reason() const override {
    const std::lock_guard lock(reason_mutex_);
    return abort_reason_;
  }

  const c10::intrusive_ptr<::c10d::ProcessGroup> group_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex reason_mutex_;
  std::string abort_reason_;
  const AbortSwitch::Listener listener_;
};

}  // namespace

std::unique_ptr<Communicator> make_c10d_communicator(const Group& group,
                                                     c10::intrusive_ptr<::c10d::ProcessGroup> process_group,
                                                     std::chrono::milliseconds timeout, const Guard& guard) {
  return std::make_unique<C10dCommunicator>(group, std::move(process_group), timeout, guard);
}

Hierarchy make_hierarchy(const Layout& layout, const ProcessGroups& groups, std::chrono::milliseconds timeout,
                         const Guard& guard) {
  check(layout);
  TORCH_CHECK(layout.sites == 1, "[comm] process groups of ", layout.sites, " sites");
  Hierarchy hierarchy{.layout = layout};
  for (const auto& [group, members] : memberships(layout)) {
    const auto& theirs = group == &Hierarchy::world  ? groups.world
                         : group == &Hierarchy::node ? groups.node
                                                     : groups.rail;
    auto& made = hierarchy.*group;
    made =
        members.members.size() == 1 ? make_solo(members.name) : make_c10d_communicator(members, theirs, timeout, guard);
    made->stand_on(nodes_of(layout, members));
  }
  hierarchy.flat = make_view("flat", *hierarchy.world);
  return hierarchy;
}

}  // namespace prunex::comm
