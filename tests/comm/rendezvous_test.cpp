#include "prunex/comm/rendezvous.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "prunex/comm/gloo/connect.h"

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
  EXPECT_EQ(environment.master_address, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_TRUE(environment.store_hosted);
  EXPECT_EQ(environment.restart_count, 2);
  const auto layout = layout_of(environment);
  EXPECT_EQ(layout.nodes(), 2);
  EXPECT_EQ(layout.ranks_here(), 2);
  EXPECT_EQ(layout.rank, 3);
}

TEST(Environment, IsAbsentWithoutRankOrWorldSize) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"RANK", "0"}}));
  EXPECT_FALSE(read({{"WORLD_SIZE", "2"}}));
}

TEST(Environment, FillsTheGapsOfAShortContract) {
  const auto alone = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).value();
  EXPECT_EQ(layout_of(alone).nodes(), 2);
  auto variables = kTorchrun;
  variables.erase("GROUP_RANK");
  variables.erase("LOCAL_RANK");
  EXPECT_EQ(layout_of(read(variables).value()).node(), 1);
}

TEST(Environment, NamesAMalformedVariable) {
  EXPECT_THAT(message([] { read_with("RANK", "x"); }), HasSubstr("RANK=x: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("RANK", "4"); }), HasSubstr("RANK=4: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("WORLD_SIZE", "0"); }), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(message([] { read_with("MASTER_PORT", "70000"); }), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(message([] { read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}); }), HasSubstr("MASTER_ADDR is not"));
}

TEST(Environment, RefusesNodesOfUnequalSize) {
  const auto text = message([] { layout_of(read_with("WORLD_SIZE", "5").value()); });
  EXPECT_THAT(text, HasSubstr("rank 3 of 5 is local rank 1 of 2 on node 1: wanted the same number of ranks"));
  EXPECT_THAT(message([] { layout_of(read_with("LOCAL_RANK", "0").value()); }), HasSubstr("local rank 0 of 2"));
}

TEST(TcpStore, CarriesValuesBetweenClients) {
  const auto server = host_tcp_store(0, "run/");
  const auto client = reach_tcp_store("127.0.0.1", server.port, "run/", std::chrono::seconds(20));
  server.store->set("key", std::string("a\0b", 3));
  EXPECT_EQ(client->get("key", std::chrono::seconds(20)), std::string("a\0b", 3));
  EXPECT_EQ(client->get("other", std::chrono::milliseconds(50)), std::nullopt);
  client->set("other", "");
  EXPECT_EQ(server.store->get("other", std::chrono::seconds(20)), "");
}

TEST(TcpStore, SaysWhereNobodyAnswers) {
  uint16_t closed = host_tcp_store(0).port;
  EXPECT_THAT(message([&] { reach_tcp_store("127.0.0.1", closed, "", std::chrono::milliseconds(300)); }),
              HasSubstr("no store at 127.0.0.1:" + std::to_string(closed) + " within 0.3 s"));
}

TEST(TcpStore, SaysThatItsPortIsTaken) {
  const auto server = host_tcp_store(0);
  EXPECT_THAT(message([&] { host_tcp_store(server.port); }), HasSubstr("port taken?"));
}

TEST(TcpStore, SaysThatItsHostHasEnded) {
  auto server = host_tcp_store(0);
  const auto client = reach_tcp_store("127.0.0.1", server.port, "", std::chrono::seconds(20));
  server.store.reset();
  EXPECT_THAT(message([&] { client->get("key", std::chrono::seconds(20)); }), HasSubstr("lost the store at 127.0.0.1"));
}

void join_and_sum(const Environment& environment) {
  auto h = connect(environment, {.join_timeout = std::chrono::seconds(30)});
  auto x = at::full({1}, h.layout.rank + 1.0f);
  h.world->all_reduce(x);
  EXPECT_EQ(x.item<float>(), 10);
  h.world->barrier();
}

TEST(Connect, JoinsRanksThroughTheStoreThatRankZeroHosts) {
  const auto port = host_tcp_store(0).port;  // free again
  std::vector<std::thread> ranks;
  for (int rank = 3; rank >= 0; --rank) {
    Environment environment = {rank, 4, 2, rank % 2, rank / 2, "127.0.0.1", port, false, 0, "lo"};
    ranks.emplace_back([=] { join_and_sum(environment); });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(Connect, JoinsRanksThroughTheStoreOfTheLauncher) {
  const auto server = host_tcp_store(0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Environment environment = {rank, 4, 4, rank, 0, "127.0.0.1", server.port, true, 0, ""};
    ranks.emplace_back([=] { join_and_sum(environment); });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace prunex::comm
