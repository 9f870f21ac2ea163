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
#include "tests/comm/operations_check.h"
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

/// Tensors on the host are served, too.
void check_on_both(Communicator& group) {
  check_operations(group, at::kCUDA);
  check_operations(group, at::kCPU);
}

TEST(Nccl, TwoRanksOnOneGpuGoThroughTheCpu) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  if (gpus() > 1) GTEST_SKIP() << "every rank has its own GPU here";
  run_ranks(1, 2,
            [](Hierarchy& h) {
              EXPECT_EQ(h.staged, "ranks 0 and 1 share a GPU");
              check_on_both(*h.world);
              check_on_both(*h.node);
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
              check_on_both(*h.world);
              check_on_both(*h.node);
              check_on_both(*h.flat);
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
