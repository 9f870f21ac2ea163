#include "prunex/train/images/images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <tuple>

#include "prunex/data/image_stream.h"
#include "prunex/io/safetensors.h"
#include "prunex/program/pt2.h"
#include "prunex/text/read_file.h"
#include "prunex/train/images/division.h"
#include "prunex/train/network.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/remarks.h"

namespace prunex::train {
namespace {

constexpr int kAllNodes = -1;

std::optional<std::string> text_in_weights(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const auto metadata = io::read_safetensors_metadata(path);
  const auto found = metadata.find(data::kDescriptionName);
  return found == metadata.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> text_in_model(const std::string& path, int64_t most_bytes) {
  if (!path.ends_with(".pt2")) return std::nullopt;
  return program::read_extra_file(path, data::kDescriptionName, most_bytes);
}

std::string normalization_remark(const Carried& carried, const data::Dataset& own) {
  const data::Description numbers = data::describe(own);
  if (!data::normalise_differently(carried.description, numbers)) return "";
  return fmt::format("images are normalised as {} says ({}), not as {} says ({})", carried.file,
                     data::normalization_text(carried.description), own.name, data::normalization_text(numbers));
}

std::string classes_remark(const Carried& carried, const data::Dataset& own) {
  const auto& names = carried.description.classes;
  if (names.empty() || own.class_names.empty() || names == own.class_names) return "";
  return fmt::format("warning: {} knows the classes {}; {} has {}", carried.file, some_of(names), own.name,
                     some_of(own.class_names));
}

}  // namespace

std::optional<Carried> carried_description(const std::string& model, const std::string& weights, int64_t most_bytes) {
  if (!weights.empty()) text::expect_there("`weights`", weights);
  if (model.ends_with(".pt2")) text::expect_there("`model`", model);
  for (const auto& [text, file] :
       {std::pair{text_in_weights(weights), weights}, {text_in_model(model, most_bytes), model}}) {
    if (!text) continue;
    Carried carried{data::parse_description(*text, file), file};
    if (!carried.description.mean.empty()) return carried;
  }
  return std::nullopt;
}

std::optional<int64_t> images_skipped(const data::Datasets& sets, const TrainOptions& options, comm::Hierarchy& ranks) {
  std::vector<int64_t> broken;
  bool streams = false;
  // Nodes that read files of their own have other ones by the same number.
  const int64_t place = has_files_by_node(options.data) ? ranks.layout.node() : 0;
  int64_t set = 0;
  for (const data::Dataset* images : {&sets.train, &sets.test}) {
    ++set;
    if (!images->is_streamed()) continue;
    streams = true;
    for (const int64_t number : images->streamed.stream->broken()) {
      broken.push_back(((number * ranks.layout.nodes()) + place) * 2 + set - 1);
    }
  }
  if (!streams) return std::nullopt;
  return count_of_all(broken, *ranks.world);
}

Checksums::Checksums(const data::Datasets& sets) : train(data::checksum(sets.train)), test(data::checksum(sets.test)) {}

void expect_same_images(const data::Datasets& sets, const Checksums& sums, comm::Communicator& ranks) {
  for (const auto& [name, sum, what] :
       {std::tuple{&sets.train.name, sums.train, "`dataset`"}, {&sets.test.name, sums.test, "test images of"}}) {
    const auto other = first_other(sum, ranks);
    if (!other) continue;
    throw std::invalid_argument(
        fmt::format("{} {}: rank {} sees other images there than rank 0: wanted the same files on all machines", what,
                    *name, *other));
  }
}

void remember_images(const Checksums& sums, std::optional<int> node, Checkpoint& checkpoint) {
  checkpoint.node.insert(kImagesChecksum,
                         at::tensor({sums.train, int64_t{node.value_or(kAllNodes)}, sums.test}, at::kLong));
}

void expect_remembered_images(const data::Datasets& sets, const Checksums& sums, std::optional<int> node,
                              const Checkpoint& checkpoint) {
  const at::Tensor* before = checksum_in(checkpoint, kImagesChecksum);
  if (before == nullptr) return;
  const at::Tensor remembered = before->flatten();  // older ones end sooner
  const auto entry = [&](int64_t i, int64_t usual) {
    return i < remembered.numel() ? remembered[i].item<int64_t>() : usual;
  };
  const int now = node.value_or(kAllNodes);
  const int64_t then = entry(1, now);
  const bool are_of_another = now != then && now != kAllNodes && then != kAllNodes;
  if (are_of_another) return;
  const auto refuse = [](const std::string& images) {
    throw std::invalid_argument(fmt::format(
        "{}: the images are not those with which the run began: wanted the same files and classes", images));
  };
  if (now != then || entry(0, sums.train) != sums.train) refuse("`dataset` " + sets.train.name);
  if (entry(2, sums.test) != sums.test) refuse("test images of " + sets.test.name);
}

namespace {

/// What the network that is given says, unless it was of images of another size.
int64_t resize_of(const data::DataOptions& options, const std::optional<Carried>& carried) {
  if (!carried || options.resize != 0) return options.resize;
  return resize_for(carried->description, data::side_of_images(options));
}

}  // namespace

int64_t resize_for(const data::Description& description, int64_t side) {
  const bool is_of_side = description.crop == 0 || description.crop == side;
  return description.resize >= side && is_of_side ? description.resize : 0;
}

void complete_sizes(data::DataOptions& options, const program::Graph& graph, const std::optional<Carried>& carried) {
  const bool augment_says = options.augment && options.augment->crop_size > 0;
  if (options.image_size == 0 && !augment_says) options.image_size = image_size_of(graph);
  options.resize = resize_of(options, carried);
}

RunImages load_images(data::DataOptions options, const std::optional<Carried>& carried,
                      const std::vector<std::string>& classes) {
  options.resize = resize_of(options, carried);
  const auto& known = classes.empty() && carried ? carried->description.classes : classes;
  options.numbers_are_labels = carried && known.empty();
  RunImages images{.sets = data::load_datasets(options, known), .description = {}, .remarks = {}};
  auto& [train, validation, test] = images.sets;
  if (carried) {
    images.remarks = {normalization_remark(*carried, train), classes_remark(*carried, train)};
    std::erase(images.remarks, "");
    for (data::Dataset* set : {&train, &validation, &test}) {
      if (set->size() > 0) data::normalise_by(*set, carried->description, carried->file);
    }
  }
  images.description = data::describe(train);
  if (carried && images.description.classes.empty() &&
      static_cast<int64_t>(carried->description.classes.size()) >= train.classes) {
    images.description.classes = carried->description.classes;  // of the network, some of which nobody shows it here
  }
  return images;
}

}  // namespace prunex::train
