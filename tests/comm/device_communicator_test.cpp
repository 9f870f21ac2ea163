// Tensors that do not lie on the host, played by tensors that do: the way over buffers in the host's memory, and who
// carries what.
#include "prunex/comm/nccl/gpu.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/comm/connect.h"
#include "tests/comm/operations_check.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message;

/// What a backend was asked for, and where the data lay.
struct Calls {
  std::vector<std::string> names;
  std::vector<const void*> data;
};

class NotingBackend final : public Communicator {
 public:
  explicit NotingBackend(Calls& calls) : Communicator("noted", 0, 2), calls_(calls) {}
  void abort(const std::string& reason) override { calls_.names.push_back("abort: " + reason); }

 private:
  void do_all_reduce(at::Tensor& tensor, Reduce) override { note("all_reduce", tensor); }
  void do_broadcast(at::Tensor& tensor, int) override { note("broadcast", tensor); }
  void do_barrier() override { calls_.names.push_back("barrier"); }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>&) override { note("reduce_scatter", tensor); }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>&) override { note("all_gather", tensor); }
  void do_all_to_all(at::Tensor&, const at::Tensor& input, const std::vector<Range>&) override {
    note("all_to_all", input);
  }
  void note(const char* name, const at::Tensor& tensor) {
    calls_.names.push_back(name);
    calls_.data.push_back(tensor.const_data_ptr());
  }

  Calls& calls_;
};

bool nowhere(const at::Tensor&) {
  return false;
}

/// Doubles play the accelerator's tensors.
bool is_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat;
}

TEST(DeviceCommunicator, CarriesEachTensorWhereItLies) {
  Calls on_host, on_device;
  const auto group = make_device_communicator(std::make_unique<NotingBackend>(on_host),
                                              std::make_unique<NotingBackend>(on_device), is_float);
  auto here = at::ones({4}, at::kFloat), there = at::ones({4}, at::kDouble);
  group->all_reduce(here);
  group->all_reduce(there);
  group->broadcast(there);
  group->barrier();
  EXPECT_THAT(on_host.names, ElementsAre("all_reduce", "barrier"));
  EXPECT_THAT(on_host.data, ElementsAre(here.const_data_ptr()));
  EXPECT_THAT(on_device.names, ElementsAre("all_reduce", "broadcast"));
  EXPECT_THAT(on_device.data, ElementsAre(there.const_data_ptr(), there.const_data_ptr()));
  EXPECT_EQ(group->traffic().operations, 4);
}

TEST(DeviceCommunicator, WithoutABackendForTheDeviceItHandsTheHostACopy) {
  Calls on_host;
  const auto group = make_device_communicator(std::make_unique<NotingBackend>(on_host), nullptr, is_float);
  auto here = at::ones({4}, at::kFloat), there = at::ones({4}, at::kDouble);
  group->all_reduce(here);
  group->all_reduce(there);
  group->all_reduce(there);
  ASSERT_THAT(on_host.names, ElementsAre("all_reduce", "all_reduce", "all_reduce"));
  EXPECT_EQ(on_host.data[0], here.const_data_ptr());
  EXPECT_NE(on_host.data[1], there.const_data_ptr());
  EXPECT_EQ(on_host.data[1], on_host.data[2]) << "page-locked memory is kept";
}

TEST(DeviceCommunicator, EndsTheWaitsOfBothBackends) {
  Calls on_host, on_device;
  const auto group = make_device_communicator(std::make_unique<NotingBackend>(on_host),
                                              std::make_unique<NotingBackend>(on_device), is_float);
  group->abort("enough");
  EXPECT_THAT(on_host.names, ElementsAre("abort: enough"));
  EXPECT_THAT(on_device.names, ElementsAre("abort: enough"));
}

TEST(DeviceCommunicator, ServesGpusAndTheCpu) {
  Calls on_host;
  const NotingBackend plain(on_host);
  const auto group = make_device_communicator(std::make_unique<NotingBackend>(on_host), nullptr);
  EXPECT_TRUE(group->serves(at::kCPU));
  EXPECT_TRUE(group->serves(c10::Device(at::kCUDA, 0)));
  EXPECT_TRUE(group->serves(c10::Device(at::kPrivateUse1, 0)));
  EXPECT_FALSE(group->serves(at::kMeta));
  EXPECT_FALSE(plain.serves(c10::Device(at::kCUDA, 0)));
  auto nowhere_at_all = at::empty({4}, at::TensorOptions().device(at::kMeta));
  EXPECT_THAT(message([&] { group->all_reduce(nowhere_at_all); }), HasSubstr("does not serve tensors on meta"));
}

TEST(DeviceCommunicator, CopiesInAndOutOfEveryOperation) {
  run_ranks(1, 3, [](Hierarchy& h) {
    h.world = make_device_communicator(std::move(h.world), nullptr, nowhere);
    h.node = make_device_communicator(std::move(h.node), nullptr, nowhere);
    check_operations(*h.world);
    check_operations(*h.node);
  });
}

TEST(DeviceCommunicator, CountsWhatTheHostWouldCount) {
  run_ranks(2, 1, [](Hierarchy& h) {
    auto x = at::ones({1001}), y = x.clone();
    h.world->all_reduce(x);
    h.rail = make_device_communicator(std::move(h.rail), nullptr, nowhere);
    h.rail->all_reduce(y);
    EXPECT_EQ(h.rail->traffic().bytes.sent, h.world->traffic().bytes.sent);
    EXPECT_EQ(h.rail->traffic().bytes.sent_to_nodes, h.world->traffic().bytes.sent_to_nodes);
  });
}

TEST(DeviceGroups, NamesTwoRanksThatShareAGpu) {
  const auto store = make_memory_store();
  EXPECT_EQ(DeviceGroups({"a", "b", "c", "b"}, *store, {}, {}).sharing(), "ranks 1 and 3 share a GPU");
  EXPECT_EQ(DeviceGroups({"a", "b"}, *store, {}, {}).sharing(), "");
}

TEST(DeviceGroups, GroupsThatShareAGpuGoThroughTheHost) {
  const auto store = make_memory_store();
  const DeviceGroups gpus({"a", "b", "a"}, *store, {}, {});
  Calls on_host;
  const auto group = gpus.extend(std::make_unique<NotingBackend>(on_host), {"noted", {0, 2}, 0}, nullptr);
  EXPECT_TRUE(group->serves(c10::Device(at::kCUDA, 0)));
}

TEST(Gpu, IsAskedForByNameWhereThereIsNone) {
  const auto text = message(check_gpu);
  if (text == "no exception") GTEST_SKIP() << "there is a GPU here";
  const auto reason = AnyOf(HasSubstr("`device` cuda: built without CUDA: configure with -DPRUNEX_CUDA=ON"),
                            HasSubstr("`device` cuda: no CUDA device: "));
  EXPECT_THAT(text, reason);
  const auto store = make_memory_store();
  EXPECT_THAT(message([&] { connect({}, *store, {.device = at::kCUDA}); }), reason);
}

}  // namespace
}  // namespace prunex::comm
