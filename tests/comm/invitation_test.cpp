// What newcomers ask for, and what they get.
#include "prunex/comm/elastic/invitation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "prunex/comm/elastic/door.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

const Privacy kOurRun = {.secret = "what our nodes know"};

std::shared_ptr<const std::string> offer(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

TEST(Invitations, NamePlacesAsPeopleDo) {
  for (const auto& [text, wanted] :
       std::vector<std::pair<std::string, Endpoint>>{{"node0:29500", {"node0", 29500}},
                                                     {"10.0.0.1:1", {"10.0.0.1", 1}},
                                                     {"[fe80::1%eth0]:80", {"fe80::1%eth0", 80}}}) {
    const auto endpoint = endpoint_in(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(*endpoint, wanted);
    EXPECT_EQ(name_of(*endpoint), text);
  }
  for (const char* none : {"", "node0", "node0:", ":29500", "node0:0", "node0:65536", "node0:29500 ", "node0:-1",
                           "::1:80", "[]:80", "runs/a:80", "[::1]80", "[a]b:80"}) {
    EXPECT_FALSE(endpoint_in(none)) << none;
  }
}

TEST(Invitations, AreSoughtAtAllDoorsAtOnce) {
  const Socket silent = listen_on({"127.0.0.1", 0}, 1), live = listen_on({"127.0.0.1", 0}, 1);
  std::vector<Socket> fill;  // one that answers nobody
  while (connect_to_first({{"127.0.0.1", port_of(silent)}}, std::chrono::steady_clock::now() + 50ms)) {
    fill.push_back(connect_to({"127.0.0.1", port_of(silent)}, std::chrono::steady_clock::now() + 50ms));
  }
  const uint16_t closed = port_of(listen_on({"127.0.0.1", 0}, 1));
  RunDoors run{.token = "token", .doors = {{"no address", 1}, {"127.0.0.1", closed}, {"127.0.0.1", port_of(silent)}}};
  EXPECT_THROW(approach(run, 50ms), NobodyThere);
  run.doors.push_back({"127.0.0.1", port_of(live)});
  EXPECT_EQ(approach(run, 20s), "127.0.0.1");
  EXPECT_EQ(run.doors.front().port, port_of(live));
  EXPECT_EQ(run.doors.back().host, "no address");
}

TEST(Invitations, AreReadBack) {
  Invitation invitation{.run = {.token = "token", .port = 29500}, .config = "model = \"a\"\n\n\nseed = 3\n"};
  invitation.run.doors = {{"10.0.0.1", 1234}, {"fe80::1", 1}};
  const Invitation read = Invitation::from_text(invitation.text());
  EXPECT_EQ(read.config, invitation.config);
  EXPECT_EQ(read.run.text(), invitation.run.text());
  EXPECT_EQ(read.run.doors, invitation.run.doors);
  for (const char* none : {"", "token 1\n", "token 1\n\nseed = 3\n", "token 1\n10.0.0.1 1", "token\n10.0.0.1 1\n\n"}) {
    EXPECT_THROW(Invitation::from_text(none), std::runtime_error) << none;
  }
}

TEST(Invitations, AreGivenToWhoKnowsTheSecretWhetherTheRunEncryptsOrNot) {
  const Invitation invitation{.run = {.token = "token", .doors = {{"127.0.0.1", 1}}},
                              .config = std::string(500'000, '#')};
  Door entrance({"127.0.0.1"}, entrance_key({kOurRun.secret, false}), 5ms);
  entrance.offer(offer(invitation.text()));
  for (const bool encrypts : {false, true}) {
    EXPECT_EQ(ask_for_invitation(entrance.endpoint(), {kOurRun.secret, encrypts}, 5s).text(), invitation.text());
  }
  EXPECT_THAT([&] { ask_for_invitation(entrance.endpoint(), {"what others know"}, 5s); },
              ThrowsMessage<std::runtime_error>(HasSubstr("it has another secret")));
}

TEST(Invitations, ThatDoNotComeAreExplainedSoon) {
  const auto why = [](const Endpoint& place, std::chrono::milliseconds patience) {
    return [=] { ask_for_invitation(place, kOurRun, patience); };
  };
  const Socket silent = listen_on({"127.0.0.1", 0}, 1);
  EXPECT_THAT(why({"127.0.0.1", port_of(silent)}, 300ms), ThrowsMessage<std::runtime_error>(HasSubstr("it is silent")));
  const uint16_t closed = port_of(listen_on({"127.0.0.1", 0}, 1));
  EXPECT_THAT(why({"127.0.0.1", closed}, 5s), ThrowsMessage<NobodyThere>(HasSubstr("nobody answers at 127.0.0.1:")));
  EXPECT_THAT(why({"no name of a host", 1}, 300ms),
              ThrowsMessage<std::runtime_error>(HasSubstr("no name of a host:1: ")));
  Door other({"127.0.0.1"}, link_key(kOurRun, "door", "token"), 5ms);
  EXPECT_THAT(why(other.endpoint(), 5s), ThrowsMessage<std::runtime_error>(HasSubstr("does not encrypt")));
  Door empty({"127.0.0.1"}, entrance_key(kOurRun), 5ms);
  EXPECT_THAT(why(empty.endpoint(), 5s), ThrowsMessage<std::runtime_error>(HasSubstr("ended")));
}

TEST(Invitations, AreNotReadBeyondWhatTheyMayBe) {
  Door entrance({"127.0.0.1"}, entrance_key(kOurRun), 5ms);
  entrance.offer(offer(std::string(100, 'a')));
  EXPECT_EQ(fetch_from(entrance.endpoint(), entrance_key(kOurRun), 100, 5s, 5s).size(), 100U);
  EXPECT_THAT([&] { fetch_from(entrance.endpoint(), entrance_key(kOurRun), 99, 5s, 5s); },
              ThrowsMessage<std::runtime_error>(HasSubstr("does not belong there")));
  EXPECT_THAT([&] { ask_for_invitation(entrance.endpoint(), kOurRun, 5s); },
              ThrowsMessage<std::runtime_error>(HasSubstr("an invitation that is none")));
  entrance.offer(offer(std::string(3 << 20, 'a')));
  EXPECT_THAT([&] { ask_for_invitation(entrance.endpoint(), kOurRun, 5s); },
              ThrowsMessage<std::runtime_error>(HasSubstr("does not belong there")));
}

/// All of it takes longer than the silence that ends the wait.
TEST(Invitations, MayComeSlowly) {
  const Socket listener = listen_on({"127.0.0.1", 0}, 1);
  const std::string text(30'000, 'a');
  constexpr size_t kPiece = 1'000;
  std::thread door([&] {
    Socket caller(-1);
    while (caller.fd() < 0) caller = accept_from(listener);
    Link link(std::move(caller), Side::kAnswerer, {});
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    link.prove_until(deadline);
    const std::string size = words::kSize + std::to_string(text.size());
    const auto put = [](MessageKind kind, size_t bytes) {
      return std::string{static_cast<char>(kind), static_cast<char>(bytes & 0xff), static_cast<char>(bytes >> 8)};
    };
    const std::string all = put(MessageKind::kNote, size.size()) + size + put(MessageKind::kData, text.size()) + text;
    for (size_t i = 0; i < all.size(); i += kPiece) {
      EXPECT_TRUE(link.send_all(all.data() + i, std::min(kPiece, all.size() - i), deadline));
      std::this_thread::sleep_for(100ms);
    }
    char byte = 0;
    while (link.receive_all(&byte, 1, deadline)) {
    }
  });
  EXPECT_EQ(fetch_from({"127.0.0.1", port_of(listener)}, {}, text.size(), 2s, 20s), text);
  door.join();
}

TEST(Invitations, MayNotTakeLongerThanOthersWait) {
  const LinkKey key = entrance_key(kOurRun);
  Door entrance({"127.0.0.1"}, key, 5ms);
  entrance.offer(offer(std::string(100, 'a')));
  EXPECT_THAT([&] { fetch_from(entrance.endpoint(), key, 100, 5s, 0s); },
              ThrowsMessage<std::runtime_error>(HasSubstr("too slow")));
}

TEST(Doors, SayWhatIsLongWhole) {
  const LinkKey key = link_key(kOurRun, "door", "token");
  Door door({"127.0.0.1"}, key, 5ms);
  Call call(door.endpoint(), key, Newcomer{.key = "key", .door = {"127.0.0.1", 1}}, 5s);
  while (door.newcomers().empty()) call.hear(5ms);
  const std::string admission(200'000, 'a');
  door.answer(door.newcomers().front(), admission);
  std::optional<Call::Answer> answer;
  while (!(answer = call.hear(5ms))) {
  }
  EXPECT_TRUE(answer->message == admission);
}

TEST(Doors, OfAnotherRunWithTheSameSecretTurnCallersAway) {
  const Door door({"127.0.0.1"}, link_key(kOurRun, "door", "token of this run"), 5ms);
  const LinkKey other = link_key(kOurRun, "door", "token of another");
  EXPECT_EQ(presence_at(door.endpoint(), other, 300ms), Presence::kSilent);
  Call call(door.endpoint(), other, Newcomer{.key = "key", .door = {"127.0.0.1", 1}}, 5s);
  std::optional<Call::Answer> answer;
  while (!(answer = call.hear(5ms))) {
  }
  EXPECT_FALSE(call.lives());
  EXPECT_TRUE(door.newcomers().empty());
}

}  // namespace
}  // namespace prunex::comm
