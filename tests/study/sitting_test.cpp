// Expected values: sums by hand of lines as proc(5) describes them.
#include "study/comparison_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "study/sitting.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::study {
namespace {

using testing::HasSubstr;
using tests::Scratch;

TEST(ProcessorSeconds, AreThoseOfAllProcessors) {
  // user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice
  const auto seconds = processor_seconds("cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n");
  EXPECT_DOUBLE_EQ(seconds.busy, 1.71);
  EXPECT_DOUBLE_EQ(seconds.all, 6.21);
  for (const char* broken : {"", "cpu 1 2 3\n", "cpu0 1 1 1 1 1 1 1 1\n", "cpu 1 2 3 4 5 6 7 x\n"}) {
    EXPECT_THROW(processor_seconds(broken), std::runtime_error) << broken;
  }
}

/// Two timings that are done; the sittings are given.
void write_timings(const Scratch& scratch, const std::string& first, const std::string& second) {
  std::filesystem::create_directories(scratch / "out");
  const auto entry = [](const std::string& name, const std::string& sitting) {
    return nlohmann::json{{"name", name},
                          {"directory", name + "/timing"},
                          {"state", "done"},
                          {"options", nlohmann::json::object()},
                          {"summary", {{"accuracy", 0.5}}},
                          {"sitting", sitting}};
  };
  std::ofstream(scratch / "out/compare.json")
      << nlohmann::json{{"runs", nlohmann::json::array()},
                        {"pilots", nlohmann::json::array()},
                        {"timings", nlohmann::json::array({entry("a", first), entry("b", second)})}}
             .dump();
}

std::vector<Job> two_timings() {
  return {{.name = "a", .kind = JobKind::kTiming, .directory = "a/timing"},
          {.name = "b", .kind = JobKind::kTiming, .directory = "b/timing"}};
}

/// On a machine of which others have this share.
SittingOutcome sit(const Scratch& scratch, double load, int& looks) {
  ComparisonRecord record(scratch / "out");
  const auto measured = [&](double) {
    ++looks;
    return load;
  };
  return run_sitting(record, two_timings(), {.quiet = true}, nlohmann::ordered_json::object(),
                     {.when = "today", .load = measured});
}

TEST(Sitting, RefusesABusyMachineBeforeAnythingStarts) {
  const Scratch scratch;
  write_timings(scratch, "monday", "tuesday");
  const auto before = tests::text_of(scratch / "out/compare.json");
  int looks = 0;
  const auto outcome = sit(scratch, 0.3, looks);
  EXPECT_EQ(outcome.busy,
            "compare: `time_exchanges`: other processes keep 30 % of the processors busy before 'a timing', wanted at "
            "most 5 % (`time_load`); once they have ended, the same command times all runs");
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(tests::text_of(scratch / "out/compare.json"), before);
  EXPECT_FALSE(std::filesystem::exists(scratch / "out/a"));
}

TEST(Sitting, OfWhichAllIsDoneIsNotRepeated) {
  const Scratch scratch;
  write_timings(scratch, "monday", "monday");
  int looks = 0;
  EXPECT_EQ(sit(scratch, 0.3, looks).busy, "");
  EXPECT_EQ(looks, 0);
}

TEST(LoadOfOthers, CountsAnotherProcess) {
  const pid_t other = fork();
  while (other == 0) getppid();
  const double load = load_of_others(0.9999);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_GT(load, 0.5 / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_LE(load, 1);
}

}  // namespace
}  // namespace prunex::study
