// What records and pages say of how they were made. Expected words are quoted as a shell reads them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "prunex/text/option.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

/// Of a command with these options, some of which were given.
class LineOf : public testing::Test {
 protected:
  LineOf() {
    list_.add("from", text::texts(from_), "").must();
    list_.add("only", text::text_value(only_), "");
    list_.add("jobs", text::number(jobs_), "");
    list_.add("quiet", text::flag(quiet_), "");
  }
  std::string line() const { return line_of("plan --from", from_, list_); }

  std::vector<std::string> from_;
  std::string only_;
  int64_t jobs_ = 1;
  bool quiet_ = false;
  text::OptionList list_;
};

TEST_F(LineOf, HasWhatWasGivenAndNothingElse) {
  for (const char* word : {"runs/a", "my runs"}) list_.find("from")->set(word);
  EXPECT_EQ(line(), "prunex plan --from runs/a 'my runs'");
  list_.find("only")->set("r8-*");
  list_.find("jobs")->set("1");
  list_.find("quiet")->set("true");
  EXPECT_EQ(line(), "prunex plan --from runs/a 'my runs' --only 'r8-*' --jobs 1 --quiet");
}

/// --quiet=false
TEST_F(LineOf, LeavesOutAFlagThatWasSwitchedOff) {
  list_.find("quiet")->set("false");
  EXPECT_EQ(line(), "prunex plan --from");
}

}  // namespace
}  // namespace prunex::tools
