// H-SADMM and local SGD with rounded messages between nodes: one z everywhere, close to the exact one, in fewer bytes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

std::vector<History> run(HsadmmOptions options, Payload payload, const comm::Layout& shape) {
  options.exchange.payload = payload;
  return run_on_ranks(shape, options, LocalPhase::kTrainAndCut, at::kFloat);
}

double distance(const Snapshot& a, const Snapshot& b) {
  double squares = 0, norm = 0;
  for (const auto& theta : b.theta) {
    const at::Tensor &x = a.state["z/" + theta.key()], &y = b.state["z/" + theta.key()];
    squares += (x - y).square().sum().item<double>();
    norm += y.square().sum().item<double>();
  }
  return std::sqrt(squares / norm);
}

TEST(RoundedExchange, LeavesOneZBitForBit) {
  for (const HsadmmOptions& options : {default_options(), averaging_options()}) {
    for (const comm::Layout& shape : {comm::Layout::even(2, 2), comm::Layout{.node_sizes = {3, 1}}}) {
      for (const Payload payload : {Payload::kBf16, Payload::kInt2, Payload::kInt1}) {
        const auto histories = run(options, payload, shape);
        for (size_t rank = 1; rank < histories.size(); ++rank) {
          for (size_t k = 0; k < histories[0].size(); ++k) {
            EXPECT_EQ(distance(histories[rank][k], histories[0][k]), 0) << name_of(payload) << " rank " << rank;
          }
        }
      }
    }
  }
}

TEST(RoundedExchange, FollowsTheExactOne) {
  for (const HsadmmOptions& options : {default_options(), averaging_options()}) {
    for (const comm::Layout& shape : {comm::Layout::even(2, 2), comm::Layout{.node_sizes = {2, 1}}}) {
      const auto exact = run(options, Payload::kFp32, shape)[0];
      for (const auto& [payload, bound] : std::vector<std::pair<Payload, double>>{{Payload::kBf16, 0.005},
                                                                                  {Payload::kInt8, 0.02},
                                                                                  {Payload::kInt4, 0.25},
                                                                                  {Payload::kInt2, 0.6},
                                                                                  {Payload::kInt1, 1}}) {
        const auto rounded = run(options, payload, shape)[0];
        EXPECT_LT(distance(rounded[0], exact[0]), bound) << name_of(payload);
        EXPECT_GT(distance(rounded[0], exact[0]), 0) << name_of(payload);
        // coarser rounding chooses other masks, and so do duals, which end where a mask does
        if (payload > Payload::kInt8 || options.consensus.penalty.kappa > 0) continue;
        EXPECT_LT(distance(rounded[5], exact[5]), 3 * bound) << name_of(payload);
      }
    }
  }
}

TEST(RoundedExchange, OfOneNodeIsExact) {
  const auto shape = comm::Layout::even(1, 2);
  const auto exact = run(default_options(), Payload::kFp32, shape)[0];
  const auto rounded = run(default_options(), Payload::kInt2, shape)[0];
  EXPECT_LT(distance(rounded[5], exact[5]), 1e-6);
}

// Matrices in codes and scales, vectors in half precision, statistics not at all; both legs of both nodes.
TEST(RoundedExchange, SendsTheCodesAlone) {
  HsadmmOptions options = averaging_options();
  options.masks.groups.clear();
  options.masks.freeze_after = kNever;
  const auto histories = run(options, Payload::kInt4, comm::Layout::even(2, 1));
  EntryCounts whole;
  for (const auto& theta : histories[0][0].theta) {
    (theta.value().dim() > 1 ? whole.weights : whole.vectors) += theta.value().numel();
  }
  const auto bytes = Codec(Payload::kInt4).bytes(whole);
  const auto sent = histories[0][0].rail_sent + histories[1][0].rail_sent;
  EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(2 * bytes), 2 * 4) << "but for a block cut in two";
  EXPECT_LT(sent, 2 * 4 * whole.size() / 6);
}

}  // namespace
}  // namespace prunex::strategies
