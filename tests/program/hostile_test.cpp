// What files from strangers hold must not be run, must not end the process and must not be believed.
#include "tests/program/hostile.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/program/operations.h"
#include "prunex/program/pt2.h"
#include "tests/program/graphs.h"
#include "tests/program/pt2_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::program {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kGuest = "guest.pt2";

std::string error_of(const std::string& bytes, int64_t most_bytes = 0) {
  return tests::message([&] { parse_pt2(bytes, kGuest, most_bytes); });
}

/// The error of tests/data/pt2/net.pt2 with an edited document.
std::string error_of_edit(const std::function<void(json&)>& change, const char* record = kModelRecord) {
  auto records = records_of(stored_pt2("net"));
  edit(records, record, change);
  return error_of(pack(records));
}

json tensor(const std::string& name) {
  return {{"as_tensor", {{"name", name}}}};
}

json integers(const std::vector<int64_t>& list) {
  return {{"as_ints", list}};
}

TEST(HostileFile, ThatNamesAnotherFileIsRefusedBeforeItIsTouched) {
  const tests::Scratch scratch;
  const auto victim = scratch / "victim";
  tests::write_text(victim, std::string(64, 'v'));
  const auto open = make_node("aten.from_file.default",
                              {{"filename", {{"as_string", victim}}},
                               {"shared", {{"as_bool", true}}},
                               {"size", {{"as_int", 16}}},
                               {"dtype", {{"as_scalar_type", 7}}}},
                              "opened");
  const auto overwrite =
      make_node("aten.copy_.default", {{"self", tensor("opened")}, {"src", tensor("p_bn_weight")}}, "gone");
  const auto error = error_of_edit([&](json& document) {
    add_node(document, overwrite, "x");
    add_node(document, open, "p_bn_weight");
  });
  EXPECT_THAT(error, AllOf(HasSubstr(kGuest), HasSubstr("node opened (torch.ops.aten.from_file.default)"),
                           HasSubstr("not among the operations")));
  EXPECT_EQ(tests::text_of(victim), std::string(64, 'v'));
}

TEST(HostileFile, HoldsNoOperationThatIsNotListed) {
  const std::vector<std::pair<std::string, Arguments>> nodes{
      {"aten.as_strided.default", {{"self", tensor("x")}, {"size", integers({99999})}, {"stride", integers({1})}}},
      {"inductor._reinterpret_tensor.default",
       {{"self", tensor("x")}, {"size", integers({9999})}, {"stride", integers({1})}}},
      {"aten.set_.source_Tensor", {{"self", tensor("x")}, {"source", tensor("p_bn_weight")}}},
      {"aten.resize_.default", {{"self", tensor("x")}, {"size", integers({1 << 20})}}},
      {"aten._unsafe_index.Tensor", {{"self", tensor("x")}}},
      {"aten._cudnn_init_dropout_state.default", {}},
      {"prims.convert_element_type.default", {{"a", tensor("x")}}},
      {"quantized.linear.default", {{"X", tensor("x")}}},
      {"mkldnn._linear_pointwise.default", {{"X", tensor("x")}}},
      {"c10d.broadcast_.default", {}},
      {"profiler._record_function_enter_new.default", {}},
      {"..", {}},
      {"aten.conv2d.default.more", {}}};
  for (const auto& [target, arguments] : nodes) {
    const auto error =
        error_of_edit([&](json& document) { add_node(document, make_node(target, arguments, "guest"), "x"); });
    EXPECT_THAT(error, AllOf(HasSubstr(kGuest), HasSubstr("node guest (torch.ops." + target + ")")));
    EXPECT_FALSE(speaks_foreign(error)) << error;
  }
}

TEST(HostileFile, OperationsThatAreListedExist) {
  for (const auto& operation : listed_operations()) {
    if (operation.starts_with("sym::")) continue;
    const auto dot = operation.find('.');
    const auto overload = dot == std::string::npos ? "" : operation.substr(dot + 1);
    EXPECT_TRUE(c10::Dispatcher::singleton().findSchema({operation.substr(0, dot), overload})) << operation;
  }
}

TEST(HostileFile, EnumerationsAreNoNumbers) {
  for (const auto* name : {"dtype", "memory_format", "layout"}) {
    const auto error = error_of_edit([&](json& document) {
      add_node(document, make_node("aten._to_copy.default", {{"self", tensor("x")}, {name, {{"as_int", 99}}}}, "guest"),
               "x");
    });
    EXPECT_THAT(error,
                AllOf(HasSubstr("node guest (aten::_to_copy)"), testing::ContainsRegex("99|strided|UNKNOWN_SCALAR")));
  }
}

/// Changes an argument of the first node, conv2d, or adds it.
auto with_argument(const std::string& name, const json& value) {
  return [=](json& document) {
    auto& inputs = document["graph_module"]["graph"]["nodes"][0]["inputs"];
    for (auto& input : inputs) {
      if (input["name"] == name) return void(input["arg"] = value);
    }
    inputs.push_back({{"name", name}, {"arg", value}, {"kind", 1}});
  };
}

TEST(HostileFile, NumbersThatEndAProcessAreRefused) {
  const std::vector<std::pair<std::string, json>> arguments{
      {"groups", {{"as_int", 0}}},          {"groups", {{"as_int", -1}}},
      {"groups", {{"as_int", 3}}},          {"groups", {{"as_int", 8}}},
      {"groups", {{"as_int", INT64_MAX}}},  {"stride", integers({0, 1})},
      {"stride", integers({1, -1})},        {"dilation", integers({0, 0})},
      {"padding", integers({-1, 0})},       {"padding", integers({1 << 30, 0})},
      {"stride", integers({INT64_MAX, 1})}, {"dilation", integers({INT64_MIN, 1})}};
  for (const auto& [name, value] : arguments) {
    const auto error = error_of_edit(with_argument(name, value));
    EXPECT_THAT(error, HasSubstr("guest.pt2: node conv2d (torch.ops.aten.conv2d.default): ")) << name << value;
    EXPECT_FALSE(speaks_foreign(error)) << error;
  }
}

TEST(HostileFile, TensorsOfAnySizeAreNotMade) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const std::vector<std::pair<std::string, Arguments>> nodes{
      {"aten.zeros.default", {{"size", integers({kHuge})}}},
      {"aten.zeros.default", {{"size", integers({1 << 20, 1 << 20})}}},
      {"aten.full.default", {{"size", integers({INT64_MAX, INT64_MAX})}, {"fill_value", {{"as_int", 1}}}}},
      {"aten.empty.memory_format", {{"size", integers({-2})}}},
      {"aten.new_zeros.default", {{"self", tensor("x")}, {"size", integers({kHuge})}}},
      {"aten.arange.default", {{"end", {{"as_int", kHuge}}}}},
      {"aten.arange.start_step",
       {{"start", {{"as_int", 0}}}, {"end", {{"as_float", 1.0}}}, {"step", {{"as_float", 1e-15}}}}},
      {"aten.expand.default", {{"self", tensor("p_bn_weight")}, {"size", integers({kHuge, 4})}}},
      {"aten.repeat.default", {{"self", tensor("x")}, {"repeats", integers({1 << 10, 1 << 10, 1 << 10, 1})}}},
      {"aten.tile.default", {{"self", tensor("x")}, {"dims", integers({kHuge})}}},
      {"aten.pad.default", {{"self", tensor("x")}, {"pad", integers({0, kHuge})}}},
      {"aten.one_hot.default", {{"self", tensor("x")}, {"num_classes", {{"as_int", kHuge}}}}},
      {"aten.repeat_interleave.self_int", {{"self", tensor("x")}, {"repeats", {{"as_int", kHuge}}}}},
      {"aten.adaptive_avg_pool2d.default", {{"self", tensor("x")}, {"output_size", integers({1 << 20, 1 << 20})}}},
      {"aten.upsample_nearest2d.vec",
       {{"input", tensor("x")}, {"output_size", {{"as_none", true}}}, {"scale_factors", {{"as_floats", {1e9, 1e9}}}}}}};
  for (const auto& [target, arguments] : nodes) {
    const auto error =
        error_of_edit([&](json& document) { add_node(document, make_node(target, arguments, "guest"), "x"); });
    EXPECT_THAT(error, AllOf(HasSubstr(kGuest), HasSubstr("node guest (torch.ops." + target + "): ")));
    EXPECT_THAT(error, testing::AnyOf(HasSubstr("elements"), HasSubstr("wanted"))) << error;
  }
}

TEST(HostileFile, NorAreSizesOfAnySizeComputed) {
  auto records = records_of(stored_pt2("structures"));
  edit(records, kModelRecord, [](json& document) {
    for (auto& node : document["graph_module"]["graph"]["nodes"]) {
      if (node["target"] == "_operator.mul") node["inputs"][1]["arg"] = {{"as_int", int64_t{1} << 40}};
    }
  });
  EXPECT_THAT(error_of(pack(records)), HasSubstr("(_operator.mul): argument 'b': got 1099511627776, wanted"));
}

TEST(HostileFile, OutputsAreTensorsAndNumbersThatItHas) {
  const auto error_with = [](const json& argument) {
    return error_of_edit([&](json& document) {
      auto& signature = document["graph_module"]["signature"];
      signature["output_specs"].push_back({{"user_output", {{"arg", argument}}}});
    });
  };
  EXPECT_THAT(error_with({{"as_sym_int", {{"as_name", "nobody"}}}}), HasSubstr("value 'nobody' is not defined"));
  EXPECT_THAT(error_with({{"as_string", "logits"}}), HasSubstr("gives out something as_string"));
  EXPECT_EQ(error_with({{"as_int", 3}}), "no exception");
}

TEST(HostileFile, NestingIsBounded) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const auto& text : {deep, std::string(200000, '['), R"({"graph_module": )" + deep + "}"}) {
    auto records = records_of(stored_pt2("net"));
    for (const auto* record : {kModelRecord, kWeightsRecord}) {
      records[record] = text;
      EXPECT_THAT(error_of(pack(records)), AllOf(HasSubstr(kGuest), HasSubstr("nested deeper than 100 levels")))
          << record;
    }
  }
}

TEST(HostileFile, BracketsInTextsAreNoNesting) {
  auto records = records_of(stored_pt2("net"));
  edit(records, kModelRecord, [](json& document) {
    document["graph_module"]["graph"]["nodes"][0]["metadata"]["note"] =
        std::string(1000, '[') + "\"\\" + std::string(1000, '{');
  });
  EXPECT_EQ(error_of(pack(records)), "no exception");
}

TEST(HostileFile, DeepExpressionsAreNoSizes) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Mul(Integer(1), ";
  for (const auto& text : {deep, std::string(200000, '('), "Mul(" + std::string(200000, '-')}) {
    const auto error = error_of_edit([&](json& document) {
      document["graph_module"]["graph"]["tensor_values"]["conv2d"]["sizes"][0] = {{"as_expr", {{"expr_str", text}}}};
    });
    EXPECT_THAT(error, AllOf(HasSubstr(kGuest), HasSubstr("value 'conv2d' has the size")));
    EXPECT_LT(error.size(), 1000u);
  }
}

TEST(HostileFile, GraphsWithCyclesAreRefused) {
  const auto self = make_node("aten.relu.default", {{"self", tensor("guest")}}, "guest");
  EXPECT_THAT(error_of_edit([&](json& document) { add_node(document, self, "x"); }),
              HasSubstr("value 'guest' is not defined"));
  const auto again = make_node("aten.relu.default", {{"self", tensor("x")}}, "x");
  EXPECT_THAT(error_of_edit([&](json& document) { add_node(document, again, "x"); }),
              HasSubstr("value 'x' is defined twice"));
}

TEST(HostileFile, NamesAreNoTerminalCommands) {
  const auto error = error_of_edit([](json& document) {
    add_node(document, make_node("aten.relu.default", {{"self", tensor("x")}}, "\x1b[2J\nname"), "x");
  });
  EXPECT_THAT(error, HasSubstr("control characters"));
  EXPECT_FALSE(speaks_foreign(error)) << error;
}

/// Changes the record of fc.weight, 5 x 16 numbers.
std::string error_of_meta(const char* key, const json& value) {
  return error_of_edit([&](json& d) { d["config"]["fc.weight"]["tensor_meta"][key] = value; }, kWeightsRecord);
}

TEST(HostileFile, WeightsLieInsideTheirRecords) {
  const auto sizes = [](int64_t a, int64_t b) { return json::array({{{"as_int", a}}, {{"as_int", b}}}); };
  const json far{{"as_int", INT64_MAX}};
  EXPECT_THAT(error_of_meta("strides", sizes(0, 1)),
              HasSubstr("tensor 'fc.weight' has strides by which its elements overlap"));
  EXPECT_THAT(error_of_meta("strides", sizes(15, 1)), HasSubstr("elements overlap"));
  EXPECT_THAT(error_of_meta("strides", sizes(-16, 1)), HasSubstr("got the size -16"));
  EXPECT_THAT(error_of_meta("strides", sizes(17, 1)), HasSubstr("needs more than the 320 bytes"));
  EXPECT_THAT(error_of_meta("strides", sizes(INT64_MAX, 1)), HasSubstr("reaches beyond any memory"));
  EXPECT_THAT(error_of_meta("strides", sizes(int64_t{1} << 61, 1)), HasSubstr("fc.weight"));
  EXPECT_THAT(error_of_meta("strides", json::array({{{"as_int", 1}}})),
              HasSubstr("sizes and strides of different axes"));
  EXPECT_THAT(error_of_meta("sizes", sizes(-5, -16)), HasSubstr("got the size -5"));
  EXPECT_THAT(error_of_meta("storage_offset", far), HasSubstr("reaches beyond any memory"));
  EXPECT_THAT(error_of_meta("storage_offset", {{"as_int", 1}}), HasSubstr("needs more than the 320 bytes"));
  EXPECT_THAT(error_of_meta("storage_offset", {{"as_int", 1e300}}), HasSubstr("wanted an integer"));
}

/// The weight of a convolution once more, under another name and with a size that no tensor in the file has.
void add_second_weight(json& document, const char* parameter, int64_t size) {
  auto& module = document["graph_module"];
  auto& values = module["graph"]["tensor_values"];
  values["p_guest"] = values["p_conv_weight"];
  values["p_guest"]["sizes"][0] = {{"as_int", size}};
  const json spec = json::object({{"parameter", {{"arg", {{"name", "p_guest"}}}, {"parameter_name", parameter}}}});
  auto& specs = module["signature"]["input_specs"];
  specs.insert(specs.begin() + 1, spec);
}

TEST(HostileFile, AWeightIsAnInputOnce) {
  for (const int64_t size : {4, 4096}) {
    EXPECT_THAT(error_of_edit([&](json& document) { add_second_weight(document, "conv.weight", size); }),
                HasSubstr("weight or constant 'conv.weight' is an input twice"));
  }
}

TEST(HostileFile, AnAliasHasTheShapeOfItsTensor) {
  const auto error_of_alias = [](int64_t size) {
    auto records = records_of(stored_pt2("net"));
    edit(records, kModelRecord, [&](json& document) { add_second_weight(document, "guest.weight", size); });
    edit(records, kWeightsRecord, [](json& d) { d["config"]["guest.weight"] = d["config"]["conv.weight"]; });
    return error_of(pack(records));
  };
  const int64_t rows = read_pt2(stored_pt2("net")).weights.params["conv.weight"].size(0);
  EXPECT_EQ(error_of_alias(rows), "no exception");
  EXPECT_THAT(error_of_alias(4096),
              AllOf(HasSubstr("guest.weight' does not have the shape or dtype that the graph records")));
}

TEST(HostileFile, ManyTensorsOnOneRecordDoNotMultiplyIt) {
  auto records = records_of(stored_pt2("structures"));
  edit(records, kModelRecord, [&](json& document) {
    auto& module = document["graph_module"];
    for (int i = 0; i < 40; ++i) {
      const auto name = "c_guest_" + std::to_string(i);
      module["graph"]["tensor_values"][name] = module["graph"]["tensor_values"]["p_first_weight"];
      module["graph"]["tensor_values"][name]["sizes"] = json::array({{{"as_int", 1 << 17}}});
      const json spec =
          json::object({{"tensor_constant", {{"arg", {{"name", name}}}, {"tensor_constant_name", name}}}});
      auto& specs = module["signature"]["input_specs"];
      specs.insert(specs.begin(), spec);
    }
  });
  records["data/constants/guest"] = std::string(4 << 17, '\1');
  edit(records, "data/constants/model_constants_config.json", [](json& document) {
    json meta = {{"dtype", 7}, {"layout", 7}, {"requires_grad", false}, {"storage_offset", {{"as_int", 0}}}};
    meta["sizes"] = json::array({{{"as_int", 1 << 17}}});
    meta["strides"] = json::array({{{"as_int", 1}}});
    for (int i = 0; i < 40; ++i) {
      document["config"]["c_guest_" + std::to_string(i)] = {
          {"path_name", "guest"}, {"is_param", false}, {"use_pickle", false}, {"tensor_meta", meta}};
    }
  });
  EXPECT_THAT(error_of(pack(records)), HasSubstr("and those before it are larger than the archive may be"));
}

TEST(HostileFile, RecordsThatUnfoldAreRefusedUntilTheyAreAllowed) {
  auto records = records_of(stored_pt2("net"));
  records["bomb"] = std::string(32 << 20, '\0');
  const auto packed = pack(records, true);
  EXPECT_LT(packed.size(), 100000u);
  EXPECT_THAT(error_of(packed), AllOf(HasSubstr("guest.pt2: its records unfold to more than 8388608 bytes"),
                                      HasSubstr("`max_model_size`")));
  EXPECT_EQ(error_of(packed, 64 << 20), "no exception");
}

TEST(HostileFile, EveryFlippedByteOfAWeightIsNoticed) {
  const tests::Scratch scratch;
  write_pt2(scratch / "ours.pt2", read_pt2(stored_pt2("net")));
  for (const auto& path : {stored_pt2("net"), scratch / "ours.pt2"}) {
    const auto weight = read_pt2(path).weights.params["fc.weight"];
    const std::string values(static_cast<const char*>(weight.const_data_ptr()), weight.nbytes());
    auto bytes = tests::text_of(path);
    const auto at = bytes.find(values);
    ASSERT_NE(at, std::string::npos);
    for (size_t i = at; i < at + values.size(); ++i) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
      EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("record 'data/weights/weight_"), HasSubstr("CRC"))) << i - at;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    }
  }
}

TEST(HostileFile, BoolsAreTrueOrFalse) {
  auto records = records_of(stored_pt2("net"));
  const auto to_bool = [](json& meta) { meta["dtype"] = 12; };
  edit(records, kModelRecord, [&](json& d) { to_bool(d["graph_module"]["graph"]["tensor_values"]["p_fc_bias"]); });
  edit(records, kWeightsRecord, [&](json& d) { to_bool(d["config"]["fc.bias"]["tensor_meta"]); });
  EXPECT_THAT(error_of(pack(records)), HasSubstr("tensor 'fc.bias' holds bytes that are neither true nor false"));
}

}  // namespace
}  // namespace prunex::program
