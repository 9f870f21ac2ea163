// Files of images by number, and what a folder or shards of them hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace prunex::data {

/// Images as they are stored. Calls are const and may come from several threads.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;

  virtual int64_t size() const = 0;
  /// Where image i is, for messages.
  virtual std::string name(int64_t i) const = 0;
  /// The same without the folder that all have in common: equal where copies of a set lie elsewhere.
  virtual std::string short_name(int64_t i) const = 0;
  /// Its bytes. Throws BrokenImage if they are not there any more.
  virtual std::string read(int64_t i) const = 0;
};

struct Listing {
  std::vector<std::string> classes;  ///< by label
  at::Tensor labels;                 ///< int64, by image
  std::unique_ptr<EncodedImages> images;
};

/// FOLDER/CLASS/…/FILE.jpg, .jpeg, .png or .webp, as torchvision's ImageFolder: classes are sorted by name, their files
/// by folder and name; what ends otherwise is no image. `classes` not empty: labels are numbers of these names.
/// std::invalid_argument names `option` and the folder: no classes, one without images or not among `classes`, or files
/// that ImageFolder would read and we do not (.bmp, .tif, …).
Listing list_folder(const std::string& folder, const std::vector<std::string>& classes, const std::string& option);

/// All such files below `path` in the order of their folders and names, or that file itself. std::invalid_argument
/// names `option` if there are none.
std::unique_ptr<EncodedImages> list_images(const std::string& path, const std::string& option);

/// Whether decode_image() reads files that end so: "jpg", "jpeg", "png", "webp", in letters of any size.
bool ends_an_image(std::string ending);
/// Whether the file is named as those are.
bool names_an_image(const std::string& path);

/// At most 1 GiB of a file from `begin` on, `size` of them or, if that is negative, all. Throws BrokenImage.
std::string read_bytes(const std::string& path, int64_t begin, int64_t size);

}  // namespace prunex::data
