// What launchers set, as their documentation has it.
#include "prunex/comm/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

// As torchrun sets them for rank 3 of 2 nodes x 2 ranks.
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

std::optional<Environment> read(const Variables& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::optional<Environment> read_with(const std::string& name, const std::string& value) {
  auto variables = kTorchrun;
  variables[name] = value;
  return read(variables);
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no exception";
}

TEST(Environment, IsReadFromTorchrunsVariables) {
  const auto environment = read(kTorchrun).value();
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.seat.node, 1);
  EXPECT_EQ(environment.seat.local_rank, 1);
  EXPECT_EQ(environment.seat.local_size, 2);
  EXPECT_EQ(environment.master_address, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_TRUE(environment.store_hosted);
  EXPECT_EQ(environment.restart_count, 2);
}

TEST(Environment, IsAbsentWithoutRankOrWorldSize) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"RANK", "0"}}));
  EXPECT_FALSE(read({{"WORLD_SIZE", "2"}}));
}

TEST(Environment, FillsTheGapsOfAShortContract) {
  const auto alone = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).value();
  EXPECT_EQ(alone.seat.local_size, 1);
  auto variables = kTorchrun;
  variables.erase("GROUP_RANK");
  variables.erase("LOCAL_RANK");
  EXPECT_EQ(read(variables)->seat.node, std::nullopt);
  EXPECT_EQ(read(variables)->seat.local_rank, 1);
}

TEST(Environment, NamesAMalformedVariable) {
  EXPECT_THAT(message([] { read_with("RANK", "x"); }), HasSubstr("RANK=x: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("RANK", "4"); }), HasSubstr("RANK=4: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("WORLD_SIZE", "0"); }), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(message([] { read_with("MASTER_PORT", "70000"); }), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(message([] { read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}); }), HasSubstr("MASTER_ADDR is not"));
}

}  // namespace
}  // namespace prunex::comm
