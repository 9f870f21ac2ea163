// Graphs of the pretend device: recorded without being run, replayed on the memory they were recorded with.
#include "tests/device/pretend_graph.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/pretend_device.h"
#include "tests/texts.h"

namespace prunex::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What `work` recorded.
class Recording {
 public:
  explicit Recording(const std::function<void()>& work) {
    const c10::StreamGuard guard(stream_);
    graph_.begin();
    work();
    graph_.end();
  }
  const PretendGraph& graph() const { return graph_; }

 private:
  const c10::Stream stream_ = new_pretend_stream();
  PretendGraph graph_{stream_};
};

at::Tensor there(const at::Tensor& tensor) {
  return tensor.to(pretend_device());
}

TEST(PretendGraph, ReplaysOnItsOwnMemoryWhatRecordingHasNotDone) {
  const auto x = there(at::full({2}, 3.0)), sum = there(at::zeros({2}));
  at::Tensor doubled;
  const Recording recording([&] {
    doubled = x * 2;
    sum.add_(doubled);
  });
  EXPECT_THAT(recording.graph().names(), ElementsAre("aten::mul", "aten::add"));
  EXPECT_TRUE(sum.cpu().equal(at::zeros({2})));
  recording.graph().replay();
  EXPECT_TRUE(sum.cpu().equal(at::full({2}, 6.0)));
  x.fill_(5);
  recording.graph().replay();
  EXPECT_TRUE(doubled.cpu().equal(at::full({2}, 10.0)));
  EXPECT_TRUE(sum.cpu().equal(at::full({2}, 16.0)));
}

TEST(PretendGraph, HoldsWhatBackwardRuns) {
  const auto x = there(at::full({3}, 2.0)).set_requires_grad(true);
  at::Tensor gradient;
  const Recording recording([&] {
    (x * x).sum().backward();
    gradient = x.grad();
  });
  recording.graph().replay();
  EXPECT_TRUE(gradient.cpu().equal(at::full({3}, 4.0)));
  x.detach().fill_(3);
  recording.graph().replay();
  EXPECT_TRUE(gradient.cpu().equal(at::full({3}, 6.0)));
}

TEST(PretendGraph, RefusesWhatTheHostWaitsFor) {
  const auto x = there(at::ones({3}));
  const auto refusal = HasSubstr("operation not permitted when stream is capturing");
  EXPECT_THAT(message([&] { Recording([&] { x.sum().item(); }); }), refusal);
  EXPECT_THAT(message([&] { Recording([&] { x.cpu(); }); }), refusal);
  EXPECT_THAT(message([&] { Recording([&] { x.copy_(at::zeros({3})); }); }), refusal);
  EXPECT_THAT(message([&] { Recording([&] { x.nonzero(); }); }), refusal);
  EXPECT_THAT(message([&] { Recording([&] { static_cast<void>(x.equal(x)); }); }), refusal);
}

}  // namespace
}  // namespace prunex::tests
