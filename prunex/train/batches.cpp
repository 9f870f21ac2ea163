#include "prunex/train/batches.h"

#include <algorithm>

#include "prunex/train/device.h"

namespace prunex::train {

comm::Range images_of_rank(const data::Dataset& dataset, const comm::Communicator& group) {
  return {dataset.size() * group.rank() / group.size(), dataset.size() * (group.rank() + 1) / group.size()};
}

std::vector<comm::Range> batches_of(const comm::Range& images, const program::Graph& graph, int64_t most) {
  const int64_t size = graph.batch_of(most);
  std::vector<comm::Range> batches;
  for (int64_t begin = images.begin; begin < images.end; begin = batches.back().end) {
    int64_t end = std::min(begin + size, images.end);
    if (end < images.end && images.end - end < graph.fewest_images) {  // what is left would be too few
      const int64_t earlier = images.end - graph.fewest_images;
      if (earlier - begin >= graph.fewest_images) {
        end = earlier;
      } else if (graph.batch_of(images.end - begin) == images.end - begin) {
        end = images.end;
      }
    }
    batches.push_back({begin, end});
  }
  return batches;
}

data::Batch batch_for(const Weights& weights, const data::Dataset& dataset, const comm::Range& images) {
  return on_device(data::evaluation_batch(dataset, images.begin, images.end), device_of(weights));
}

}  // namespace prunex::train
