#include "prunex/program/pt2.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "prunex/program/program.h"
#include "tests/program/graphs.h"
#include "tests/program/pt2_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::program {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using testing::Not;

std::string error_of_read(const std::string& path) {
  try {
    read_pt2(path);
  } catch (const std::invalid_argument& error) {
    return error.what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

void expect_equal(const TensorDict& got, const TensorDict& wanted) {
  ASSERT_EQ(got.keys(), wanted.keys());
  for (const auto& item : wanted) {
    EXPECT_TRUE(at::equal(got[item.key()], item.value())) << item.key();
    EXPECT_EQ(got[item.key()].requires_grad(), item.value().requires_grad()) << item.key();
  }
}

void expect_equal(const Model& got, const Model& wanted) {
  const auto &a = got.program.graph(), &b = wanted.program.graph();
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_EQ(a.values[i].name, b.values[i].name);
    EXPECT_EQ(a.values[i].role, b.values[i].role);
    EXPECT_EQ(a.values[i].weight, b.values[i].weight);
    EXPECT_EQ(a.values[i].dtype, b.values[i].dtype);
    EXPECT_EQ(a.values[i].shape, b.values[i].shape);
    EXPECT_EQ(a.values[i].number, b.values[i].number);
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].target, b.nodes[i].target);
    EXPECT_EQ(a.nodes[i].outputs, b.nodes[i].outputs);
    EXPECT_EQ(json::parse(a.nodes[i].metadata), json::parse(b.nodes[i].metadata));
    ASSERT_EQ(a.nodes[i].arguments.size(), b.nodes[i].arguments.size());
    for (const auto& argument : b.nodes[i].arguments) {
      const auto* other = a.nodes[i].find(argument.name);
      ASSERT_TRUE(other) << argument.name;
      EXPECT_EQ(other->values, argument.values);
      EXPECT_EQ(other->ints, argument.ints);
      EXPECT_EQ(other->literal, argument.literal) << a.nodes[i].target << " " << argument.name;
    }
  }
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.aliases, b.aliases);
  EXPECT_EQ(json::parse(a.metadata), json::parse(b.metadata));
  expect_equal(got.weights.params, wanted.weights.params);
  expect_equal(got.weights.buffers, wanted.weights.buffers);
}

constexpr const char* kWithoutGradients = PRUNEX_TEST_DATA "/prune/cases/without_gradients.pt2";

TEST(Pt2, ReadsTheNetworkThatWasExported) {
  auto model = read_pt2(stored_pt2("net"));
  const auto& graph = model.program.graph();
  EXPECT_EQ(graph.values[graph.inputs.at(0)].shape, (Shape{{1, true}, {3}, {4}, {4}}));
  EXPECT_EQ(graph.values[graph.outputs.at(0)].shape, (Shape{{1, true}, {5}}));
  EXPECT_EQ(model.weights.params.keys(),
            (std::vector<std::string>{"conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias"}));
  EXPECT_EQ(model.weights.buffers.keys(),
            (std::vector<std::string>{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}));

  const auto x = at::randn({3, 3, 4, 4});
  auto& p = model.weights.params;
  auto& b = model.weights.buffers;
  auto y = at::conv2d(x, p["conv.weight"], {}, 1, 1);
  y = at::batch_norm(y, p["bn.weight"], p["bn.bias"], b["bn.running_mean"], b["bn.running_var"], false, 0.1, 1e-5,
                     false);
  y = at::linear(at::max_pool2d(at::relu(y), 2).flatten(1), p["fc.weight"], p["fc.bias"]);
  EXPECT_TRUE(at::equal(model.program.run({x}, model.weights, Mode::kEval)[0], y));
}

// squeeze() without axes was exported for several images.
TEST(Pt2, OneImageIsABatch) {
  const auto model = read_pt2(PRUNEX_TEST_DATA "/prune/cases/squeeze_whatever_has_one.pt2");
  for (const int64_t images : {1, 2}) {
    const auto outputs = model.program.run({at::randn({images, 3, 6, 6})}, model.weights, Mode::kEval);
    EXPECT_EQ(outputs[0].sizes(), (std::vector<int64_t>{images, 3}));
  }
}

// The network Structures of make.py: tied weights, a constant, a buffer outside the state dict, sizes, lists.
TEST(Pt2, ReadsWhatNetworksAreMadeOf) {
  auto model = read_pt2(stored_pt2("structures"));
  const auto& graph = model.program.graph();
  EXPECT_EQ(graph.aliases, (std::map<std::string, std::string>{{"second.weight", "first.weight"}}));
  EXPECT_EQ(graph.owner("second.weight"), "first.weight");
  EXPECT_EQ(model.weights.params.size(), 3u);
  EXPECT_EQ(model.weights.buffers.keys(), std::vector<std::string>{"order"});
  EXPECT_EQ(graph.constants.count("scale"), 1u);

  const auto x = at::randn({3, 6});
  auto& p = model.weights.params;
  auto y = at::linear(at::linear(x, p["first.weight"], p["first.bias"]), p["first.weight"], p["second.bias"]);
  y = y.view({6, 3}) * at::tensor({1.f, 2.f, 3.f});
  const auto got = model.program.run({x}, model.weights, Mode::kTrain);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(at::equal(got[0], y.slice(1, 2, 3) + y.slice(1, 1, 2) + 0.5));  // order is 2 0 1
  EXPECT_TRUE(at::equal(got[1], std::get<0>(y.max(1))));
  EXPECT_TRUE(at::equal(got[2], y));
}

// What it computes is tested with tests/data/prune. Names in a region are also names outside it.
TEST(Pt2, GradientsStopWhereTheExportedNetworkTookNone) {
  auto model = read_pt2(kWithoutGradients);
  for (const auto& parameter : model.weights.params) parameter.value().requires_grad_();
  model.program.run({at::randn({2, 3, 6, 6})}, model.weights, Mode::kTrain)[0].sum().backward();
  for (const auto& parameter : model.weights.params) {
    EXPECT_EQ(parameter.value().grad().defined(), !parameter.key().starts_with("a.")) << parameter.key();
  }
}

TEST(Pt2, RegionsThatFitNoCallAreRefused) {
  const tests::Scratch scratch;
  const std::string path = scratch / "edited.pt2";
  const auto expect_refusal = [&](const std::function<void(json&)>& edit, const char* message) {
    copy_pt2(kWithoutGradients, path, kModelRecord, [&](json& document) {
      auto& nodes = document["graph_module"]["graph"]["nodes"];
      edit(*std::find_if(nodes.begin(), nodes.end(), [](const json& node) {
        return node["target"] == "torch.ops.higher_order.wrap_with_set_grad_enabled";
      }));
    });
    EXPECT_THAT(error_of_read(path), AllOf(HasSubstr("node wrap_with_set_grad_enabled"), HasSubstr(message)));
  };
  expect_refusal([](json& node) { node["inputs"][0]["arg"]["as_bool"] = true; }, "torch.enable_grad");
  expect_refusal([](json& node) { node["inputs"].erase(0); }, "other arguments");
  expect_refusal([](json& node) { node["inputs"].erase(2); }, "another number of inputs");
  expect_refusal([](json& node) { node["outputs"].erase(0); }, "another number of outputs");
  expect_refusal([](json& node) { node["inputs"][2]["arg"] = {{"as_int", 1}}; }, "of kind 'as_int'");
}

TEST(Pt2, WhatIsWrittenReadsBackTheSame) {
  const tests::Scratch scratch;
  for (const auto& path : {stored_pt2("net"), stored_pt2("structures"), std::string(kWithoutGradients)}) {
    const auto model = read_pt2(path);
    write_pt2(scratch / "written.pt2", model);
    expect_equal(read_pt2(scratch / "written.pt2"), model);
  }
}

TEST(Pt2, EqualModelsGiveEqualBytes) {
  const tests::Scratch scratch;
  const auto model = read_pt2(stored_pt2("structures"));
  write_pt2(scratch / "one.pt2", model);
  write_pt2(scratch / "another_name.pt2", read_pt2(scratch / "one.pt2"));
  EXPECT_EQ(tests::text_of(scratch / "one.pt2"), tests::text_of(scratch / "another_name.pt2"));
}

TEST(Pt2, MemoryLayoutLeavesNoTraceInTheFile) {
  const tests::Scratch scratch;
  auto model = read_pt2(stored_pt2("net"));
  write_pt2(scratch / "rows.pt2", model);
  for (auto& item : model.weights.params) {
    if (item.value().dim() == 4) item.value() = item.value().detach().contiguous(at::MemoryFormat::ChannelsLast);
    item.value().set_requires_grad(true);
  }
  write_pt2(scratch / "channels_last.pt2", model);
  EXPECT_EQ(tests::text_of(scratch / "rows.pt2"), tests::text_of(scratch / "channels_last.pt2"));
}

TEST(Pt2, EvalFormIsWrittenWithoutTraining) {
  const tests::Scratch scratch;
  auto model = read_pt2(stored_pt2("net"));
  write_pt2(scratch / "eval.pt2", {Program(in_mode(model.program.graph(), Mode::kEval)), model.weights});
  auto read = read_pt2(scratch / "eval.pt2");
  for (const auto& node : read.program.graph().nodes) {
    EXPECT_NE(node.target, "aten::add_.Tensor");
    for (const auto* flag : {"training", "train"}) {
      EXPECT_FALSE(node.find(flag) && node.find(flag)->literal.toBool()) << node.target;
    }
  }
  const auto x = at::randn({2, 3, 4, 4});
  EXPECT_TRUE(at::equal(read.program.run({x}, read.weights, Mode::kEval)[0],
                        model.program.run({x}, model.weights, Mode::kEval)[0]));
}

TEST(Pt2, FrozenParametersStayFrozen) {
  const tests::Scratch scratch;
  auto model = read_pt2(stored_pt2("net"));
  model.weights.params["conv.weight"].set_requires_grad(false);
  write_pt2(scratch / "frozen.pt2", model);
  const auto read = read_pt2(scratch / "frozen.pt2");
  EXPECT_FALSE(read.weights.params["conv.weight"].requires_grad());
  EXPECT_TRUE(read.weights.params["fc.weight"].requires_grad());
}

struct BadFile {
  const char* name;
  const char* message;
};

TEST(FixedBatch, IsReadWhereNothingNeedsADynamicOne) {
  Model model = read_pt2(stored_pt2("fixed_batch"), 0, Batch::kAny);
  const Graph& graph = model.program.graph();
  EXPECT_EQ(graph.images(), 1);
  EXPECT_FALSE(graph.values[graph.inputs[0]].shape[0].per_image);
  const auto image = at::ones(sizes_of(graph.values[graph.inputs[0]].shape, 7));
  EXPECT_EQ(model.program.run({image}, model.weights, Mode::kEval)[0].size(0), 1);
  const tests::Scratch folder;
  write_pt2(folder / "again.pt2", model);
  EXPECT_EQ(read_pt2(folder / "again.pt2", 0, Batch::kAny).program.graph().nodes.size(), graph.nodes.size());
}

// As torch.export's own programs do; files that are written say so, too.
TEST(Batches, AreAsLargeAsTheExportAllows) {
  const tests::Scratch folder;
  write_pt2(folder / "again.pt2", read_pt2(stored_pt2("three_images")));
  for (const std::string& path : {stored_pt2("three_images"), folder / "again.pt2"}) {
    const Model model = read_pt2(path);
    EXPECT_EQ(model.program.graph().fewest_images, 3);
    EXPECT_EQ(model.program.graph().most_images, 9);
    EXPECT_EQ(model.program.graph().batch_of(64), 9);
    model.program.graph().expect_batch("`batch_size`", 3);
    for (const int64_t images : {2, 10}) {
      EXPECT_THAT(
          tests::message([&] { model.program.graph().expect_batch("`batch_size`", images); }),
          HasSubstr(fmt::format("`batch_size`: got a batch of {}, the program was exported for 3 to 9", images)));
    }
  }
}

class StoredBadFile : public testing::TestWithParam<BadFile> {};

TEST_P(StoredBadFile, IsRefusedInOneLineWithItsName) {
  const auto path = stored_pt2(GetParam().name);
  EXPECT_THAT(error_of_read(path), AllOf(HasSubstr(path), HasSubstr(GetParam().message), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Exports, StoredBadFile,
    testing::Values(
        BadFile{"fixed_batch",
                "input 'x' has the fixed batch 1; export with dynamic_shapes: torch.export.export(model, "
                "(x,), dynamic_shapes={\"x\": {0: torch.export.Dim(\"batch\")}})"},
        BadFile{"dynamic_height", "is dynamic on axis 2; only the batch (axis 0) may be"},
        BadFile{"control_flow", "control flow is not supported"}, BadFile{"decomposed", "buffer_mutation"},
        BadFile{"autocast", "torch.autocast is not supported"},
        BadFile{"write_without_gradients", "writes in torch.no_grad to what was computed before it"},
        BadFile{"view_without_gradients", "writes in torch.no_grad to what was computed before it"},
        BadFile{"written_copy",
                "node reshape (aten::reshape): what it shows is written to later, in place, and lay in"},
        BadFile{"odd_size", "value 'cat' has the size Add(Symbol('s77', positive=True, integer=True), Integer(1))"},
        BadFile{"written_buffer", "writes to 'seen' in place"}, BadFile{"number_output", "no tensor output"},
        BadFile{"complex", "dtype 10 is unknown or not supported"}, BadFile{"no_such_name", "no such file"}),
    [](const auto& info) { return info.param.name; });

struct BadEdit {
  const char* name;
  const char* record;
  std::function<void(json&)> edit;
  const char* message;
};

json& values_of(json& document) {
  return document["graph_module"]["graph"]["tensor_values"];
}
json& node_of(json& document, size_t i) {
  return document["graph_module"]["graph"]["nodes"][i];
}

class EditedBadFile : public testing::TestWithParam<BadEdit> {};

TEST_P(EditedBadFile, IsRefusedInOneLineWithItsName) {
  const tests::Scratch scratch;
  const auto path = scratch / "edited.pt2";
  copy_pt2(stored_pt2("net"), path, GetParam().record, GetParam().edit);
  EXPECT_THAT(error_of_read(path), AllOf(HasSubstr(path), HasSubstr(GetParam().message), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Edits, EditedBadFile,
    testing::Values(
        BadEdit{"SchemaVersion", kModelRecord,
                [](json& d) {
                  d["schema_version"] = {{"major", 7}, {"minor", 2}};
                },
                "schema version 7.2, wanted 8"},
        BadEdit{"NoGraph", kModelRecord, [](json& d) { d.erase("graph_module"); }, "graph_module"},
        BadEdit{"UnknownDtype", kModelRecord, [](json& d) { values_of(d)["conv2d"]["dtype"] = 29; },
                "value 'conv2d': dtype 29 is unknown"},
        BadEdit{"UnknownArgument", kModelRecord,
                [](json& d) {
                  node_of(d, 0)["inputs"][2]["arg"] = {{"as_custom_obj", {{"name", "o"}}}};
                },
                "node conv2d (torch.ops.aten.conv2d.default): argument 'bias': is of kind 'as_custom_obj'"},
        BadEdit{"UnknownOperation", kModelRecord,
                [](json& d) { node_of(d, 0)["target"] = "torch.ops.mine.conv2d.default"; },
                "node conv2d (torch.ops.mine.conv2d.default): is not among the operations that a program from a file"},
        BadEdit{"PythonFunction", kModelRecord, [](json& d) { node_of(d, 0)["target"] = "math.sqrt"; },
                "'math.sqrt' is not supported"},
        BadEdit{"UndefinedValue", kModelRecord,
                [](json& d) { node_of(d, 0)["inputs"][0]["arg"]["as_tensor"]["name"] = "ghost"; },
                "value 'ghost' is not defined"},
        BadEdit{"NoOutput", kModelRecord, [](json& d) { node_of(d, 0)["outputs"] = json::array(); },
                "node conv2d (torch.ops.aten.conv2d.default): has no output"},
        BadEdit{"NoRegion", kModelRecord,
                [](json& d) {
                  node_of(d, 0)["target"] = "torch.ops.higher_order.wrap_with_set_grad_enabled";
                  node_of(d, 0)["inputs"] = json::array();
                },
                "has no graph"},
        BadEdit{"NoShape", kModelRecord, [](json& d) { values_of(d).erase("conv2d"); },
                "value 'conv2d' has no recorded shape"},
        BadEdit{"NoInput", kModelRecord, [](json& d) { d["graph_module"]["signature"]["input_specs"].erase(8); },
                "no tensor input"},
        BadEdit{"ConstantInput", kModelRecord,
                [](json& d) {
                  d["graph_module"]["signature"]["input_specs"].push_back(
                      {{"constant_input", {{"name", "flag"}, {"value", {{"as_bool", true}}}}}});
                },
                "input 'flag' is a constant"},
        BadEdit{"MissingWeight", kWeightsRecord, [](json& d) { d["config"].erase("fc.bias"); },
                "tensor 'fc.bias' is not in the file"},
        BadEdit{"MissingRecord", kWeightsRecord, [](json& d) { d["config"]["fc.bias"]["path_name"] = "weight_99"; },
                "no record 'data/weights/weight_99'"},
        BadEdit{"ShortRecord", kWeightsRecord,
                [](json& d) { d["config"]["fc.weight"]["path_name"] = d["config"]["fc.bias"]["path_name"]; },
                "tensor 'fc.weight' needs more than the 20 bytes in the file"},
        BadEdit{"OffsetOutside", kWeightsRecord,
                [](json& d) { d["config"]["fc.bias"]["tensor_meta"]["storage_offset"]["as_int"] = -1; },
                "tensor 'fc.bias' got the size -1, wanted none below 0"},
        BadEdit{"OtherShape", kWeightsRecord,
                [](json& d) { d["config"]["fc.bias"]["tensor_meta"]["sizes"][0]["as_int"] = 4; },
                "tensor 'fc.bias' does not have the shape"},
        BadEdit{"OverlappingWeights", kWeightsRecord,
                [](json& d) { d["config"]["bn.bias"]["path_name"] = d["config"]["fc.weight"]["path_name"]; },
                "tensor 'fc.weight' overlaps 'bn.bias' in memory"},
        BadEdit{"Pickled", kWeightsRecord, [](json& d) { d["config"]["fc.bias"]["use_pickle"] = true; },
                "tensor 'fc.bias' is pickled"},
        BadEdit{"Sparse", kWeightsRecord, [](json& d) { d["config"]["fc.bias"]["tensor_meta"]["layout"] = 1; },
                "strided"},
        BadEdit{"NotTheRightJson", kWeightsRecord,
                [](json& d) {
                  d = json::array({1, 2});
                },
                "not laid out like a file"}),
    [](const auto& info) { return info.param.name; });

TEST(Pt2, FilesThatAreNoProgramsAreRefused) {
  const tests::Scratch scratch;
  const auto path = scratch / "other.pt2";
  tests::write_text(path, "");
  EXPECT_THAT(error_of_read(path), AllOf(HasSubstr(path), HasSubstr("is not a program saved by torch.export.save")));
  tests::write_text(path, std::string(100000, 'x'));
  EXPECT_THAT(error_of_read(path), AllOf(HasSubstr(path), HasSubstr("is not a program saved by torch.export.save")));
  EXPECT_THAT(error_of_read(scratch.path()), HasSubstr("is not a file"));
}

TEST(Pt2, TruncatedFilesAreRefusedWhereverTheyEnd) {
  const tests::Scratch scratch;
  const auto path = scratch / "truncated.pt2";
  const auto whole = tests::text_of(stored_pt2("net"));
  for (size_t length = 1; length < whole.size(); length += 997) {
    tests::write_text(path, whole.substr(0, length));
    EXPECT_THAT(error_of_read(path), AllOf(HasSubstr(path), HasSubstr("truncated"), Not(HasSubstr("\n")))) << length;
  }
}

TEST(Pt2, DamagedBytesNeverCrash) {
  const tests::Scratch scratch;
  const auto path = scratch / "damaged.pt2";
  const auto whole = tests::text_of(stored_pt2("net"));
  int refused = 0;
  for (size_t at = 30; at < whole.size(); at += 499) {
    auto bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x15);
    tests::write_text(path, bytes);
    const auto error = error_of_read(path);
    refused += error != "no error";
    EXPECT_THAT(error, AnyOf(HasSubstr(path), Eq("no error")));
  }
  EXPECT_GT(refused, 10);
}

TEST(Pt2, FailedWritesLeaveNothingBehind) {
  const tests::Scratch scratch;
  auto model = read_pt2(stored_pt2("net"));
  EXPECT_THROW(write_pt2(scratch / "no/such/folder.pt2", model), std::runtime_error);
  model.weights.params["fc.bias"] = at::zeros({7});
  try {
    write_pt2(scratch / "wrong.pt2", model);
    FAIL() << "was written";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("wrong.pt2"), HasSubstr("'fc.bias' is 7")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Pt2, LinksStayLinksAndAFullDiskIsOneLine) {
  const tests::Scratch scratch;
  const auto model = read_pt2(stored_pt2("net"));
  std::filesystem::create_symlink("model.pt2", scratch / "link.pt2");
  write_pt2(scratch / "link.pt2", model);
  EXPECT_TRUE(std::filesystem::is_symlink(scratch / "link.pt2"));
  EXPECT_EQ(error_of_read(scratch / "model.pt2"), "no error");
  std::filesystem::create_symlink("/dev/full", scratch / "full.pt2");
  try {
    write_pt2(scratch / "full.pt2", model);
    FAIL() << "was written";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("full.pt2"), HasSubstr("No space left"), Not(HasSubstr("\n"))));
  }
}

}  // namespace
}  // namespace prunex::program
