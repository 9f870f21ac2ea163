// What is packed: alive entries counted one by one, round trips, zeros elsewhere.
#include "prunex/sparsity/compaction.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/groups.h"
#include "tests/units.h"

namespace prunex::sparsity {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::groups_of_every_kind;
using tests::mixed_masks;
using tests::random_tensors;

/// Every kind alone, and all together.
std::vector<std::vector<Group>> group_sets() {
  std::vector<std::vector<Group>> sets{{}, groups_of_every_kind()};
  for (const Group& group : groups_of_every_kind()) sets.push_back({group});
  return sets;
}

std::string name_of(const std::vector<Group>& groups) {
  std::string name = "groups";
  for (const Group& group : groups) name += " " + group.name;
  return name;
}

TensorDict filled_like(const TensorDict& tensors, double value) {
  TensorDict filled;
  for (const auto& item : tensors) filled.insert(item.key(), at::full_like(item.value(), value));
  return filled;
}

/// Packs and unpacks into tensors full of another number; expects the alive entries there and zeros elsewhere.
void expect_round_trip(const std::vector<Group>& groups, const Masks& masks, const TensorDict& tensors) {
  const Compaction plan(tensors, supports_of(groups, masks, tensors));
  at::Tensor buffer = at::empty({plan.numel()}, tensors.front().value().scalar_type());
  plan.pack(tensors, buffer);
  TensorDict back = filled_like(tensors, 99);
  plan.unpack(buffer, back);
  int64_t alive_count = 0;
  for (const auto& item : tensors) {
    const at::Tensor alive = tests::alive_entries(groups, masks, item.key(), item.value());
    alive_count += alive.sum().item<int64_t>();
    EXPECT_TRUE(at::equal(back[item.key()], item.value() * alive.to(item.value().scalar_type())))
        << name_of(groups) << ": " << item.key();
  }
  EXPECT_EQ(plan.numel(), alive_count) << name_of(groups);
}

TEST(Pack, RoundTripsEveryGroupKind) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (const auto& groups : group_sets()) {
        expect_round_trip(groups, mixed_masks(groups), random_tensors(type, format));
        expect_round_trip(groups, full_masks(groups), random_tensors(type, format));
      }
    }
  }
}

TEST(Pack, RoundTripsAGroupWithASingleUnitAliveAndWithNone) {
  const auto groups = groups_of_every_kind();
  for (const int64_t alive : {1, 0}) {
    Masks masks;
    for (const Group& group : groups) masks.insert(group.name, at::arange(group.size).ge(group.size - alive));
    expect_round_trip(groups, masks, random_tensors(at::kFloat, at::MemoryFormat::ChannelsLast));
  }
}

TEST(Pack, SizesAreRowsTimesColumns) {
  // coupled loses 2 of 6 units, filter 2 of 5, channel 1 of 3, shape 12 of 36, flat 2 of 4
  const auto groups = groups_of_every_kind();
  const TensorDict tensors = random_tensors(at::kFloat, at::MemoryFormat::Contiguous);
  const auto numel_with = [&](std::vector<Group> some) {
    return Compaction(tensors, supports_of(some, mixed_masks(some), tensors)).numel();
  };
  const int64_t all = 6 * 27 + 6 + 5 * 36 + 4 * 20 + 7;
  EXPECT_EQ(numel_with({}), all);
  EXPECT_EQ(numel_with({groups[0]}), 4 * 27 + 4 + 5 * 24 + 4 * 20 + 7);
  EXPECT_EQ(numel_with({groups[1]}), all - 2 * 36);
  EXPECT_EQ(numel_with({groups[2]}), all - 6 * 9);
  EXPECT_EQ(numel_with({groups[3]}), all - 5 * 12);
  EXPECT_EQ(numel_with({groups[4]}), all - 4 * 8);  // the four columns that belong to no unit stay
  EXPECT_EQ(numel_with({groups[0], groups[1], groups[2]}), 4 * 18 + 4 + 3 * 24 + 4 * 20 + 7);
}

TEST(Pack, OrdersTensorsAsTheyCome) {
  TensorDict tensors;
  tensors.insert("b", at::tensor({1.0, 2.0}, at::kDouble));
  tensors.insert("a", at::tensor({3.0}, at::kDouble));
  const Compaction plan(tensors, Supports());
  at::Tensor buffer = at::empty({3}, at::kDouble);
  plan.pack(tensors, buffer);
  EXPECT_TRUE(at::equal(buffer, at::tensor({1.0, 2.0, 3.0}, at::kDouble)));
}

TEST(Pack, TakesScalarsAndEmptyLists) {
  TensorDict tensors;
  tensors.insert("count", at::scalar_tensor(5.0, at::kDouble));
  const Compaction plan(tensors, Supports());
  at::Tensor buffer = at::empty({1}, at::kDouble);
  plan.pack(tensors, buffer);
  EXPECT_EQ(buffer.item<double>(), 5);
  EXPECT_EQ(Compaction().numel(), 0);
  EXPECT_EQ(Compaction(TensorDict(), Supports()).numel(), 0);
}

class Refusals : public testing::Test {
 protected:
  void refused(const TensorDict& tensors, at::Tensor buffer, const std::string& why) {
    EXPECT_THAT([&] { plan_.pack(tensors, buffer); }, ThrowsMessage<c10::Error>(HasSubstr(why)));
    TensorDict into = tensors;
    EXPECT_THAT([&] { plan_.unpack(buffer, into); }, ThrowsMessage<c10::Error>(HasSubstr(why)));
  }
  TensorDict with(const std::string& name, const at::Tensor& tensor) const {
    TensorDict other;
    for (const auto& item : tensors_) other.insert(item.key(), item.key() == name ? tensor : item.value());
    return other;
  }

  TensorDict tensors_ = random_tensors(at::kFloat, at::MemoryFormat::ChannelsLast);
  Compaction plan_{tensors_, Supports()};
  at::Tensor buffer_ = at::empty({plan_.numel()});
};

TEST_F(Refusals, OfBuffersThatDoNotFit) {
  refused(tensors_, at::empty({plan_.numel() - 1}), "wanted 435");
  refused(tensors_, at::empty({plan_.numel(), 2}).select(1, 0), "contiguous");
  refused(tensors_, at::empty({plan_.numel()}, at::kDouble), "type");
}

TEST_F(Refusals, OfTensorsThatChangedSinceThePlan) {
  refused(with("first", at::zeros({6, 3, 3, 3})), buffer_, "'first' changed its shape or layout");
  refused(with("linear", at::zeros({20, 4})), buffer_, "'linear' changed its shape or layout");
  refused(with("gamma", at::zeros({8})), buffer_, "'gamma' changed its shape or layout");
  refused(with("free", at::zeros({7}, at::kDouble)), buffer_, "type");
  TensorDict fewer;
  fewer.insert("first", tensors_["first"]);
  refused(fewer, buffer_, "1 tensors with a plan for 5");
}

TEST_F(Refusals, OfLayoutsWhoseRowsAreNotOutermost) {
  TensorDict tensors;
  tensors.insert("w", at::zeros({4, 3}).t());
  const std::vector<Group> groups{{.name = "g", .slices = {{"w", kRows, {}}}, .size = 3}};
  const Supports supports = supports_of(groups, mixed_masks(groups), tensors);
  EXPECT_THAT([&] { Compaction(tensors, supports); }, ThrowsMessage<c10::Error>(HasSubstr("outermost")));
  TensorDict gaps;
  gaps.insert("w", at::zeros({4, 6}).slice(1, 0, 3));
  EXPECT_THAT([&] { Compaction(gaps, Supports()); }, ThrowsMessage<c10::Error>(HasSubstr("dense")));
}

}  // namespace
}  // namespace prunex::sparsity
