#include "prunex/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/program/pt2.h"

namespace prunex::program {
namespace {

using testing::ElementsAre;

/// A linear layer of 3 rows on the last state of an LSTM, as torch.export 2.11 wrote it: with a shape of 1 x B x 3.
Model last_state() {
  return read_pt2(PRUNEX_TEST_DATA "/prune/cases/lstm_last_state.pt2");
}

TEST(MeasuredShapes, ReplaceWrongOnesWhenAFileIsRead) {
  const Model model = last_state();
  const Graph& graph = model.program.graph();
  EXPECT_FALSE(records_wrong_shapes(graph));
  EXPECT_THAT(graph.values[graph.outputs[0]].shape, ElementsAre(Extent{1, true}, Extent{3, false}));
}

TEST(MeasuredShapes, AreThoseRecordedWhereTheseAreRight) {
  const Model model = read_pt2(PRUNEX_TEST_DATA "/prune/cases/lstm_linear.pt2");
  const Graph measured = with_measured_shapes(model.program.graph(), model.weights);
  for (size_t i = 0; i < measured.values.size(); ++i) {
    EXPECT_EQ(measured.values[i].shape, model.program.graph().values[i].shape) << measured.values[i].name;
  }
}

TEST(MeasuredShapes, NoticeStatesOfAnotherRank) {
  Graph graph = last_state().program.graph();
  for (const Node& node : graph.nodes) {
    if (node.target == "aten::lstm.input") graph.values[node.outputs[1]].shape.push_back({4, false});
  }
  EXPECT_TRUE(records_wrong_shapes(graph));
}

}  // namespace
}  // namespace prunex::program
