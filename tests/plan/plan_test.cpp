// Rows, order, advice and scaling, by hand from the runs of recorded_runs.h.
#include "plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/plan/recorded_runs.h"

namespace prunex::plan {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

/// 80 Mbit/s, all of it for data: 10 MB/s.
PlanOptions options_of(int nodes) {
  PlanOptions options;
  options.cluster = {.nodes = nodes, .link = {80}, .latency = 0, .goodput = 1};
  return options;
}

/// ddp sends 6 MB in every step; DiLoCo 8 MB in every tenth.
std::vector<report::Run> two_runs() {
  return {tests::recorded_run("ddp", true, 6e6), tests::recorded_run("diloco")};
}

const Row& row_of(const Plan& plan, const std::string& strategy) {
  for (const auto& row : plan.rows) {
    if (plan.of(row).strategy == strategy && row.is_recorded) return row;
  }
  throw std::invalid_argument("no " + strategy);
}

// On 2 nodes DiLoCo waits 0.8 s in 4 exchanges, ddp 0.6 s in 40 steps; both compute for 60 s.
TEST(Plan, PutsTheFirstAtTheCommonAccuracyFirst) {
  auto runs = two_runs();
  runs[0].exchanges.back().accuracy = 0.85;
  runs[0].summary->accuracy = 0.85;
  const Plan plan = make_plan(runs, options_of(2));
  EXPECT_DOUBLE_EQ(plan.target, 0.8);
  EXPECT_EQ(plan.recommended, 0);
  EXPECT_EQ(plan.of(plan.rows[0]).strategy, "diloco");
  EXPECT_NEAR(plan.rows[0].whole.seconds, 60 + 4 * (0.5 + 0.8), 1e-9);
  EXPECT_NEAR(*plan.rows[0].epoch_seconds, (60 + 4 * (0.5 + 0.8)) / 2, 1e-9);
  EXPECT_NEAR(row_of(plan, "ddp").reaching->seconds, 60 + 4 * 0.5 + 40 * 0.6, 1e-9);
  EXPECT_NEAR(row_of(plan, "ddp").wire_share(), 24.0 / 86, 1e-9);
  EXPECT_NEAR(row_of(plan, "ddp").efficiency(), 60.0 / 86, 1e-9);
  EXPECT_THAT(plan.advice, Contains(HasSubstr("diloco is the first at 80.00 %: 65.2 s")));
  EXPECT_THAT(plan.advice,
              Contains(HasSubstr("ddp takes 86 s (28 % of it waiting for the network), 1.32 times as long")));
  EXPECT_THAT(plan.advice, Contains(HasSubstr("The ranges do not touch")));
}

TEST(Plan, SaysFirstThatARunIsTooShort) {
  auto runs = two_runs();
  EXPECT_EQ(make_plan(runs, options_of(2)).advice.front(),
            "diloco was recorded for 4 exchanges: too few for what follows to mean much.");
  for (int k = 5; k <= 10; ++k) {
    auto exchange = runs[1].exchanges.back();
    exchange.index = k;
    exchange.step = 10 * k;
    exchange.samples = 160 * k;
    runs[1].exchanges.push_back(exchange);
  }
  runs[1].summary->exchanges = 10;
  runs[1].summary->steps = 100;
  runs[1].summary->samples = 1600;
  EXPECT_THAT(make_plan({runs[1]}, options_of(2)).advice.front(), HasSubstr("diloco is the first at"));
}

TEST(Plan, TakesAnAccuracyAndSaysThatNoRunReachesIt) {
  PlanOptions options = options_of(2);
  options.accuracy = 0.55;
  const Plan plan = make_plan(two_runs(), options);
  EXPECT_EQ(plan.rows[0].reaching->images, 320);
  EXPECT_NEAR(plan.rows[0].reaching->seconds, 40 + 2 * (0.5 + 0.8), 1e-9);
  options.accuracy = 0.9;
  const Plan none = make_plan(two_runs(), options);
  EXPECT_EQ(none.recommended, std::nullopt);
  EXPECT_THAT(none.advice, ElementsAre("No run reaches 90.00 %; the best has 80.00 %."));
}

// Steps of 2 s, later 1 s: the mean of 40 is 1.5 s. 0.8 s of waiting are 5 % of the time after 0.8 * 19 / 1.5 steps.
TEST(Plan, SaysAtWhichIntervalLittleIsWaiting) {
  const Plan plan = make_plan(two_runs(), options_of(2));
  EXPECT_THAT(plan.advice, Contains(HasSubstr("it would take 11 steps between exchanges, where 10 were recorded")));
  EXPECT_EQ(interval_for(0.05, 0.8, 1.5), 11);
}

TEST(Plan, SaysWhatOneNodeWouldTakeAndWhenItDoesNotPay) {
  PlanOptions options = options_of(2);
  options.cluster.price_per_hour = 3;
  const Plan plan = make_plan(two_runs(), options);
  // 120 s alone against 65.2 s
  EXPECT_THAT(plan.advice,
              Contains("One node takes about 120 s for the same images: 2 nodes are 1.84 times as fast, for "
                       "1.09 times the price."));
  EXPECT_NEAR(plan.cost(65.2), 2 * 3 * 65.2 / 3600, 1e-9);
  options.cluster.link = {0.8};
  options.cluster.price_per_hour = 0;
  EXPECT_THAT(make_plan(two_runs(), options).advice, Contains(HasSubstr("It does not pay.")));
}

TEST(Plan, RangesGoOverSeedsAndTheScatterOfTimings) {
  std::vector<report::Run> runs{tests::recorded_run("diloco"), tests::recorded_run("diloco")};
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].options["seed"] = std::to_string(i);
    for (auto& exchange : runs[i].exchanges) exchange.macs = 1000;
    // per image: quartiles of 10 and 14 around 12; 22 with the second
    const double times = i == 0 ? 1 : 2;
    const double seconds[] = {8, 10, 12, 14};
    for (size_t k = 0; k < 4; ++k) runs[i].exchanges[k].seconds.local = times * seconds[k];
  }
  runs[1].exchanges.back().accuracy = runs[1].summary->accuracy = 0.7;
  const Plan plan = make_plan(runs, options_of(2));
  ASSERT_THAT(plan.rows, SizeIs(1));
  const Row& row = plan.rows.front();
  EXPECT_EQ(plan.recorded.front().seeds.size(), 2);
  // medians of 12 and 24 s in four stretches, and 4 exchanges; half of 14 - 10 over 12 is 1/6
  EXPECT_NEAR(row.whole.seconds, 72 + 4 * 1.3, 1e-9);
  EXPECT_NEAR(row.range.low, 48 * 5 / 6.0 + 4 * 1.3, 1e-9);
  EXPECT_NEAR(row.range.high, 96 * 7 / 6.0 + 4 * 1.3, 1e-9);
  // the mean curve: 0.5, 0.6, 0.7, 0.75
  EXPECT_DOUBLE_EQ(plan.target, 0.75);
  EXPECT_EQ(row.reaching->seeds, 1);
  EXPECT_NEAR(row.reaching->range.high, row.range.high, 1e-9);
}

// Each seed has 0.75 early, by chance; their mean has it at the end.
TEST(Plan, RangesHoldTheTimeThatTheyAreOf) {
  std::vector<report::Run> runs{tests::recorded_run("diloco"), tests::recorded_run("diloco")};
  runs[0].exchanges[0].accuracy = 0.75;
  runs[1].exchanges[1].accuracy = 0.75;
  runs[1].options["seed"] = "1";
  PlanOptions options = options_of(2);
  options.accuracy = 0.75;
  const Plan plan = make_plan(runs, options);
  const Reaching& reaching = *plan.rows.front().reaching;
  EXPECT_NEAR(reaching.seconds, 60 + 4 * (0.5 + 0.8), 1e-9);
  EXPECT_NEAR(reaching.range.low, 20 + 0.5 + 0.8, 1e-9);
  EXPECT_GE(reaching.range.high, reaching.seconds);
}

TEST(Plan, PredictsOtherIntervalsAndPayloadsWithoutAnAccuracy) {
  PlanOptions options = options_of(2);
  options.local_steps = {5, 10};
  options.payloads = {"int2"};
  const Plan plan = make_plan(two_runs(), options);
  EXPECT_THAT(plan.rows, SizeIs(1 + 4));  // ddp has no int2, and exchanges in every step
  for (const auto& row : plan.rows) EXPECT_EQ(row.is_recorded, row.reaching.has_value());
  const auto json = nlohmann::json::parse(to_json(plan, "prunex plan"));
  EXPECT_EQ(json["rows"].back()["accuracy"], nullptr);
  EXPECT_EQ(json["recommended"]["strategy"], "diloco");
  EXPECT_EQ(json["recommended"]["scaling_efficiency"], plan.rows[0].efficiency());
  EXPECT_THAT(to_text(plan), HasSubstr("not run"));
}

TEST(Plan, RefusesWhatHasNoEffect) {
  const auto refused = [](const PlanOptions& options, const std::vector<report::Run>& runs, const std::string& why) {
    EXPECT_THAT([&] { make_plan(runs, options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  };
  const std::vector<report::Run> ddp{tests::recorded_run("ddp", true)};
  PlanOptions options = options_of(2);
  options.local_steps = {5};
  refused(options, ddp, "`local_steps`: got 5, wanted runs that exchange weights");
  options = options_of(2);
  options.payloads = {"int2"};
  refused(options, ddp, "`payload`: got int2, which no recorded strategy has");
  options.payloads = {"fp32"};
  refused(options, two_runs(), "`payload`: got fp32, in which all were recorded that have it");
  options = options_of(2);
  options.local_steps = {10};
  refused(options, two_runs(), "`local_steps`: got 10, with which all that exchange weights were recorded");
  options = options_of(2);
  options.only = "x*";
  refused(options, ddp, "`only`: got 'x*', which fits no run");
  options = options_of(6);
  options.cluster.sites = 4;
  refused(options, ddp, "`sites`: got 4, wanted a number that divides 6 nodes");
  options.cluster.sites = 2;
  refused(options, ddp, "`site_link`: got nothing");
  options = options_of(2);
  options.local_steps = {10.5};
  refused(options, two_runs(), "`local_steps`: got 10.5, wanted a whole number");
  options = options_of(2);
  options.cluster.link = {1, 2, 3};
  refused(options, ddp, "`link`: got 3 links, wanted at most one for each of 2 nodes");
  auto runs = two_runs();
  runs[0].options["model"] = "other";
  refused(options_of(2), runs, "`from`: got runs of 2 networks or data sets");
}

// Weak: a node more is a batch more. Strong: on 8 ranks 2 of 16 images each, which is 1/4 of the recorded 8 and of the
// seconds of a step; on 32 none would have a whole one.
TEST(Plan, ScalesWithTheBatchOfARankOrOfAStep) {
  const Plan plan = make_plan({tests::recorded_run("diloco")}, options_of(32));
  const auto rate = [](const Scaling& scaling, size_t i) { return scaling.points.at(i).images_per_second.at(0); };
  ASSERT_THAT(plan.weak.points, SizeIs(6));
  EXPECT_NEAR(*rate(plan.weak, 0), 640 / (120 + 8 * 0.5), 1e-9);
  EXPECT_NEAR(*rate(plan.weak, 1), 640 / (60 + 4 * (0.5 + 0.8)), 1e-9);
  EXPECT_NEAR(*rate(plan.weak, 3), 640 / (15 + 1 * (0.5 + 1.4)), 1e-9);
  EXPECT_NEAR(*rate(plan.strong, 1), *rate(plan.weak, 1), 1e-9);
  EXPECT_NEAR(*rate(plan.strong, 3), 640 / (15 + 4 * (0.5 + 1.4)), 1e-9);
  EXPECT_EQ(plan.strong.points.back().nodes, 32);
  EXPECT_EQ(rate(plan.strong, 5), std::nullopt);
  PlanOptions options = options_of(32);
  options.batch_size = plan.recorded.at(0).batch;
  const Plan own = make_plan({tests::recorded_run("diloco")}, options);
  EXPECT_NEAR(*rate(own.strong, 5), *rate(own.weak, 5), 1e-9);  // both are of a batch on every rank of the cluster
  EXPECT_GT(*rate(own.strong, 0), *rate(own.weak, 0));
}

TEST(Plan, MakesAPageWithItsFigures) {
  const std::string page = to_html(make_plan(two_runs(), options_of(4)), {.command = "prunex plan"});
  for (const char* figure : {"parts-0", "links-0", "weak-0", "strong-0"}) {
    EXPECT_TRUE(page.find(fmt::format("<figure id=\"{}\"", figure)) != std::string::npos) << figure;
  }
  EXPECT_NE(page.find("diloco is the first at"), std::string::npos);
  EXPECT_EQ(page.find("<h3>Runs</h3>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"num\">25 Mbit/s</td>"), std::string::npos);
}

TEST(Plan, PageTellsSettingsApartAndWhatIsAssumedFromWhatIsMissing) {
  auto runs = two_runs();
  runs.push_back(tests::recorded_run("top_k", true));
  runs.back().summary->messages.gathered_bytes.reset();
  auto options = options_of(12);
  options.local_steps = {5};
  const std::string page = to_html(make_plan(runs, options), {.command = "prunex plan"});
  EXPECT_THAT(page, HasSubstr(">H 5 fp32: diloco<"));
  EXPECT_THAT(page, testing::ContainsRegex("<h3>Assumed</h3>\n<ul><li>Accuracies, and"));
  EXPECT_THAT(page, HasSubstr("<h3>Missing</h3>\n<ul><li>Left out: top_k"));
  for (const char* ranks : {">1</text>", ">8</text>", ">12</text>"}) EXPECT_THAT(page, HasSubstr(ranks));
}

TEST(Plan, SaysWhatItDoesNotKnow) {
  auto runs = two_runs();
  runs.push_back(tests::recorded_run("top_k", true));
  runs.back().summary->messages.gathered_bytes.reset();
  const Plan plan = make_plan(runs, options_of(16));
  EXPECT_THAT(plan.caveats,
              Contains(HasSubstr("those of 2 ranks with 16 images per step in all; here it is 16 ranks with 128")));
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("Fewer than 10 exchanges in the whole run")));
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("One seed")));
  EXPECT_THAT(plan.caveats, Each(Not(HasSubstr("averaging of gradients in the node"))));
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("Left out: top_k: its record does not say")));
  auto workers = two_runs();
  workers.back().options["in-node"] = "gradients";
  EXPECT_THAT(make_plan(workers, options_of(16)).caveats,
              Contains(AllOf(HasSubstr("averaging of gradients in the node"), HasSubstr("(1 rank in a node)."))));
  const Plan same = make_plan(two_runs(), options_of(2));
  EXPECT_THAT(same.caveats, Each(Not(HasSubstr("images per step in all"))));
}

}  // namespace
}  // namespace prunex::plan
