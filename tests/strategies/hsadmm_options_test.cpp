// Options of H-SADMM that no run could have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "prunex/comm/connect.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class BadOptions : public testing::Test {
 protected:
  void refused(const HsadmmOptions& options, const std::string& why) {
    const auto make = [&] {
      comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
        Replica replica = SmallProblem(0).initial_replica();
        make_hsadmm(replica, ranks, options);
      });
    };
    EXPECT_THAT(make, ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  }
  HsadmmOptions options_ = default_options();
};

TEST_F(BadOptions, OfLengthsAreRefused) {
  options_.local.steps = 0;
  refused(options_, "`local_steps`");
  options_ = default_options();
  options_.local.total_steps = 0;
  refused(options_, "0 steps");
}

TEST_F(BadOptions, OfPenaltiesAreRefused) {
  options_.consensus.penalty.kappa = -1;
  refused(options_, "`kappa`");
  options_ = default_options();
  options_.consensus.penalty.kappa = std::nan("");
  refused(options_, "`kappa`");
}

TEST_F(BadOptions, OutOfRangeAreRefusedByName) {
  const auto refused_with = [&](const std::string& why, const std::function<void(HsadmmOptions&)>& change) {
    HsadmmOptions options = default_options();
    change(options);
    refused(options, why);
  };
  refused_with("`outer_lr`: got nan", [](auto& o) { o.outer.rate = std::nan(""); });
  refused_with("`outer_lr`: got -1", [](auto& o) { o.outer.rate = -1; });
  refused_with("`outer_momentum`: got 5", [](auto& o) { o.outer.momentum = 5; });
  refused_with("the local optimizer's momentum: got 2", [](auto& o) { o.local.momentum = 2; });
  refused_with("`lambda`: got -1", [](auto& o) { o.consensus.lambda = -1; });
  refused_with("`tolerance`: got nan", [](auto& o) { o.consensus.tolerance = std::nan(""); });
  refused_with("`rho2_ratio`: got nan", [](auto& o) { o.consensus.penalty.rho2_ratio = std::nan(""); });
}

TEST_F(BadOptions, RatesThatAreAllZeroAreRefused) {
  options_.local.learning_rate = [](int64_t) { return 0.0; };
  refused(options_, "learning_rate: got 0 in all steps");
}

TEST_F(BadOptions, KappaWithoutLearningRatesIsRefused) {
  options_.local.learning_rate = nullptr;
  refused(options_, "learning_rate");
  options_.consensus.penalty.rule = admm::PenaltyRule::kFixed;
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
    Replica replica = SmallProblem(0).initial_replica();
    EXPECT_NO_THROW(make_hsadmm(replica, ranks, options_));
  });
}

TEST_F(BadOptions, RanksThatWouldNeverMeetAreRefused) {
  options_.consensus.penalty.kappa = 0;
  options_.consensus.start_from = StartFrom::kTheta;
  refused(options_, "`start_from` theta");
}

TEST_F(BadOptions, OfTheFlatFormThatRoundsAreRefused) {
  options_.consensus.flat = true;
  options_.exchange.payload = Payload::kInt2;
  refused(options_, "`payload`: got int2, the flat form knows no nodes");
}

TEST_F(BadOptions, GroupsThatDoNotFitAreRefused) {
  options_.masks.groups[0].keep = 0;
  refused(options_, "'coupled'");
  options_ = default_options();
  options_.masks.groups[0].size = -1;
  refused(options_, "'coupled'");
  options_ = default_options();
  options_.masks.groups[1].slices[0].tensor = "nowhere";
  refused(options_, "'nowhere'");
  options_ = default_options();
  options_.masks.groups[1].name = "coupled";
  refused(options_, "'coupled'");
}

}  // namespace
}  // namespace prunex::strategies
