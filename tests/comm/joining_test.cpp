// Nodes that come while a run is under way. A rank that is a thread ends by closing its door and its groups.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/comm/elastic/invitation.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/store.h"
#include "tests/comm/quick_ranks.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kAfterTheJoin = 3;  // exchanges

/// A rank of a run that makes exchanges until some time after the node with this number has joined.
class Worker {
 public:
  Worker(Hierarchy& ranks, Elastic& elastic, int last_node) : ranks_(ranks), elastic_(elastic), last_node_(last_node) {}

  std::function<void(int64_t k)> before_admission = [](int64_t) {};

  /// As a member of the beginning.
  void run() { go_on_from(0); }

  /// As a newcomer: what it fetches says where the others are.
  void join() {
    const Change change = elastic_.join();
    EXPECT_EQ(change.joined, std::vector<int>{elastic_.node()});
    EXPECT_EQ(elastic_.contributes(), elastic_.contributors() == ranks_.layout.world_size());
    const std::string state = elastic_.fetch();
    EXPECT_EQ(state.substr(state.find(' ')), " " + std::string(300'000, 'z'));
    EXPECT_EQ(std::stoll(state), change.transactions);
    note(change);
    go_on_from(change.transactions);
  }

  const std::vector<Change>& changes() const { return changes_; }

 private:
  void go_on_from(int64_t k) {
    for (++k; last_ == 0 || k <= last_; ++k) {
      if (exchange(k)) {
        before_admission(k);
        with_losses([&] { note(elastic_.admit(std::to_string(k) + " " + std::string(300'000, 'z'))); });
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  /// Whether somebody waits to be let in.
  bool exchange(int64_t k) {
    bool waits = false;
    with_losses(
        [&] {
          const double mean = mean_of_nodes();
          EXPECT_EQ(mean, expected_mean()) << k;
          waits = elastic_.commit(k, static_cast<uint64_t>(mean * 1e6));
        },
        k);
    return waits;
  }

  /// Until it is done, or exchange `exchange` counts without.
  void with_losses(const std::function<void()>& work, int64_t exchange = INT64_MAX) {
    for (;;) {
      try {
        return work();
      } catch (const std::runtime_error&) {
        if (!elastic_.has_lost()) throw;
        note(elastic_.regroup());
        if (changes_.back().transactions >= exchange) return;
      }
    }
  }

  /// Of 2 to the power of the node's number; in binary fractions as long as two of them are three at most.
  double mean_of_nodes() const {
    at::Tensor value = at::full({1}, ranks_.share * std::pow(2.0, elastic_.node()), at::kDouble);
    ranks_.rail->all_reduce(value);
    return std::round(value.item<double>() / ranks_.layout.nodes() * 1e6) / 1e6;
  }

  double expected_mean() const {
    double sum = 0, count = 0;
    const int ranks_per_node = ranks_.layout.ranks_here(), contributing = elastic_.contributors() / ranks_per_node;
    for (const int node : elastic_.roster().nodes) {
      if (count == contributing) break;
      sum += std::pow(2.0, node);
      ++count;
    }
    return std::round(sum / count * 1e6) / 1e6;
  }

  void note(const Change& change) {
    changes_.push_back(change);
    const bool is_there = std::count(change.joined.begin(), change.joined.end(), last_node_) > 0;
    if (is_there) last_ = change.transactions + kAfterTheJoin;
  }

  Hierarchy& ranks_;
  Elastic& elastic_;
  int last_node_;
  int64_t last_ = 0;
  std::vector<Change> changes_;
};

/// A run of threads, and more of them.
class Joining : public testing::Test {
 protected:
  ~Joining() override {
    for (auto& thread : threads_) thread.join();
  }

  void begin(const Layout& shape, int last_node, const std::function<void(Worker&, int rank)>& prepare = nullptr) {
    doors_ = published_.get_future().share();
    const std::shared_ptr<Store> store = make_memory_store();
    for (int rank = 0; rank < shape.world_size(); ++rank) {
      start([=, this] {
        Hierarchy ranks = connect({shape.node_sizes, rank}, *store, connection());
        ranks.port = port_;
        Elastic elastic(ranks, options());
        if (rank == 0) entrance_ = elastic.entrance();
        if (rank == 0) published_.set_value(elastic.doors());
        Worker worker(ranks, elastic, last_node);
        if (prepare) prepare(worker, rank);
        worker.run();
        note(worker);
      });
    }
  }

  /// What it throws says that it cannot reach somebody.
  void add_node_that_cannot_connect() {
    start([this] {
      Hierarchy ranks = connect(Layout{}, *make_memory_store(), connection());
      Elastic elastic(ranks, options(), doors_.get());
      ranks.connect_others = [](const Layout&, Store&, std::chrono::milliseconds) -> Hierarchy {
        throw std::runtime_error("cannot reach rank 1");
      };
      elastic.join();
    });
  }

  void add_node(int ranks_of_node, int last_node, std::optional<Endpoint> entrance = {}) {
    const std::shared_ptr<Store> store = make_memory_store();
    for (int rank = 0; rank < ranks_of_node; ++rank) {
      start([=, this] {
        Hierarchy ranks = connect({{ranks_of_node}, rank}, *store, connection());
        Elastic elastic(ranks, options(), entrance ? invited(*entrance).run : doors_.get());
        Worker worker(ranks, elastic, last_node);
        worker.join();
        note(worker);
      });
    }
  }

  void start(const std::function<void()>& work) {
    threads_.emplace_back([this, work] {
      try {
        work();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        ends_.push_back(error.what());
      }
    });
  }

  void finish() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  void note(const Worker& worker) {
    const std::lock_guard lock(mutex_);
    rosters_.push_back(worker.changes().back().roster.nodes);
  }

  ElasticOptions options() {
    return {.silence = quick().heartbeat_timeout,
            .timeout = 20s,
            .most_nodes = most_nodes_,
            .join_at_once = at_once_,
            .patience = 3s,
            .config = "seed = 3\n",
            .say = [this](const std::string& line) {
              const std::lock_guard lock(mutex_);
              lines_.push_back(line);
            }};
  }

  ConnectOptions connection() const {
    ConnectOptions options = quick();
    options.privacy = privacy_;
    return options;
  }

  Invitation invited(const Endpoint& entrance) const { return ask_for_invitation(entrance, privacy_, 5s); }

  int most_nodes_ = 0;
  bool at_once_ = false;
  Privacy privacy_;
  uint16_t port_ = 0;
  std::optional<Endpoint> entrance_;  // of rank 0, once the doors are published
  std::promise<RunDoors> published_;
  std::shared_future<RunDoors> doors_;
  std::mutex mutex_;
  std::vector<std::string> lines_;         // that they said
  std::vector<std::string> ends_;          // what they threw
  std::vector<std::vector<int>> rosters_;  // of those that came to the end
  std::vector<std::thread> threads_;
};

TEST_F(Joining, ANodeComesIntoARunOfOne) {
  begin(Layout::even(1, 1), 1);
  add_node(1, 1);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_THAT(rosters_, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
}

TEST_F(Joining, NodesOfSeveralRanksComeOneAfterTheOther) {
  begin(Layout::even(2, 2), 3);
  add_node(2, 3);
  add_node(2, 3);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(rosters_.size(), 8U);
  for (const auto& nodes : rosters_) EXPECT_THAT(nodes, ElementsAre(0, 1, 2, 3));
}

/// Its first exchange is the mean of all, and they wait for it there.
TEST_F(Joining, ANodeMayContributeAtOnce) {
  at_once_ = true;
  begin(Layout::even(2, 1), 3);
  add_node(1, 3);
  add_node(1, 3);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(rosters_.size(), 4U);
}

TEST_F(Joining, WhoLetsNewcomersInMayBeLostMeanwhile) {
  begin(Layout::even(3, 1), 3, [](Worker& worker, int rank) {
    if (rank != 0) return;
    worker.before_admission = [](int64_t) { throw std::logic_error("dies"); };
  });
  add_node(1, 3);
  finish();
  EXPECT_THAT(ends_, ElementsAre("dies"));
  EXPECT_THAT(rosters_, testing::Each(testing::Contains(1)));
  EXPECT_EQ(rosters_.size(), 3U);
}

TEST_F(Joining, NodesOfAnotherSizeAreSentAway) {
  begin(Layout::even(2, 1), 2);
  add_node(2, 2);
  const auto both_are_gone = [this] {
    const std::lock_guard lock(mutex_);
    return ends_.size() == 2;
  };
  while (!both_are_gone()) std::this_thread::sleep_for(1ms);
  add_node(1, 2);
  finish();
  EXPECT_EQ(ends_.size(), 2U);
  EXPECT_THAT(ends_, testing::Each(HasSubstr("nodes of other numbers of ranks")));
  EXPECT_EQ(rosters_.size(), 3U);
}

TEST_F(Joining, ANewcomerThatIsLostAtTheDoorDoesNotHoldTheOthersUp) {
  begin(Layout::even(2, 1), 3);
  {
    const RunDoors run = doors_.get();
    const LinkKey key = link_key({}, "door", run.token);
    Door door({"127.0.0.1"}, key, 100ms);
    const Newcomer gone{.key = "gone", .door = door.endpoint()};
    Call call(run.doors[0], key, gone, 5s);
    std::optional<Call::Answer> answer;
    while (!answer) answer = call.hear(5ms);
    EXPECT_THAT(answer->message, HasSubstr("127.0.0.1"));
  }
  add_node(1, 3);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(rosters_.size(), 3U);
}

/// The others do not wait for as long as it may take to connect, nor for ever again.
TEST_F(Joining, ANewcomerThatCannotReachTheOthersGivesUp) {
  begin(Layout::even(2, 1), 5);
  add_node_that_cannot_connect();
  const auto it_is_gone = [this] {
    const std::lock_guard lock(mutex_);
    return !ends_.empty();
  };
  while (!it_is_gone()) std::this_thread::sleep_for(1ms);
  add_node(1, 5);
  finish();
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("let in 3 times and left behind each time: can it connect")));
  EXPECT_THAT(rosters_, testing::Each(ElementsAre(0, 1, 5)));
  std::erase_if(lines_, [](const auto& line) { return line.find("meet again") == std::string::npos; });
  EXPECT_THAT(lines_, testing::Each(testing::AnyOf(HasSubstr("cannot reach rank 1"), HasSubstr("lost the store"))));
}

TEST_F(Joining, WhoKnowsTheSecretNeedsNothingElse) {
  privacy_ = {.secret = "what all nodes of the run know", .encrypt = true};
  begin(Layout::even(2, 2), 3);
  const RunDoors run = doors_.get();
  ASSERT_TRUE(entrance_);
  const Invitation invitation = invited(*entrance_);
  EXPECT_EQ(invitation.config, "seed = 3\n");
  EXPECT_EQ(invitation.run.text(), run.text());
  EXPECT_THAT([&] { ask_for_invitation(*entrance_, {.secret = "what others know"}, 5s); },
              testing::ThrowsMessage<std::runtime_error>(HasSubstr("it has another secret")));
  add_node(2, 3, entrance_);
  add_node(2, 3, entrance_);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(rosters_.size(), 8U);
  EXPECT_THROW(invited(*entrance_), NobodyThere);
}

TEST_F(Joining, AnEntranceIsAtThePortWhereTheRanksMet) {
  privacy_.secret = "what all nodes of the run know";
  port_ = port_of(listen_on({"127.0.0.1", 0}, 1));
  begin(Layout::even(2, 1), 2);
  const RunDoors run = doors_.get();
  EXPECT_EQ(run.port, port_);
  Invitation invitation;
  ASSERT_NO_THROW(invitation = invited({"localhost", port_}));
  EXPECT_EQ(invitation.run.token, run.token);
  add_node(1, 2, Endpoint{"localhost", port_});
  finish();
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(Joining, RunsWithoutASecretHaveNoEntrance) {
  begin(Layout::even(1, 1), 1);
  doors_.get();
  EXPECT_FALSE(entrance_);
  add_node(1, 1);
  finish();
  EXPECT_THAT(ends_, IsEmpty());
}

/// Whoever opened one at a port of the run's range would find itself there.
TEST_F(Joining, NoDoorIsOpenedWhereAnotherIsExpected) {
  const std::string host = "127.0.0.1";
  const uint16_t gone = port_of(listen_on({host, 0}, 1));
  RunDoors run{.token = "token", .doors = {{host, gone}}};
  auto door = std::make_unique<Door>(Endpoint{host}, link_key({}, "door", run.token), 100ms);
  run.doors.push_back(door->endpoint());
  Hierarchy ranks = connect(Layout{}, *make_memory_store(), connection());
  ranks.ports = {gone, static_cast<uint16_t>(std::min(65535, gone + 20))};
  Elastic elastic(ranks, options(), run);
  door.reset();
  EXPECT_THROW(elastic.join(), NobodyThere);
}

TEST_F(Joining, NobodyIsThere) {
  RunDoors run{.token = "secret"};
  run.doors.push_back({"127.0.0.1", port_of(listen_on({"127.0.0.1", 0}, 1))});
  Hierarchy ranks = connect(Layout{}, *make_memory_store(), quick());
  EXPECT_THROW(Elastic(ranks, options(), RunDoors::from_text(run.text())), NobodyThere);
  EXPECT_THROW(RunDoors::from_text("secret\n"), std::runtime_error);
  EXPECT_THROW(RunDoors::from_text("secret\n127.0.0.1 port\n"), std::runtime_error);
}

}  // namespace
}  // namespace prunex::comm
