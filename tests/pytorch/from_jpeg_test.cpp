#include <gtest/gtest.h>

#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex {
namespace {

TEST(FromJpeg, TheProductSaysHowPixelsBecomeItsInput) {
  const tests::Scratch scratch;
  PRUNEX_RUN_PYTHON("tests/pytorch/from_jpeg.py", PRUNEX_BINARY, scratch.path());
}

}  // namespace
}  // namespace prunex
