#include <gtest/gtest.h>

#include "tests/python.h"

namespace prunex {
namespace {

TEST(TrainImages, WhatShipsScoresAsPyTorchDoesOnPhotographs) {
  PRUNEX_RUN_PYTHON("tests/pytorch/train_images.py", PRUNEX_BINARY);
}

}  // namespace
}  // namespace prunex
