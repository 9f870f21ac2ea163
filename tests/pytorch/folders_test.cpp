// Folders of images beside torchvision's ImageFolder, pixels beside Pillow's.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "prunex/data/decode.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/load.h"
#include "prunex/data/loader.h"
#include "prunex/io/safetensors.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

/// Names and labels, a line each; decoded pixels; pixels as they are tested.
void write_all(const Dataset& set, const std::string& folder) {
  const ImageStream& stream = *set.streamed.stream;
  std::ofstream names(folder + "/names.txt");
  TensorDict tensors;
  for (int64_t i = 0; i < set.size(); ++i) {
    names << stream.images().name(i) << "\t" << set.labels[i].item<int64_t>() << "\n";
    const DecodedImage image = decode_image(stream.images().read(i), whole_image);
    tensors.insert(fmt::format("decoded:{}", i),
                   at::tensor(image.pixels, at::kByte).view({image.height, image.width, 3}));
    at::Tensor plain = at::empty({stream.options().size, stream.options().size, 3}, at::kByte);
    stream.plain(i, {plain.data_ptr<uint8_t>(), plain.size(0), plain.size(1), 3});
    tensors.insert(fmt::format("plain:{}", i), plain);
  }
  tensors.insert("batch", evaluation_batch(set, 0, set.size()).images.contiguous());
  io::write_safetensors(folder + "/pixels.safetensors", tensors);
}

TEST(Folders, AreTorchvisionsImageFolders) {
  const tests::Scratch scratch;
  PRUNEX_RUN_PYTHON("tests/pytorch/folders.py", "make", scratch / "set");
  DataOptions options;
  options.dataset = scratch / "set";
  options.image_size = 56;
  write_all(load_datasets(options).test, scratch.path());
  PRUNEX_RUN_PYTHON("tests/pytorch/folders.py", "check", scratch.path());
}

}  // namespace
}  // namespace prunex::data
