// The images of a run, normalised as its network expects them.
#pragma once

#include <optional>
#include <string>

#include "prunex/comm/communicator.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/data/dataset.h"
#include "prunex/data/description.h"
#include "prunex/data/load.h"
#include "prunex/program/program.h"
#include "prunex/train/options.h"
#include "prunex/train/run/checkpoint.h"

namespace prunex::train {

/// What the file of a network says of its images.
struct Carried {
  data::Description description;
  std::string file;
};

/// Of `weights`, FILE.safetensors, if it says something, else of `model`, FILE.pt2; either may be empty, and `model` a
/// built-in name. Files of other programs say nothing. `most_bytes`: as read_pt2() has it. Throws std::invalid_argument
/// for what is no description, and if a file is missing.
std::optional<Carried> carried_description(const std::string& model, const std::string& weights,
                                           int64_t most_bytes = 0);

/// The shorter side that test images get before their middle, of `side`, is taken; 0: as usual, since nothing is said
/// or it is said of other squares.
int64_t resize_for(const data::Description& description, int64_t side);

/// What the options leave open of images from files: their size is that of the network, and they are scaled before
/// their middle is tested as its file says.
void complete_sizes(data::DataOptions& options, const program::Graph& graph, const std::optional<Carried>& carried);

struct RunImages {
  data::Datasets sets;
  data::Description description;     ///< of the sets, for the network that is made of them
  std::vector<std::string> remarks;  ///< that the set's own numbers, or other classes, are not those of the network
};

/// The images that the options name: resized and normalised by what `carried` says, else by the options and the numbers
/// of the data set. Labels of a folder are numbers of `classes`, or else of those that `carried` names, if these have
/// all of its own.
RunImages load_images(data::DataOptions options, const std::optional<Carried>& carried,
                      const std::vector<std::string>& classes = {});

// Files may be others on another rank, or when a run goes on: then batches would be others, too, and as many steps as
// there are images. `node`: whose own files they are, where nodes have such; its number as the run began.

/// data::checksum() of both sets.
struct Checksums {
  explicit Checksums(const data::Datasets& sets);
  int64_t train = 0, test = 0;
};
/// Throws std::invalid_argument if a rank sees other images than the first one of `ranks`, to train or to test on.
/// Collective.
void expect_same_images(const data::Datasets& sets, const Checksums& sums, comm::Communicator& ranks);
void remember_images(const Checksums& sums, std::optional<int> node, Checkpoint& checkpoint);
/// Throws std::invalid_argument if these are not the images of remember_images(). Of another node's nothing is known.
void expect_remembered_images(const data::Datasets& sets, const Checksums& sums, std::optional<int> node,
                              const Checkpoint& checkpoint);

/// How many files of the sets any rank has found broken; nothing of sets in memory. Collective.
std::optional<int64_t> images_skipped(const data::Datasets& sets, const TrainOptions& options, comm::Hierarchy& ranks);

}  // namespace prunex::train
