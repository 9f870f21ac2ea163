// What a run gives to a node that joins it, and what it keeps.
#include "prunex/train/elastic/handover.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "prunex/comm/connect.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Handover, HasWhatAllHaveAndNothingOfAnybodysOwn) {
  Checkpoint checkpoint;
  checkpoint.exchange = 7;
  checkpoint.structure = checkpoint.progress = "{}";
  const at::Tensor z = at::arange(4, at::kFloat);
  checkpoint.product.insert("w", z);
  checkpoint.node.insert("mask/g", at::ones({4}, at::kBool));
  checkpoint.node.insert("z_node/w", z + 1);
  checkpoint.node.insert("c/w", z + 40);
  checkpoint.node.insert("c_node/w", z + 50);
  for (const char* name : {"images", "teacher"}) checkpoint.node.insert(name, at::full({2}, 5, at::kLong));
  checkpoint.rank.insert("theta/w", z + 2);
  checkpoint.rank.insert("u/w", z + 3);
  checkpoint.rank.insert("updates", at::scalar_tensor(9, at::kLong));
  const std::string config = "seed = 3\nmodel = \"resnet8\"\n";
  const auto node = comm::make_solo("node");
  const std::string bytes = to_bytes({checkpoint, "runs/one", Arithmetic::kBf16, 6}, config, *node);
  EXPECT_EQ(bytes.find(std::string(static_cast<const char*>((z + 3).const_data_ptr()), 16)), std::string::npos);

  const Handover taken = take_over(bytes, config, *node);
  EXPECT_EQ(taken.run_directory, "runs/one");
  EXPECT_EQ(taken.arithmetic, Arithmetic::kBf16);
  EXPECT_EQ(taken.ranks, 6);
  EXPECT_EQ(taken.checkpoint.exchange, 7);
  EXPECT_TRUE(at::equal(taken.checkpoint.product["w"], z));
  EXPECT_TRUE(at::equal(taken.checkpoint.node["mask/g"], checkpoint.node["mask/g"]));
  EXPECT_TRUE(at::equal(taken.checkpoint.node["z_node/w"], z));
  EXPECT_TRUE(at::equal(taken.checkpoint.node["c/w"], z + 40));
  EXPECT_TRUE(at::equal(taken.checkpoint.node["c_node/w"], z + 40));  // corrects nothing until it has seen gradients
  for (const char* name : {"images", "teacher"}) {
    EXPECT_TRUE(at::equal(taken.checkpoint.node[name], checkpoint.node[name])) << name;
  }
  EXPECT_TRUE(at::equal(taken.checkpoint.rank["theta/w"], z));
  EXPECT_TRUE(at::equal(taken.checkpoint.rank["u/w"], at::zeros({4})));
  EXPECT_EQ(taken.checkpoint.rank["updates"].item<int64_t>(), 0);  // of an optimizer that remembers nothing
  EXPECT_THAT([&] { take_over(bytes, "seed = 4\nmodel = \"resnet8\"\n", *node); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("got 4, the run in runs/one had 3")));
  EXPECT_NO_THROW(take_over(bytes, config + "max-broken = 5\n", *node));
  EXPECT_NO_THROW(take_over(bytes, config + "straggler-factor = 0\n", *node));  // which a run of one node does not say
  EXPECT_THAT([&] { take_over(bytes, config + "eval-every = 7\n", *node); },    // which all ranks do together
              ThrowsMessage<std::invalid_argument>(HasSubstr("`eval_every`: got 7, the run in runs/one had 5")));
}

}  // namespace
}  // namespace prunex::train
