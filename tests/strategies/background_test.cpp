// Work beside what its caller does.
#include "prunex/strategies/exchange/background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace prunex::strategies {
namespace {

using testing::ElementsAre;

TEST(Background, DoesOneThingAfterTheOther) {
  std::vector<int> done;
  Background background;
  for (int job = 0; job < 3; ++job) background.add(c10::kCPU, [&done, job] { done.push_back(job); });
  background.wait();
  EXPECT_THAT(done, ElementsAre(0, 1, 2));
}

TEST(Background, DropsWhatFollowsAnErrorUntilItIsWaitedFor) {
  std::promise<void> gate;
  std::vector<int> done;
  Background background;
  background.add(c10::kCPU, [&] {
    gate.get_future().wait();
    throw std::runtime_error("lost");
  });
  background.add(c10::kCPU, [&] { done.push_back(1); });
  gate.set_value();
  EXPECT_THROW(background.wait(), std::runtime_error);
  background.add(c10::kCPU, [&] { done.push_back(2); });
  background.wait();
  EXPECT_THAT(done, ElementsAre(2));
}

TEST(Background, EndsAfterAllThatWasHandedIn) {
  std::promise<void> gate;
  std::vector<int> done;
  std::thread opens;
  {
    Background background;
    background.add(c10::kCPU, [&] {
      gate.get_future().wait();
      done.push_back(1);
    });
    background.add(c10::kCPU, [&] { done.push_back(2); });
    opens = std::thread([&] { gate.set_value(); });
  }
  opens.join();
  EXPECT_THAT(done, ElementsAre(1, 2));
}

}  // namespace
}  // namespace prunex::strategies
