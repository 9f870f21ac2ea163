// What a network answers to every image of a set, for looking at.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// Where there are no more classes, a label is always among them.
inline constexpr int64_t kTopAnswers = 5;

/// A wrong answer.
struct Mistake {
  int64_t image = 0;  ///< its number in the set
  int64_t label = 0, answer = 0;
  double confidence = 0;  ///< softmax of the answer
  std::string file{};     ///< where the image is; empty for sets in memory
  std::string png{};      ///< in base64, at most 64 pixels a side; empty but for one channel or three
};

struct Answers {
  double loss = 0;                                        ///< mean cross-entropy
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;  ///< images by {label, answer}, where there are some
  int64_t outputs = 0;            ///< classes of the set, or logits of the network if these are more
  int64_t in_top_5 = 0;           ///< images whose label is among the five largest logits
  std::vector<Mistake> mistakes;  ///< the most confident ones, the worst first

  int64_t images() const;
  double accuracy() const;
  /// Labels among the five largest logits, 0 … 1; nothing where there are no more than five outputs.
  std::optional<double> top5_accuracy() const;
};

inline constexpr int64_t kMostMistakes = 24;

/// Over the whole set, by this process alone; `most`: mistakes to keep.
Answers answers(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                int64_t most = kMostMistakes);

/// The same, each rank of `world` taking its part; the same result on every rank. Collective.
Answers answers(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                comm::Communicator& world);

/// {"images", "accuracy", "loss", "top5_accuracy", "classes": [names], "counts": [[label, answer, images], …],
/// "mistakes": [{"image", "label", "answer", "confidence", "file", "png"}]}: what is empty is left out.
std::string answers_json(const Answers& answers, const data::Dataset& dataset);

}  // namespace prunex::train
