// Lines are written by hand, from the numbers of run_files.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

TEST(Csv, HasALineForEveryExchangeOfEveryRun) {
  const tests::Scratch scratch;
  tests::write_run(scratch / "a,b", {});
  tests::write_run(scratch / "c", {.options = {{"seed", "7"}}, .finished = false});
  std::istringstream lines(exchanges_csv(find_runs({scratch.path()}).runs));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 1U + 2 * 4);
  EXPECT_EQ(all[0],
            "run,name,seed,exchange,step,samples,mask_changes,parameters,macs,inter_node_bytes,inter_node_bytes_bound,"
            "intra_node_bytes,loss,lr,accuracy,keep,frozen,residuals.r_intra,residuals.s_intra,residuals.r_inter,"
            "residuals.s_inter,seconds.local,seconds.intra,seconds.project,seconds.inter,seconds.dual,seconds.evaluate,"
            "seconds.total\r");
  EXPECT_EQ(all[2], "\"" + scratch / "a,b" +
                        "\",,0,2,10,200,2,100,1000,1000000,1000000,0,0.5,,,0.5,false,0.5,0.5,0.5,0.5,2,0.1,0.2,0.3,"
                        "0.4,5,8\r");
  EXPECT_EQ(all[8], scratch / "c" +
                        ",,7,4,20,400,0,100,1000,1000000,1000000,0,0.25,,0.9,0.5,true,0.25,0.25,0.25,0.25,2,0.1,0.2,"
                        "0.3,0.4,5,8\r");
}

}  // namespace
}  // namespace prunex::report
