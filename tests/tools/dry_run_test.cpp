// prunex compare --dry-run refuses what its runs would.
#include <gtest/gtest.h>

#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/tools/in_process.h"

namespace prunex::tools {
namespace {

class DryRun : public testing::Test {
 protected:
  Words of(const std::string& common) const {
    tests::write_text(scratch_ / "c.toml", "[common]\n" + common + "\n[[run]]\nname = \"a\"\n");
    return {"compare", scratch_ / "c.toml", "--output", scratch_ / "out", "--dry-run"};
  }

  const tests::Scratch scratch_;
};

TEST_F(DryRun, RefusesOptionsThatNoRunTakes) {
  refused(of("strategy = \"dilco\""), {"'dilco'", "did you mean 'diloco'?"});
  refused(of("samples = \"x\""), {"--samples: got 'x'"});
  refused(of("lr = -3"), {"compare: run 'a': --lr: got -3"});
  refused(of("strategy = \"ddp\"\nkeep = 0.5"), {"--keep: ddp does not prune"});
  refused(of("seed = 3"), {"c.toml:2: 'seed' is set by seeds"});
  EXPECT_EQ(run(of("lr = 0.1")).status, 0);
}

TEST_F(DryRun, NeedsNoFolderOfImages) {
  EXPECT_EQ(run(of("dataset = \"data/not-there-yet\"\nimage-size = 32")).status, 0);
}

}  // namespace
}  // namespace prunex::tools
