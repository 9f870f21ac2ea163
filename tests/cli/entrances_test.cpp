// Machines that join a run of which they know an address, a port and the secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/listening.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;

class Entrances : public testing::Test {
 protected:
  Entrances() {
    for (const char* folder : {"here", "there"}) std::filesystem::create_directory(scratch_ / folder);
  }

  /// One of two nodes, as a launcher starts them, in the folder `here`.
  std::unique_ptr<Running> start(int rank, const std::vector<std::string>& more) {
    auto command = endless_elastic_run({"--nodes", "2", "--strategy", "local_sgd", "--payload", "int8"});
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<Running>(scratch_ / "here", as_rank(rank, 2, port_, command));
  }

  std::vector<std::string> join(const std::string& secret_file) const {
    return {"train", "--join", "127.0.0.1:" + std::to_string(port_), "--secret-file", secret_file};
  }

  std::string there(const std::string& file) const { return scratch_ / ("there/" + file); }

  const tests::Scratch scratch_;
  const int port_ = tests::free_port(20'000);
};

TEST_F(Entrances, LetWhoKnowsTheSecretInFromAnywhere) {
  const std::string ours = write_secret(scratch_ / "ours", "all nodes of the run know it"),
                    copy = write_secret(scratch_ / "copy", "all nodes of the run know it"),
                    theirs = write_secret(scratch_ / "theirs", "no node of the run knows it");
  std::filesystem::create_directory(there("run"));  // of another run
  std::ofstream(there("run/doors")) << "token 1\n127.0.0.1 1\n";
  const auto first = start(0, {"--secret-file", ours, "--encrypt"});
  const auto second = start(1, {"--secret-file", ours, "--encrypt"});
  ASSERT_TRUE(first->wait_for("exchange 2/"));

  const Result stranger = run(there(""), join(theirs));
  EXPECT_EQ(stranger.status, 1);
  EXPECT_THAT(stranger.errors, HasSubstr("it has another secret; wanted a run under way that has this secret"));

  Running third(there(""), prunex(join(copy)));
  ASSERT_TRUE(first->wait_for("node 2 joined after exchange "));
  ASSERT_TRUE(third.wait_for("and writes to run-2"));
  kill(first->pid(), SIGINT);
  EXPECT_EQ(third.finish().status, 128 + SIGINT);
  EXPECT_EQ(first->finish().status, 128 + SIGINT);
  EXPECT_EQ(second->finish().status, 128 + SIGINT);

  EXPECT_EQ(tests::text_of(there("run/doors")), "token 1\n127.0.0.1 1\n");
  EXPECT_FALSE(std::filesystem::exists(there("run/checkpoint")));
  EXPECT_TRUE(std::filesystem::exists(there("run-2/checkpoint")));
  EXPECT_THAT(tests::text_of(there("run-2/config.toml")),
              testing::AllOf(HasSubstr("encrypt = true\n"), HasSubstr("secret-file = \"" + copy + "\"\n")));
}

TEST_F(Entrances, LetNodesOfSeveralRanksIn) {
  const std::string secret = write_secret(scratch_ / "ours", "all nodes of the run know it");
  Running training(scratch_ / "here", prunex({"train",
                                              "--nodes",
                                              "1",
                                              "--ranks-per-node",
                                              "2",
                                              "--elastic",
                                              "--samples",
                                              "320",
                                              "--model",
                                              "resnet8",
                                              "--strategy",
                                              "diloco",
                                              "--batch-size",
                                              "4",
                                              "--exchanges",
                                              "4000",
                                              "--local-steps",
                                              "2",
                                              "--eval-every",
                                              "0",
                                              "--run-dir",
                                              "run",
                                              "--secret-file",
                                              secret}));
  ASSERT_TRUE(training.wait_for("exchange 2/"));
  std::ifstream doors(scratch_ / "here/run/doors");
  std::string token, port;
  doors >> token >> port;
  Running second(there(""),
                 prunex({"train", "--join", "localhost:" + port, "--secret-file", secret, "--run-dir", "mine"}));
  ASSERT_TRUE(training.wait_for("node 1 joined after exchange "));
  ASSERT_TRUE(second.wait_for("and writes to mine"));
  kill(training.pid(), SIGINT);
  EXPECT_EQ(training.finish().status, 128 + SIGINT);
  EXPECT_EQ(second.finish().status, 128 + SIGINT);
  const std::string text = tests::text_of(scratch_ / "here/run/membership.jsonl");
  EXPECT_THAT(text, HasSubstr("\"nodes\":[0,1],\"lost\":[],\"joined\":[1]"));
  EXPECT_TRUE(std::filesystem::exists(there("mine/config.toml")));
}

TEST_F(Entrances, ThatAreNoneAreRefusedByNameAndSoon) {
  const std::string port = std::to_string(port_),
                    secret = write_secret(scratch_ / "ours", "all nodes of the run know it");
  const Result open = run(there(""), {"train", "--join", "127.0.0.1:" + port});
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.errors, HasSubstr("prunex: --join: got 127.0.0.1:" + port +
                                     " without a secret, wanted --secret-file, or the run's directory\n"));
  const Result nobody = run(there(""), join(secret));
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.errors, HasSubstr("nobody answers at 127.0.0.1:" + port));
  const Result other = run(there(""), {"train", "--join", "127.0.0.1:0", "--secret-file", secret});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("127.0.0.1:0/config.toml"));
}

}  // namespace
}  // namespace prunex::cli
