#include <gtest/gtest.h>

#include "tests/python.h"

namespace prunex {
namespace {

// Depthwise convolutions, linear bottlenecks and streams. Other networks: the script with its other defaults.
TEST(TrainTorchvision, AnExportedNetworkIsTrainedCutAndReadByPyTorch) {
  PRUNEX_RUN_PYTHON("tests/pytorch/train_torchvision.py", PRUNEX_BINARY, "mobilenet_v2");
}

}  // namespace
}  // namespace prunex
