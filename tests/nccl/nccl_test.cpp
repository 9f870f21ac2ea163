// The NCCL backend: how far it comes without a GPU, and closed forms where there are some.
#include "prunex/comm/nccl/gpu.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "prunex/comm/connect.h"
#include "prunex/comm/environment.h"
#include "prunex/comm/nccl/cuda_handles.h"
#include "tests/comm/operations_check.h"
#include "tests/listening.h"
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

using Body = std::function<void(Hierarchy&)>;

/// Runs the calling test once more, in a process that is rank `rank` of two on one node. NCCL takes the processes for
/// two machines, so that both may have one GPU.
pid_t start_rank(int rank, int port) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const char* of_this_run : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_OUTPUT"}) unsetenv(of_this_run);
  const std::string index = std::to_string(rank);
  setenv("RANK", index.c_str(), 1);
  setenv("LOCAL_RANK", index.c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  setenv("NCCL_HOSTID", index.c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  const auto filter =
      std::string("--gtest_filter=Nccl.") + testing::UnitTest::GetInstance()->current_test_info()->name();
  execl("/proc/self/exe", "test_nccl", filter.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

/// Two ranks that talk through NCCL, threads with a GPU each or, on one GPU, processes: what rank 0 says is like
/// `text`, "no exception" if nothing fails. There a rank that returns waits for the other.
void expect_of_two_ranks(const Body& body, const testing::Matcher<std::string>& text, ConnectOptions options = {}) {
  options.device = at::kCUDA;
  if (gpus() > 1) {
    EXPECT_THAT(message([&] { run_ranks(1, 2, body, options); }), text);
  } else if (std::getenv("RANK") != nullptr) {
    Hierarchy hierarchy = connect(read_environment().value(), options);
    const auto said = message([&] { body(hierarchy); });
    EXPECT_THAT(said, hierarchy.layout.rank == 0 ? text : "no exception");
    message([&] { hierarchy.world->barrier(); });
  } else {
    const int port = tests::free_port(20000);
    const std::array<pid_t, 2> ranks = {start_rank(0, port), start_rank(1, port)};
    for (const pid_t rank : ranks) {
      ASSERT_GT(rank, 0) << "fork";
      int status = 0;
      waitpid(rank, &status, 0);
      EXPECT_EQ(status, 0) << "of rank " << (rank == ranks[1]);
    }
  }
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
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  const auto body = [](Hierarchy& h) {
    EXPECT_THAT(h.staged, IsEmpty());
    check_on_both(*h.world);
    check_on_both(*h.node);
    check_on_both(*h.flat);
  };
  expect_of_two_ranks(body, "no exception");
}

TEST(Nccl, WaitsForWhatTheCurrentStreamHolds) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  const auto body = [](Hierarchy& h) {
    auto x = on_gpu(at::full({512, 512}, 1.0 / 512));
    for (int i = 0; i < 200; ++i) x = x.mm(x);  // every product is the same matrix again
    h.world->all_reduce(x);
    EXPECT_LT(x.sub(2.0 / 512).abs().max().item<float>(), 1e-6);
  };
  expect_of_two_ranks(body, "no exception");
}

TEST(Nccl, ARankThatDoesNotComeEndsTheWaitOfTheOther) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  const auto body = [](Hierarchy& h) {
    auto x = on_gpu(at::ones({5}));
    h.world->all_reduce(x);  // NCCL connects here
    if (h.layout.rank == 0) h.world->all_reduce(x);
    if (h.layout.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
  };
  expect_of_two_ranks(body, HasSubstr("all_reduce in world: no answer within 4 s from rank 1"),
                      {.timeout = std::chrono::seconds(4)});
}

TEST(Nccl, AnAbortFromAnotherThreadEndsAWait) {
  if (gpus() == 0) GTEST_SKIP() << "there is no GPU here";
  const auto body = [](Hierarchy& h) {
    if (h.layout.rank == 1) return;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      h.world->abort("enough");
    });
    auto x = on_gpu(at::ones({5}));
    const auto text = message([&] { h.world->all_reduce(x); });
    other.join();
    throw std::runtime_error(text);
  };
  expect_of_two_ranks(body, HasSubstr("all_reduce in world: enough"));
}

}  // namespace
}  // namespace prunex::comm
