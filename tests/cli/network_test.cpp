// What a run opens to the network, and what it says when its ranks do not find each other.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/cli/command.h"
#include "tests/listening.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A socket that is bound to a port of 127.0.0.1, and listens to it if it is to.
class Port {
 public:
  explicit Port(bool listens) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(listens ? listen(socket_, 8) : 0, 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin_port);
  }
  ~Port() { close(socket_); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  std::string number() const { return std::to_string(number_); }

 private:
  int socket_;
  int number_ = 0;
};

class Network : public testing::Test {
 protected:
  /// One rank of two, whose other one never comes.
  Result run_rank(const std::string& rank, const std::vector<std::string>& variables, const std::string& limit = "2") {
    std::vector<std::string> words{"/usr/bin/env", "RANK=" + rank, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1"};
    words.insert(words.end(), variables.begin(), variables.end());
    const auto command = prunex({"train", "--samples", "80", "--model", "resnet8", "--batch-size", "4", "--exchanges",
                                 "2", "--local-steps", "1", "--nodes", "2", "--join-timeout", limit});
    words.insert(words.end(), command.begin(), command.end());
    return run_program(scratch_.path(), words);
  }

  const tests::Scratch scratch_;
};

TEST_F(Network, ALocalRunListensOnLoopbackAndOnNothingOnceAllHaveJoined) {
  Running training(scratch_.path(), prunex({"train", "--nodes", "2", "--ranks-per-node", "2", "--samples", "160",
                                            "--model", "resnet8", "--precision", "fp32", "--batch-size", "8",
                                            "--exchanges", "1000000", "--local-steps", "1", "--eval-every", "0"}));
  const auto listening = [&] {
    auto addresses = tests::listening_addresses(training.pid());
    for (const int rank : training.children()) addresses.merge(tests::listening_addresses(rank));
    return addresses;
  };
  std::set<std::string> seen;
  std::atomic<bool> joined = false;
  std::thread looking([&] {
    while (!joined) {
      seen.merge(listening());
      usleep(2'000);
    }
  });
  const bool trains = training.wait_for("exchange 1/");
  joined = true;
  looking.join();
  ASSERT_TRUE(trains);
  EXPECT_THAT(seen, ElementsAre(tests::kLoopback));
  EXPECT_THAT(listening(), ElementsAre());
}

TEST_F(Network, AStoreThatRefusesIsNamedWhileItIsWaitedFor) {
  const Port closed(false);
  const auto result = run_rank("1", {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + closed.number()});
  EXPECT_EQ(result.status, 1);
  const auto problem = "no store at 127.0.0.1:" + closed.number() + ": connect to 127.0.0.1:" + closed.number() +
                       ": Connection refused; ";
  EXPECT_THAT(result.errors, HasSubstr("prunex: " + problem + "waiting for "));
  EXPECT_THAT(result.errors, HasSubstr("prunex: [comm] " + problem + "gave up after 2 s (--join-timeout)"));
}

TEST_F(Network, AStoreWhoseNameDoesNotResolveIsNamedWhileItIsWaitedFor) {
  for (const char* rank : {"0", "1"}) {
    const auto result = run_rank(rank, {"MASTER_ADDR=nowhere.invalid", "MASTER_PORT=1"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.errors, HasSubstr("nowhere.invalid"));
    EXPECT_THAT(result.errors, HasSubstr("gave up after 2 s (--join-timeout)"));
  }
}

TEST_F(Network, ARankThatNeverComesIsNamedWhileItIsWaitedFor) {
  const auto number = Port(false).number();  // free again
  const auto result = run_rank("0", {"MASTER_ADDR=localhost", "MASTER_PORT=" + number});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("prunex: 1 of 2 ranks joined: missing rank 1; waiting for "));
  EXPECT_THAT(result.errors,
              HasSubstr("prunex: [comm] 1 of 2 ranks joined within 2 s: missing rank 1 (--join-timeout)"));
}

TEST_F(Network, AProgramThatIsNoStoreDoesNotKeepARankForEver) {
  const Port silent(true);
  const std::vector<std::string> place = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + silent.number()};
  auto of_torchrun = place;
  of_torchrun.emplace_back("TORCHELASTIC_USE_AGENT_STORE=True");
  EXPECT_THAT(run_rank("1", place, "1").errors, HasSubstr("another program answers there"));
  const auto result = run_rank("1", of_torchrun, "1");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("no store of torchrun at 127.0.0.1:" + silent.number()));
}

TEST_F(Network, APortThatIsTakenIsSaidToBe) {
  const Port taken(true);
  const auto result = run_rank("0", {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + taken.number()});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, "prunex: [comm] MASTER_ADDR, MASTER_PORT: the store cannot listen on 127.0.0.1:" +
                               taken.number() + ": Address already in use; wanted a free port\n");
}

TEST_F(Network, TooFewDescriptorsAreSaidToBe) {
  auto words = prunex({"train", "--nodes", "2", "--quiet"});
  words.insert(words.begin(), {"/bin/bash", "-c", "ulimit -n 30 && exec \"$@\"", "bash"});
  const auto result = run_program(scratch_.path(), words);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("prunex: [comm] open files: ulimit -n permits 30, wanted "));
  EXPECT_THAT(result.errors, Not(HasSubstr("port")));
}

}  // namespace
}  // namespace prunex::cli
