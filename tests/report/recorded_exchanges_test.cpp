#include "report/recorded_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/run_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::report {
namespace {

using testing::SizeIs;

std::vector<Exchange> written() {
  const tests::Scratch scratch;
  tests::write_run(scratch / "a", {});
  return read_run(scratch / "a").exchanges;
}

TEST(RecordedExchanges, AreReadBackToFourDigits) {
  auto want = written();
  want[1].residuals = {.r_intra = 1, .s_intra = 2, .r_inter = 3, .s_inter = 4};
  want[2].loss = 1.23456789;
  const auto read = exchanges_of(nlohmann::json(record_of(want)));
  ASSERT_THAT(read, SizeIs(4));
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].index, want[i].index);
    EXPECT_EQ(read[i].step, want[i].step);
    EXPECT_EQ(read[i].samples, want[i].samples);
    EXPECT_NEAR(read[i].loss, want[i].loss, 5e-4 * want[i].loss);
    EXPECT_EQ(read[i].accuracy, want[i].accuracy);
    EXPECT_EQ(read[i].keep, want[i].keep);
    EXPECT_EQ(read[i].mask_changes, want[i].mask_changes);
    EXPECT_EQ(read[i].frozen, want[i].frozen);
    EXPECT_EQ(read[i].parameters, want[i].parameters);
    EXPECT_EQ(read[i].macs, want[i].macs);
    EXPECT_NEAR(read[i].residuals.s_inter, want[i].residuals.s_inter, 5e-4 * want[i].residuals.s_inter);
    EXPECT_NEAR(read[i].seconds.exchange(), want[i].seconds.exchange(), 1e-12);
    EXPECT_EQ(read[i].inter_node_bytes, want[i].inter_node_bytes);
    EXPECT_EQ(read[i].inter_node_bytes_bound, want[i].inter_node_bytes_bound);
  }
}

TEST(RecordedExchanges, WhatNeverChangesIsOneNumber) {
  const auto record = record_of(written());
  EXPECT_EQ(record.at("macs"), 1000);
  EXPECT_THAT(record.at("loss"), SizeIs(4));
  EXPECT_EQ(record.at("accuracy").dump(), "[null,null,null,0.9]");
}

/// So that a small file is a small record.
TEST(RecordedExchanges, AreAsManyAsTheirSteps) {
  nlohmann::json record(record_of(written()));
  for (const auto& steps : {nlohmann::json(7), nlohmann::json({1, 2, 3})}) {
    record["step"] = steps;
    EXPECT_EQ(tests::message([&] { exchanges_of(record); }), "step: wanted 4 numbers, as `count` says");
  }
}

TEST(RecordedExchanges, NoneAreNone) {
  EXPECT_THAT(exchanges_of(nlohmann::json(record_of({}))), SizeIs(0));
}

}  // namespace
}  // namespace prunex::report
