// Penalty rules: docs/algorithm.md, section 4, with numbers by hand.
#include "prunex/admm/residuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace prunex::admm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr int64_t kRanks = 4;
constexpr NodesAndRanks kNodesAndRanks{.nodes = 2, .ranks_per_node = kRanks};

TEST(KappaRule, DividesThePullByTheStepsOfTheIteration) {
  // 0.3 (1 - 0.9) / 5 = 0.006, below the cap 0.05 / 0.1 = 0.5; rho2 = 0.25 x 4 ranks x rho1
  const Penalties rho = first_penalties({}, {.sum = 5, .largest = 0.1, .momentum = 0.9}, kNodesAndRanks);
  EXPECT_DOUBLE_EQ(rho.rho1, 0.006);
  EXPECT_DOUBLE_EQ(rho.rho2, 0.006);
  const Penalties next = next_penalties({}, rho, {}, {.sum = 2.5, .largest = 0.1, .momentum = 0.9}, kNodesAndRanks);
  EXPECT_DOUBLE_EQ(next.rho1, 0.012);
}

TEST(KappaRule, IsCappedWhereTheStepsAreTiny) {
  const StepSizes tiny{.sum = 1e-6, .largest = 0.1, .momentum = 0.9};
  EXPECT_DOUBLE_EQ(first_penalties({}, tiny, kNodesAndRanks).rho1, 0.5);
  EXPECT_DOUBLE_EQ(first_penalties({.rho1_max = 0.2, .rho2_max = 0.1}, tiny, kNodesAndRanks).rho1, 0.2);
  EXPECT_DOUBLE_EQ(first_penalties({.rho1_max = 0.2, .rho2_max = 0.1}, tiny, kNodesAndRanks).rho2, 0.1);
  // after the last step there are none to come
  EXPECT_DOUBLE_EQ(next_penalties({}, {0.1, 0.1}, {}, {.sum = 0, .largest = 0.1}, kNodesAndRanks).rho1, 0.5);
}

// A run may begin on one node, or be left with one, and get others later.
TEST(Penalties, HaveNoRho2InForceOnASingleNodeWhereItWaits) {
  const StepSizes steps{.sum = 5, .largest = 0.1, .momentum = 0.9};
  for (const auto rule : {PenaltyRule::kKappa, PenaltyRule::kResidual, PenaltyRule::kGeometric, PenaltyRule::kFixed}) {
    const PenaltyOptions options{.rule = rule, .rho2 = 0.5};
    Penalties rho = first_penalties(options, steps, {1, kRanks});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(in_force(rho, {1, kRanks}).rho2, 0);
      EXPECT_GT(in_force(rho, {1, kRanks}).rho1, 0);
      rho = next_penalties(options, rho, {.r_intra = 1, .s_inter = 1}, steps, {1, kRanks});
    }
    EXPECT_EQ(in_force(rho, kNodesAndRanks), rho);
    EXPECT_GE(rho.rho2, first_penalties(options, steps, kNodesAndRanks).rho2);
  }
}

class ResidualRule : public testing::Test {
 protected:
  Penalties next(const Residuals& residuals) const {
    return next_penalties(options_, {0.1, 0.3}, residuals, {}, kNodesAndRanks);
  }
  const PenaltyOptions options_{.rule = PenaltyRule::kResidual, .rho1 = 0.1, .rho2 = 0.3, .mu = 10, .tau = 2};
};

TEST_F(ResidualRule, StartsFromTheGivenValues) {
  EXPECT_EQ(first_penalties(options_, {}, kNodesAndRanks), (Penalties{0.1, 0.3}));
}

TEST_F(ResidualRule, GrowsWhereThePrimalResidualIsLarger) {
  EXPECT_EQ(next({.r_intra = 10.1, .s_intra = 1, .r_inter = 1, .s_inter = 1}), (Penalties{0.2, 0.3}));
  EXPECT_EQ(next({.r_intra = 1, .s_intra = 1, .r_inter = 10.1, .s_inter = 1}), (Penalties{0.1, 0.6}));
}

TEST_F(ResidualRule, ShrinksWhereTheDualResidualIsLarger) {
  EXPECT_EQ(next({.r_intra = 1, .s_intra = 10.1, .r_inter = 1, .s_inter = 1}), (Penalties{0.05, 0.3}));
  EXPECT_EQ(next({.r_intra = 1, .s_intra = 1, .r_inter = 1, .s_inter = 10.1}), (Penalties{0.1, 0.15}));
}

TEST_F(ResidualRule, StaysWhereTheyAreBalanced) {
  EXPECT_EQ(next({.r_intra = 9.9, .s_intra = 1, .r_inter = 1, .s_inter = 9.9}), (Penalties{0.1, 0.3}));
  EXPECT_EQ(next({}), (Penalties{0.1, 0.3}));
}

TEST_F(ResidualRule, IsCapped) {
  PenaltyOptions options = options_;
  options.rho1_max = 0.15;
  options.rho2_max = 0.4;
  const Residuals residuals{.r_intra = 100, .s_intra = 1, .r_inter = 100, .s_inter = 1};
  EXPECT_EQ(next_penalties(options, {0.1, 0.3}, residuals, {}, kNodesAndRanks), (Penalties{0.15, 0.4}));
}

TEST(GeometricRule, MultipliesInEveryIteration) {
  const PenaltyOptions options{.rule = PenaltyRule::kGeometric, .rho1_max = 1, .growth = 1.5};
  const Penalties next = next_penalties(options, {0.5, 2}, {.s_intra = 99}, {}, kNodesAndRanks);
  EXPECT_EQ(next, (Penalties{0.75, 3}));
  EXPECT_EQ(next_penalties(options, next, {}, {}, kNodesAndRanks), (Penalties{1, 4.5}));
}

TEST(FixedRule, ChangesNothing) {
  const PenaltyOptions options{.rule = PenaltyRule::kFixed};
  EXPECT_EQ(next_penalties(options, {0.5, 2}, {.r_intra = 99}, {}, kNodesAndRanks), (Penalties{0.5, 2}));
}

TEST(Check, NamesTheOptionThatIsOutOfRange) {
  const auto refused = [](const PenaltyOptions& options, const std::string& option) {
    EXPECT_THAT([&] { check(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(option + ": got ")));
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_NO_THROW(check({}));
  for (const double bad : {-0.1, nan, infinity}) {
    refused({.kappa = bad}, "`kappa`");
    refused({.rho1 = bad}, "`rho1`");
    refused({.rho2 = bad}, "`rho2`");
    refused({.growth = bad}, "`growth`");
  }
  refused({.rho1 = 0}, "`rho1`");
  refused({.mu = 0.5}, "`mu`");
  refused({.tau = 0.5}, "`tau`");
  EXPECT_THAT([] { check({.rho1 = 0}); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("above 0"), Not(HasSubstr("e-308")))));
}

}  // namespace
}  // namespace prunex::admm
