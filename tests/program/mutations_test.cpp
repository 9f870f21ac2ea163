// Files that are cut short, damaged or rewritten at random either read, and then run or say why not, or are refused in
// one line.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/program/pt2.h"
#include "tests/program/hostile.h"
#include "tests/program/pt2_files.h"
#include "tests/texts.h"

namespace prunex::program {
namespace {

using nlohmann::json;

at::Tensor input_of(const Value& value) {
  return at::ones(sizes_of(value.shape, 2), value.dtype);
}

// Whatever the file says of its shapes; LibTorch's own errors are its own.
void run(Model& model) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs;
  for (const auto id : model.program.graph().inputs) inputs.push_back(input_of(model.program.graph().values[id]));
  try {
    model.program.run(inputs, model.weights, Mode::kEval);
  } catch (const std::exception&) {
  }
}

/// Returns whether the file reads.
bool reads(const std::string& bytes, const std::string& what) {
  try {
    auto model = parse_pt2(bytes, "guest.pt2");
    run(model);
    return true;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, testing::StartsWith("guest.pt2: ")) << what;
    EXPECT_FALSE(speaks_foreign(text)) << what << ": " << text;
    EXPECT_LT(text.size(), 1000u) << what;
  }
  return false;
}

TEST(MutatedFile, CutShortIsRefused) {
  const auto whole = tests::text_of(stored_pt2("net"));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto length = random() % whole.size();
    EXPECT_FALSE(reads(whole.substr(0, length), "length " + std::to_string(length)));
  }
}

TEST(MutatedFile, WithDamagedBytesNeverEndsTheProcess) {
  std::mt19937 random(2);
  for (const auto* name : {"net", "structures"}) {
    auto bytes = tests::text_of(stored_pt2(name));
    for (int i = 0; i < 250; ++i) {
      const auto at = random() % bytes.size();
      const char before = bytes[at];
      bytes[at] = static_cast<char>(before ^ (1 << (random() % 8)));
      reads(bytes, std::string(name) + " byte " + std::to_string(at));
      bytes[at] = before;
    }
  }
}

TEST(MutatedFile, WithARewrittenDocumentNeverEndsTheProcess) {
  std::mt19937 random(3);
  int read = 0, refused = 0;
  for (const std::string name :
       {"pt2/net", "pt2/structures", "prune/cases/lstm_linear", "prune/cases/without_gradients"}) {
    const auto records = records_of(PRUNEX_TEST_DATA "/" + name + ".pt2");
    for (int i = 0; i < 120; ++i) {
      auto mutated = records;
      const auto* record = i % 4 == 0 ? kWeightsRecord : kModelRecord;
      edit(mutated, record, [&](json& document) {
        for (auto changes = 1 + random() % 2; changes > 0; --changes) mutate(document, random);
      });
      ++(reads(pack(mutated), name + " " + std::to_string(i)) ? read : refused);
    }
  }
  EXPECT_GT(read, 30);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace prunex::program
