// The NCCL backend: how far it comes without a GPU, and closed forms where there are some.
#include "prunex/comm/nccl/gpu.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <fstream>

#include "prunex/comm/connect.h"
#include "prunex/comm/nccl/cuda_handles.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::message;

int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string library_of(const void* function) {
  Dl_info info = {};
  return dladdr(function, &info) != 0 ? info.dli_fname : "none";
}

// Of a build with CUDA: on the CPU it must work all the same.
TEST(Nccl, LeavesTheCpusGroupsAlone) {
  run_ranks(2, 1, [](Hierarchy& h) {
    at::Tensor x = at::ones({5});
    h.rail->all_reduce(x);
    EXPECT_TRUE(x.eq(2).all().item<bool>());
  });
}

TEST(Nccl, ComesFromItsOwnLibrary) {
  EXPECT_THAT(library_of(reinterpret_cast<const void*>(&ncclAllReduce)), HasSubstr("libnccl.so"));
  EXPECT_THAT(library_of(reinterpret_cast<const void*>(&ncclCommAbort)), HasSubstr("libnccl.so"));
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version / 10000, NCCL_MAJOR);
}

TEST(Nccl, ProgramsHaveTheKernelsOfLibTorch) {
  std::ifstream maps("/proc/self/maps");
  const std::string loaded{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(loaded, HasSubstr("libtorch_cuda.so"));
}

TEST(Nccl, FailuresCarryTheLibrarysWords) {
  expect(ncclSuccess);
  expect(ncclInProgress);
  EXPECT_THAT(message([] { expect(ncclInvalidArgument); }), HasSubstr("NCCL: invalid argument"));
  EXPECT_THAT(message([] { expect(cudaErrorMemoryAllocation); }), HasSubstr("CUDA: out of memory"));
}

TEST(Nccl, WithoutAGpuARunIsRefused) {
  if (gpus() > 0) GTEST_SKIP() << "there is a GPU here";
  const auto store = make_memory_store();
  EXPECT_THAT(message([] { check_gpu(); }), HasSubstr("`device` cuda: no CUDA device: "));
  EXPECT_THAT(message([&] { connect({}, *store, {.device = at::kCUDA}); }), HasSubstr("no CUDA device"));
}

at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.to(at::kCUDA);
}

void expect_equal(const at::Tensor& got, const at::Tensor& wanted) {
  EXPECT_TRUE(got.cpu().equal(wanted)) << got.cpu() << "\nwanted\n" << wanted;
}

// Closed forms for two ranks; rank r has r + 1 everywhere, or entry i + 10 r.
void check_operations(Communicator& group) {
  const int64_t me = group.rank();
  const std::vector<Range> parts = {{0, 2}, {2, 7}};
  const Range mine = parts[static_cast<size_t>(me)];
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kByte}) {
    auto sum = on_gpu(at::full({3, 5}, me + 1, type));
    group.all_reduce(sum);
    expect_equal(sum, at::full({3, 5}, 3, type));
  }
  auto largest = on_gpu(at::arange(7).eq(me).to(at::kByte));
  group.all_reduce(largest, Reduce::kMax);
  expect_equal(largest, at::arange(7).lt(2).to(at::kByte));
  auto told = on_gpu(at::full({6}, me, at::kHalf));
  group.broadcast(told, 1);
  expect_equal(told, at::ones({6}, at::kHalf));

  const auto before = at::arange(7, at::kDouble) + 10 * me, total = at::arange(7, at::kDouble) * 2 + 10;
  auto scattered = on_gpu(before), wanted = before.clone();
  group.reduce_scatter(scattered, parts);
  wanted.slice(0, mine.begin, mine.end).copy_(total.slice(0, mine.begin, mine.end));
  expect_equal(scattered, wanted);
  group.all_gather_parts(scattered, parts);
  expect_equal(scattered, total);

  auto gathered = on_gpu(at::empty({2, 4}, at::kLong));
  group.all_gather(gathered, on_gpu(at::full({4}, me, at::kLong)));
  expect_equal(gathered, at::arange(2).unsqueeze(1).expand({2, 4}));
  auto received = on_gpu(at::zeros({2, mine.size()}, at::kFloat));
  group.all_to_all(received, on_gpu(at::arange(7, at::kFloat) + 10 * me), parts);
  expect_equal(received, at::tensor({0, 10}, at::kFloat).unsqueeze(1) + at::arange(mine.begin, mine.end, at::kFloat));
  group.barrier();

  auto on_cpu = at::full({5}, me + 1.0);
  group.all_reduce(on_cpu);
  EXPECT_TRUE(on_cpu.eq(3).all().item<bool>());
}

TEST(Nccl, TwoRanksOnOneGpuGoThroughTheCpu) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  if (gpus() > 1) GTEST_SKIP() << "every rank has its own GPU here";
  run_ranks(1, 2,
            [](Hierarchy& h) {
              EXPECT_EQ(h.staged, "ranks 0 and 1 share a GPU");
              check_operations(*h.world);
              check_operations(*h.node);
            },
            {.device = at::kCUDA});
}

// What one GPU can show of NCCL itself: operations of a group of one do nothing.
TEST(Nccl, ARankAloneOnItsGpuConnectsUnlessTheRunHasEnded) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  const auto device = use_gpu(0).device;
  const auto store = make_memory_store();
  constexpr std::chrono::milliseconds kMinute(60000);
  const Guard guard{.abort_switch = std::make_shared<AbortSwitch>()};
  const auto connected = [&](const std::string& name) {
    return make_nccl_communicator({.name = name, .members = {0}}, *store, {.connect = kMinute, .operation = kMinute},
                                  guard);
  };
  EXPECT_TRUE(connected("alone")->serves(device));
  guard.abort_switch->abort("enough");
  EXPECT_THAT(message([&] { connected("too late"); }), HasSubstr("enough"));
}

TEST(Nccl, RanksWithGpusOfTheirOwnTalkThroughNccl) {
  if (gpus() < 2) GTEST_SKIP() << "wanted two GPUs, there are " << gpus();
  run_ranks(1, 2,
            [](Hierarchy& h) {
              EXPECT_THAT(h.staged, IsEmpty());
              check_operations(*h.world);
              check_operations(*h.node);
              check_operations(*h.flat);
            },
            {.device = at::kCUDA});
}

TEST(Nccl, WaitsForWhatTheCurrentStreamHolds) {
  if (gpus() < 2) GTEST_SKIP() << "wanted two GPUs, there are " << gpus();
  run_ranks(1, 2,
            [](Hierarchy& h) {
              auto x = on_gpu(at::full({512, 512}, 1.0 / 512));
              for (int i = 0; i < 200; ++i) x = x.mm(x);  // every product is the same matrix again
              h.world->all_reduce(x);
              EXPECT_LT(x.sub(2.0 / 512).abs().max().item<float>(), 1e-6);
            },
            {.device = at::kCUDA});
}

TEST(Nccl, ARankThatDoesNotComeEndsTheWaitOfTheOther) {
  if (gpus() < 2) GTEST_SKIP() << "wanted two GPUs, there are " << gpus();
  const auto call = [] {
    run_ranks(1, 2,
              [](Hierarchy& h) {
                if (h.layout.rank == 1) return;
                auto x = on_gpu(at::ones({5}));
                h.world->all_reduce(x);
              },
              {.timeout = std::chrono::seconds(1), .device = at::kCUDA});
  };
  EXPECT_THAT(message(call), HasSubstr("all_reduce in world: no answer within 1 s from rank 1"));
}

TEST(Nccl, AnAbortFromAnotherThreadEndsAWait) {
  if (gpus() < 2) GTEST_SKIP() << "wanted two GPUs, there are " << gpus();
  const auto call = [] {
    run_ranks(1, 2,
              [](Hierarchy& h) {
                if (h.layout.rank == 1) return;
                std::thread other([&] {
                  std::this_thread::sleep_for(std::chrono::milliseconds(200));
                  h.world->abort("enough");
                });
                auto x = on_gpu(at::ones({5}));
                const auto text = message([&] { h.world->all_reduce(x); });
                other.join();
                throw std::runtime_error(text);
              },
              {.device = at::kCUDA});
  };
  EXPECT_THAT(message(call), HasSubstr("all_reduce in world: enough"));
}

}  // namespace
}  // namespace prunex::comm
