// Streams that run late: what lacks a wait finds memory as it was before.
#include "tests/device/late_streams.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "prunex/strategies/exchange/background.h"
#include "tests/device/pretend_device.h"

namespace prunex::tests {
namespace {

at::Tensor there(const at::Tensor& tensor) {
  return tensor.to(pretend_device());
}

/// Read by a stream that waits for none.
double as_another_stream_finds(const at::Tensor& tensor) {
  const c10::StreamGuard guard(new_pretend_stream());
  return tensor.sum().item<double>();
}

TEST(LateStreams, WaitForTheHostToWait) {
  const auto x = there(at::ones({2}));
  const LateStreams late;
  x.add_(1);
  EXPECT_EQ(as_another_stream_finds(x), 2);
  EXPECT_EQ(x.sum().item<double>(), 4);
  EXPECT_EQ(as_another_stream_finds(x), 4);
}

TEST(LateStreams, HaveResultsNoSoonerThanTheyAreComputed) {
  const auto x = there(at::ones({2}));
  const LateStreams late;
  const at::Tensor y = x + 1;
  EXPECT_EQ(as_another_stream_finds(y), 0);
  EXPECT_EQ(y.sum().item<double>(), 4);
}

TEST(LateStreams, GoOnAfterEvents) {
  const auto x = there(at::ones({2}));
  const LateStreams late;
  const c10::Stream first = current_pretend_stream(), second = new_pretend_stream();
  c10::Event reached(first.device_type());
  x.add_(1);
  reached.record(first);
  x.add_(1);
  reached.block(second);
  const c10::StreamGuard guard(second);
  EXPECT_EQ(x.sum().item<double>(), 4) << "the second addition is behind the event";
}

TEST(LateStreams, ReadPageLockedMemoryWhenItIsTheirTurn) {
  const auto host = at::ones({2}).pin_memory();
  const auto x = there(at::zeros({2})), y = there(at::zeros({2}));
  const LateStreams late;
  x.copy_(host, true);
  y.copy_(host);
  host.fill_(5);
  EXPECT_EQ(x.sum().item<double>(), 10) << "nobody waited before it was filled again";
  EXPECT_EQ(y.sum().item<double>(), 2);
}

TEST(LateStreams, HoldGraphsBack) {
  const auto x = there(at::ones({2}));
  const auto graph = make_pretend_graph(pretend_device());
  const LateStreams late;
  graph->capture([&] { x.mul_(2); });
  graph->replay();
  graph->replay();
  EXPECT_EQ(as_another_stream_finds(x), 2);
  EXPECT_EQ(x.sum().item<double>(), 8);
}

TEST(Background, SeesWhatWasGivenBeforeAndIsSeenAfterwards) {
  const LateStreams late;
  const auto x = there(at::ones({2})), sum = there(at::zeros({2}));
  strategies::Background background;
  for (const double expected : {12.0, 60.0}) {
    for (int job = 0; job < 2; ++job) {
      x.mul_(2);
      background.add(pretend_device(), [&sum, taken = x.clone()] {
        EXPECT_GT(taken.sum().item<double>(), 0);
        sum.add_(taken);
      });
    }
    background.wait();
    EXPECT_EQ(sum.sum().item<double>(), expected);
  }
}

TEST(Background, LeavesWhatItsErrorHasNotReachedBehindTheCallersStream) {
  const LateStreams late;
  const auto sum = there(at::zeros({2}));
  strategies::Background background;
  background.add(pretend_device(), [&sum] {
    sum.add_(1);
    throw std::runtime_error("lost");
  });
  EXPECT_THROW(background.wait(), std::runtime_error);
  EXPECT_EQ(sum.sum().item<double>(), 2);
}

TEST(Background, EndsWithTheDevicesWorkDone) {
  const LateStreams late;
  const auto sum = there(at::zeros({2}));
  {
    std::promise<void> begun;
    strategies::Background background;
    background.add(pretend_device(), [&] {
      begun.set_value();
      sum.add_(1);
    });
    begun.get_future().wait();
  }
  EXPECT_EQ(as_another_stream_finds(sum), 2);
}

}  // namespace
}  // namespace prunex::tests
