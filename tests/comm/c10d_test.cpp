// Groups over a c10d::ProcessGroup, whose backend here is written out over a group of ours: it gathers everything and
// picks what is asked for.
#include "prunex/comm/c10d/c10d_communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "prunex/comm/c10d/plain_text.h"
#include "prunex/comm/connect.h"
#include "tests/comm/operations_check.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using tests::message;

using Started = c10::intrusive_ptr<::c10d::Work>;

/// An operation that is over.
class Done final : public ::c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

Started done() {
  return c10::make_intrusive<Done>();
}

at::Tensor gathered(Communicator& group, const at::Tensor& input) {
  auto sizes = input.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  at::Tensor all = at::empty(sizes, input.options());
  group.all_gather(all, input.contiguous());
  return all;
}

class GatheringBackend final : public ::c10d::Backend {
 public:
  explicit GatheringBackend(Communicator& group) : ::c10d::Backend(group.rank(), group.size()), group_(group) {}

  const std::string getBackendName() const override { return "gathering"; }
  void abort() override { aborted_ = true; }
  bool aborted() const { return aborted_; }

  Started allreduce(std::vector<at::Tensor>& tensors, const ::c10d::AllreduceOptions& options) override {
    expect_time(options.timeout);
    const at::Tensor all = gathered(group_, tensors[0]);
    tensors[0].copy_(options.reduceOp == ::c10d::ReduceOp::MAX ? all.amax(0) : all.sum(0).to(all.scalar_type()));
    return done();
  }

  Started broadcast(std::vector<at::Tensor>& tensors, const ::c10d::BroadcastOptions& options) override {
    expect_time(options.timeout);
    tensors[0].copy_(gathered(group_, tensors[0])[options.rootRank]);
    return done();
  }

  Started barrier(const ::c10d::BarrierOptions& options) override {
    expect_time(options.timeout);
    group_.barrier();
    return done();
  }

  Started alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const ::c10d::AllToAllOptions& options) override {
    expect_time(options.timeout);
    const at::Tensor sizes = gathered(group_, at::tensor(input_sizes, at::kLong));
    const int64_t longest = sizes.sum(1).max().item<int64_t>();
    at::Tensor padded = at::zeros({longest}, input.options());
    padded.narrow(0, 0, input.numel()).copy_(input);
    const at::Tensor all = gathered(group_, padded);
    int64_t end = 0;
    for (int from = 0; from < group_.size(); ++from) {
      const int64_t begin = sizes[from].narrow(0, 0, group_.rank()).sum().item<int64_t>();
      const int64_t count = output_sizes[static_cast<size_t>(from)];
      EXPECT_EQ(count, sizes[from][group_.rank()].item<int64_t>());
      output.narrow(0, end, count).copy_(all[from].narrow(0, begin, count));
      end += count;
    }
    EXPECT_EQ(end, output.numel());
    return done();
  }

 private:
  static void expect_time(std::chrono::milliseconds timeout) { EXPECT_EQ(timeout, std::chrono::seconds(7)); }

  Communicator& group_;
  bool aborted_ = false;
};

c10::intrusive_ptr<::c10d::ProcessGroup> process_group(c10::intrusive_ptr<::c10d::Backend> backend) {
  auto group = c10::make_intrusive<::c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  group->setBackend(at::kCPU, ::c10d::ProcessGroup::BackendType::CUSTOM, std::move(backend));
  return group;
}

std::unique_ptr<Communicator> over(c10::intrusive_ptr<::c10d::Backend> backend) {
  Group group{.name = "theirs", .members = {}, .rank = backend->getRank()};
  group.members.resize(static_cast<size_t>(backend->getSize()));
  std::iota(group.members.begin(), group.members.end(), 4);  // world ranks
  return make_c10d_communicator(group, process_group(std::move(backend)), std::chrono::seconds(7),
                                {std::make_shared<AbortSwitch>()});
}

TEST(C10d, DoesWhatMessagesDo) {
  run_ranks(1, 3, [](Hierarchy& h) {
    const auto group = over(c10::make_intrusive<GatheringBackend>(*h.world));
    check_operations(*group);
  });
}

TEST(C10d, AddsUpInTheOrderOfRanksAndCountsByTheFormulas) {
  run_ranks(1, 3, [](Hierarchy& h) {
    const auto group = over(c10::make_intrusive<GatheringBackend>(*h.world));
    const std::vector<Range> parts = {{0, 30}, {30, 30}, {30, 101}};
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(group->rank()));
    at::Tensor ours = at::randn({101}, generator), theirs = ours.clone();
    h.node->reduce_scatter(ours, parts);
    group->reduce_scatter(theirs, parts);
    EXPECT_TRUE(ours.equal(theirs));
    EXPECT_EQ(group->traffic().bytes.sent, h.node->traffic().bytes.sent);
  });
}

TEST(C10d, ServesWhatTheProcessGroupHasABackendFor) {
  run_ranks(1, 1, [](Hierarchy& h) {
    const auto group = over(c10::make_intrusive<GatheringBackend>(*h.world));
    EXPECT_TRUE(group->serves(at::kCPU));
    EXPECT_FALSE(group->serves(c10::Device(at::kCUDA, 0)));
  });
}

/// Fails as backends do.
class FailingBackend final : public ::c10d::Backend {
 public:
  explicit FailingBackend(std::string words) : ::c10d::Backend(1, 3), words_(std::move(words)) {}
  const std::string getBackendName() const override { return "failing"; }
  void abort() override { ++aborts; }
  Started allreduce(std::vector<at::Tensor>&, const ::c10d::AllreduceOptions&) override { TORCH_CHECK(false, words_); }
  int aborts = 0;

 private:
  std::string words_;
};

std::string failure_of(const std::string& words) {
  const auto backend = c10::make_intrusive<FailingBackend>(words);
  const auto group = over(backend);
  at::Tensor x = at::ones({4});
  const std::string text = message([&] { group->all_reduce(x); });
  EXPECT_EQ(backend->aborts, 1) << "so that no other rank waits for this one";
  return text;
}

TEST(C10d, ALostRankIsOneLine) {
  EXPECT_EQ(failure_of("[/pytorch/third_party/gloo/pair.cc:553] Connection closed by peer [10.0.0.1]:7"),
            "[comm] rank 5: all_reduce in theirs: its connection closed (with rank 4 or 6)");
}

TEST(C10d, SpeaksPlainlyOfWhatGlooSays) {
  EXPECT_EQ(plain_text("[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:41234"),
            "its connection closed");
  EXPECT_EQ(plain_text("[./gloo/transport/tcp/pair.cc:446] writev [10.0.0.1]:7: Broken pipe"), "its connection closed");
  EXPECT_EQ(plain_text("[enforce fail at ./gloo/context.cc:66] a >= 0. Invalid timeout\nmore"),
            "a >= 0. Invalid timeout");
  EXPECT_EQ(plain_text("it broke"), "it broke");
}

TEST(C10d, ATimeOutNamesWhoWasWaitedFor) {
  for (const char* words : {"[pair.cc:1] Timed out waiting 7000ms for recv operation to complete",
                            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"}) {
    EXPECT_EQ(failure_of(words), "[comm] rank 5: all_reduce in theirs: no answer within 7 s from rank 4 or 6");
  }
}

TEST(C10d, IsToldApartFromAGroupOfOtherRanks) {
  const auto backend = c10::make_intrusive<FailingBackend>("");
  const Group two{.name = "two", .members = {0, 1}, .rank = 1};
  EXPECT_THAT(message([&] {
                make_c10d_communicator(two, process_group(backend), std::chrono::seconds(7),
                                       {std::make_shared<AbortSwitch>()});
              }),
              HasSubstr("rank 1 of 2 over a process group's rank 1 of 3"));
}

}  // namespace
}  // namespace prunex::comm
