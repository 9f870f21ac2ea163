// prunex data: what lies in folders and shards of images
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>

#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/shards.h"
#include "prunex/data/workers.h"
#include "prunex/say.h"
#include "prunex/stopwatch.h"
#include "prunex/text/one_line.h"
#include "prunex/train/options.h"
#include "prunex/train/run/progress.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

namespace fs = std::filesystem;

struct DataCommand {
  std::string images;
  int64_t threads = 4;
  bool quiet = false;
};

int run_index(const DataCommand& command) {
  if (!command.images.ends_with(".tar")) {
    throw std::invalid_argument(fmt::format(
        "IMAGES: got {}, wanted shards such as train-{{0000..0099}}.tar: a folder needs no index", command.images));
  }
  const auto shards = data::expand_braces(command.images, "IMAGES").size();
  const int64_t samples = data::write_shard_indices(command.images, "IMAGES");
  fmt::print("{} samples in {} shards, an index beside each\n", samples, shards);
  return 0;
}

/// Whether there is such a folder, and in it another one that is not called so.
bool has_folders(const fs::path& folder, const std::set<fs::path>& except = {}) {
  std::error_code ignored;  // who lists it says what is wrong
  return fs::is_directory(folder, ignored) &&
         std::any_of(fs::directory_iterator(folder, ignored), fs::directory_iterator(),
                     [&](const fs::directory_entry& entry) {
                       return entry.is_directory() && !except.contains(entry.path().filename());
                     });
}

/// Images beside the folders of classes, which training does not see.
int64_t count_loose(const fs::path& folder) {
  std::error_code ignored;
  const auto is_image = [&](const fs::directory_entry& entry) {
    return data::names_an_image(entry.path().string()) && !entry.is_directory(ignored);
  };
  return std::count_if(fs::directory_iterator(folder, ignored), fs::directory_iterator(), is_image);
}

/// A folder without folders in it is one of images that prunex predict reads, without labels.
data::Listing listing_of(const std::string& images) {
  if (images.ends_with(".tar")) return data::list_shards(images, "IMAGES");
  std::error_code ignored;
  if (fs::is_directory(images, ignored) && !has_folders(images)) {
    return {.classes = {}, .labels = {}, .images = data::list_images(images, "IMAGES")};
  }
  return data::list_folder(images, {}, "IMAGES");
}

/// The folder; of one that `dataset` names, its parts: train has folders, val may be there, no class lies beside them.
std::vector<std::string> parts_of(const std::string& images) {
  const fs::path folder(images), train = folder / "train", val = folder / "val";
  const bool is_set = has_folders(train) && !has_folders(folder, {"train", "val", "test"});
  if (!is_set) return {images};
  std::vector<std::string> parts{train.string()};
  std::error_code ignored;
  if (fs::is_directory(val, ignored)) parts.push_back(val.string());
  return parts;
}

std::string of_classes(const data::Listing& listing) {
  if (!listing.labels.defined()) return "";
  const int64_t classes =
      listing.classes.empty() ? listing.labels.max().item<int64_t>() + 1 : static_cast<int64_t>(listing.classes.size());
  return fmt::format(" of {} classes", classes);
}

/// Says every so many seconds how far a check of so many images has come.
class CheckProgress {
 public:
  CheckProgress(int64_t images, bool quiet) : images_(images), quiet_(quiet) {}

  void looked_at_one(int64_t broken) {
    ++looked_at_;
    const double now = Stopwatch::now();
    if (quiet_ || now - said_ < kPause || looked_at_ == images_) return;
    said_ = now;
    const double rate = static_cast<double>(looked_at_) / (now - begin_);
    say(fmt::format("prunex: {} of {} images, {} broken, {:.0f} per second, {} left\n", looked_at_, images_, broken,
                    rate, train::clock_time(static_cast<double>(images_ - looked_at_) / rate)));
  }

 private:
  static constexpr double kPause = 5;
  const int64_t images_;
  const bool quiet_;
  const double begin_ = Stopwatch::now();
  double said_ = begin_;
  int64_t looked_at_ = 0;
};

/// Every image is decoded whole, and must be of a size that tests can scale. Returns how many are broken.
int64_t check(const std::string& folder, const DataCommand& command) {
  const data::Listing listing = listing_of(folder);
  const int64_t loose = listing.classes.empty() ? 0 : count_loose(folder);
  if (loose > 0 && !command.quiet) {
    say(fmt::format("prunex: warning: {}: not looked at, as in training: {} images beside the folders of classes\n",
                    text::one_line(folder, text::kLongestPath), loose));
  }
  const data::EncodedImages& images = *listing.images;
  std::mutex mutex;
  int64_t broken = 0;
  CheckProgress progress(images.size(), command.quiet);
  data::Workers workers(command.threads);
  const auto job = workers.start(images.size(), [&](int64_t i) {
    std::string problem;
    try {
      data::check_scaled_size(data::decode_image(images.read(i), data::whole_image), data::StreamOptions().resize);
    } catch (const data::BrokenImage& error) {
      problem = error.what();
    }
    const std::lock_guard lock(mutex);
    if (!problem.empty()) {
      ++broken;
      fmt::print("{}: {}\n", text::one_line(images.name(i), text::kLongestPath), problem);
    }
    progress.looked_at_one(broken);
  });
  workers.wait(*job);
  const std::string part = folder == command.images ? "" : fs::path(folder).filename().string() + ": ";
  fmt::print("{}{} images{}, {} broken\n", part, images.size(), of_classes(listing), broken);
  return broken;
}

int run_check(const DataCommand& command) {
  int64_t broken = 0;
  for (const auto& part : parts_of(command.images)) broken += check(part, command);
  return broken == 0 ? 0 : 1;
}

text::OptionList describe(DataCommand& command, const std::string& help, bool decodes) {
  text::OptionList list;
  list.add("IMAGES", text::text_value(command.images), help).must().positional();
  if (decodes) {
    list.add("data-threads", text::number(command.threads, text::between(1, train::kMostThreads)),
             "threads that decode");
  }
  describe_quiet(list, command.quiet);
  return list;
}

}  // namespace

void add_data(CLI::App& app, int& status) {
  auto* sub = app.add_subcommand("data", "check folders and shards of images");
  sub->require_subcommand(1);
  auto index = std::make_shared<DataCommand>(), check = std::make_shared<DataCommand>();
  add_command(*sub,
              {.name = "index",
               .help = "write SHARD.index beside tar shards, which then start without being read",
               .options = describe(*index, "shards such as 'train-{0000..0099}.tar'", false),
               .run = [index] { return run_index(*index); }},
              status);
  add_command(
      *sub,
      {.name = "check",
       .help =
           "decode every image of a folder DIR/CLASS/*.jpg or DIR/*.jpg, of one with such folders train and val, or of "
           "shards, and name those that are broken",
       .options = describe(*check, "DIR, or shards such as 'train-{0000..0099}.tar'", true),
       .run = [check] { return run_check(*check); }},
      status);
}

}  // namespace prunex::tools
