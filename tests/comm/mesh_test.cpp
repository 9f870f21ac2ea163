// Messages between two ranks, and what a rank that keeps to no order does to the other.
#include "prunex/comm/tcp/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/store.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message;

/// The connection between two ranks.
std::pair<Link, Link> pair_of_links(const Privacy& privacy) {
  const auto store = make_memory_store();
  std::pair<Link, Link> links;
  const auto connect = [&](int rank, Link& link) {
    Join join(20s);
    link = std::move(connect_peers({"pair", {0, 1}, rank}, "127.0.0.1", {*store, join, privacy}).at(1 - rank));
  };
  std::thread other([&] { connect(1, links.second); });
  connect(0, links.first);
  other.join();
  return links;
}

std::unique_ptr<Mesh> mesh_of(int rank, Link link, std::chrono::milliseconds timeout = 20s) {
  std::map<int, Link> links;
  links.emplace(1 - rank, std::move(link));
  return std::make_unique<Mesh>(rank, std::move(links), timeout);
}

struct MeshHeader {
  uint64_t tag, bytes;
};

std::string receive_one(Mesh& mesh, std::string& memory, uint64_t tag) {
  return message([&] {
    Mesh::Buffer in(mesh, memory.data(), memory.size());
    in.receive(1, tag);
    in.wait_received();
  });
}

const Privacy kEncrypted = {"correct horse battery staple", true};

TEST(Mesh, CarriesMessagesOfAnySizeInTheirOrder) {
  for (const Privacy& privacy : {Privacy{}, kEncrypted}) {
    auto [first, second] = pair_of_links(privacy);
    const auto one = mesh_of(0, std::move(first)), two = mesh_of(1, std::move(second));
    const std::vector<size_t> sizes = {1, 16, 17, 4096, 16'383, 16'384, 16'385, 300'000, 5'000'000};
    std::vector<std::string> sent, received;
    for (const size_t size : sizes) {
      sent.emplace_back(size, ' ');
      for (size_t i = 0; i < size; ++i) sent.back()[i] = static_cast<char>(i * 31 + size);
      received.emplace_back(size, '?');
    }
    // Both send all before either receives any: nothing is read before there is a place for it.
    const auto exchange = [&](Mesh& mesh, std::vector<std::string>& into) {
      std::vector<Mesh::Buffer> out, in;
      for (size_t i = 0; i < sizes.size(); ++i) {
        out.emplace_back(mesh, sent[i].data(), sizes[i]);
        out.back().send(1 - mesh.rank(), i, 0, sizes[i]);
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        in.emplace_back(mesh, into[i].data(), sizes[i]);
        in.back().receive(1 - mesh.rank(), i);
      }
      for (auto& buffer : in) buffer.wait_received();
      for (auto& buffer : out) buffer.wait_sent();
    };
    auto received_by_two = received;
    std::thread other([&] { exchange(*two, received_by_two); });
    exchange(*one, received);
    other.join();
    EXPECT_EQ(received, sent);
    EXPECT_EQ(received_by_two, sent);
  }
}

// Sizes of gigabytes, other messages than the one that is waited for, and noise: refused before a byte is taken in.
TEST(Mesh, RefusesWhatNobodyWaitsFor) {
  for (const Privacy& privacy : {Privacy{}, kEncrypted}) {
    for (const MeshHeader header :
         {MeshHeader{7, uint64_t{1} << 40}, {8, 100}, {7, 99}, {~uint64_t{0}, ~uint64_t{0}}}) {
      auto [first, second] = pair_of_links(privacy);
      const auto mesh = mesh_of(0, std::move(first));
      ASSERT_TRUE(second.send_all(&header, sizeof(header), std::chrono::steady_clock::now() + 20s));
      const std::string noise(1000, 'n');
      ASSERT_TRUE(second.send_all(noise.data(), noise.size(), std::chrono::steady_clock::now() + 20s));
      std::string memory(100, '.');
      EXPECT_THAT(receive_one(*mesh, memory, 7), HasSubstr("expected was 7 of 100"));
      EXPECT_EQ(memory, std::string(100, '.'));
      EXPECT_THAT(mesh->lost_ranks(), ElementsAre(1));
    }
  }
}

TEST(Mesh, SaysThatTheOtherRankHasEnded) {
  for (const size_t sent : {0, 5, 16, 50}) {
    auto [first, second] = pair_of_links({});
    const auto mesh = mesh_of(0, std::move(first));
    std::string part(50, 'p');
    const MeshHeader header = {7, 100};
    std::memcpy(part.data(), &header, sizeof(header));
    ASSERT_TRUE(second.send_all(part.data(), sent, std::chrono::steady_clock::now() + 20s));
    second = Link();
    std::string memory(100, '.');
    EXPECT_THAT(receive_one(*mesh, memory, 7), HasSubstr("its connection closed"));
    EXPECT_THAT(mesh->lost_ranks(), ElementsAre(1));
  }
}

TEST(Mesh, WaitsNoLongerThanItMay) {
  auto [first, second] = pair_of_links({});
  const auto mesh = mesh_of(0, std::move(first), 100ms);
  std::string memory(100, '.');
  Mesh::Buffer in(*mesh, memory.data(), memory.size());
  in.receive(1, 7);
  EXPECT_THROW(in.wait_received(), Mesh::Late);
  EXPECT_TRUE(mesh->lost_ranks().empty());
}

/// All of it takes longer than the wait for a piece may.
TEST(Mesh, WaitsForLongMessagesAsLongAsSomethingComes) {
  auto [first, second] = pair_of_links({});
  const auto mesh = mesh_of(0, std::move(first), 2s);
  constexpr size_t kPiece = 4;
  std::string text(100, 'p');
  const MeshHeader header = {7, text.size()};
  text.insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
  std::thread other([&, link = std::move(second)]() mutable {
    for (size_t i = 0; i < text.size(); i += kPiece) {
      link.send_all(text.data() + i, std::min(kPiece, text.size() - i), std::chrono::steady_clock::now() + 20s);
      std::this_thread::sleep_for(100ms);
    }
  });
  std::string memory(100, '.');
  EXPECT_EQ(receive_one(*mesh, memory, 7), "no exception");
  EXPECT_EQ(memory, std::string(100, 'p'));
  other.join();
}

TEST(Mesh, IsEndedByAnotherThread) {
  auto [first, second] = pair_of_links({});
  const auto mesh = mesh_of(0, std::move(first));
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    mesh->abort("rank 9 is lost");
  });
  std::string memory(100, '.');
  EXPECT_THAT(receive_one(*mesh, memory, 7), HasSubstr("rank 9 is lost"));
  other.join();
  EXPECT_THAT(message([&] { Mesh::Buffer again(*mesh, memory.data(), 1); }), HasSubstr("rank 9 is lost"));
  char byte = 0;
  EXPECT_FALSE(second.receive_all(&byte, 1, std::chrono::steady_clock::now() + 20s));
}

TEST(Mesh, KeepsConnectionsAliveWhereNothingIsSaid) {
  auto [first, second] = pair_of_links({});
  const int descriptor = first.fd();
  const auto one = mesh_of(0, std::move(first));
  int on = 0;
  socklen_t length = sizeof(on);
  getsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, &length);
  EXPECT_EQ(on, 1);
}

/// All processes of a run, that is: none of them ran while the others were silent.
TEST(Mesh, ARunMayBeStoppedForLongerThanItsTimeout) {
  auto [first, second] = pair_of_links({});
  const auto in_child = [](const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const std::string end = message(body);
    std::fprintf(stderr, "%s\n", end.c_str());
    _exit(end == "no exception" ? 0 : 1);
  };
  std::string memory = "pong";
  const pid_t waits = in_child([&] {
    const auto mesh = mesh_of(0, std::move(first), 2s);
    Mesh::Buffer in(*mesh, memory.data(), memory.size());
    in.receive(1, 0);
    in.wait_received();
  });
  const pid_t works = in_child([&] {
    const auto mesh = mesh_of(1, std::move(second), 2s);
    for (int i = 0; i < 100; ++i) std::this_thread::sleep_for(10ms);  // of its own time
    Mesh::Buffer out(*mesh, memory.data(), memory.size());
    out.send(0, 0, 0, memory.size());
    out.wait_sent();
    std::this_thread::sleep_for(1s);
  });
  std::this_thread::sleep_for(200ms);
  for (const pid_t pid : {works, waits}) kill(pid, SIGSTOP);
  std::this_thread::sleep_for(3s);
  for (const pid_t pid : {waits, works}) kill(pid, SIGCONT);
  for (const pid_t pid : {waits, works}) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << (pid == waits ? "waits" : "works");
  }
}

}  // namespace
}  // namespace prunex::comm
