// Sizes of well-known networks, whole and at half of every group's units, as Torch-Pruning 1.6.1 reports them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>

#include "prunex/models/models.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/pruner.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::prune {
namespace {

struct Row {
  const char* name;
  int64_t parameters, macs, half_parameters, half_macs;
};

void expect_row(const program::Model& model, const Row& row) {
  Pruner pruner(model, {.tp_compat = true});
  const auto& groups = pruner.planner().groups();
  const Cost& cost = pruner.planner().cost();
  EXPECT_EQ(cost.parameters(all_units(groups)), row.parameters) << row.name;
  EXPECT_EQ(cost.parameters(all_units(groups)), program::parameter_count(model.weights)) << row.name;
  EXPECT_EQ(cost.macs(all_units(groups)), row.macs) << row.name;
  ImportanceOptions options = importance_named("random");
  pruner.prune(*make_importance(options, model.program.graph()), {.kind = Target::Kind::kRatio, .share = 0.5});
  const Pruned half = pruner.result();
  EXPECT_EQ(half.after.parameters, row.half_parameters) << row.name;
  EXPECT_EQ(half.after.macs, row.half_macs) << row.name;
  EXPECT_EQ(program::parameter_count(half.model.weights), row.half_parameters) << row.name;
}

program::Model built_in(const std::string& name, int64_t size, int64_t classes) {
  return models::make_model(name, {.classes = classes, .height = size, .width = size});
}

TEST(Sizes, BuiltInNetworksHaveTorchPruningsSizes) {
  at::set_num_threads(1);
  expect_row(built_in("resnet18", 224, 1000), {"resnet18", 11'689'512, 1'822'177'768, 3'055'880, 487'202'536});
  expect_row(built_in("resnet50", 224, 1000), {"resnet50", 25'557'032, 4'121'925'096, 6'917'640, 1'068'682'472});
  expect_row(built_in("wide_resnet50_2", 224, 1000),
             {"wide_resnet50_2", 68'883'240, 11'440'621'544, 17'752'968, 2'900'821'480});
  expect_row(built_in("vgg16_bn", 224, 1000), {"vgg16_bn", 138'365'992, 15'530'618'344, 35'621'896, 3'920'443'624});
}

TEST(Sizes, ExportedNetworksHaveTorchPruningsSizes) {
  at::set_num_threads(1);
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/pytorch/export_sizes.py", folder.path(), "mobilenet_v2", "densenet121", "cifar_vgg19",
                    "cifar_resnet20", "cifar_resnet56");
  for (const Row& row : {Row{"mobilenet_v2", 3'504'872, 320'237'288, 1'221'768, 93'134'184},
                         Row{"densenet121", 7'978'856, 2'882'620'136, 2'274'728, 762'529'640},
                         Row{"cifar_resnet20", 272'474, 41'321'098, 68'786, 10'568'010},
                         Row{"cifar_resnet56", 855'770, 127'115'914, 215'282, 32'231'754},
                         Row{"cifar_vgg19", 20'086'692, 512'731'236, 5'039'108, 128'963'684}}) {
    expect_row(program::read_pt2(folder / (std::string(row.name) + ".pt2")), row);
  }
}

}  // namespace
}  // namespace prunex::prune
