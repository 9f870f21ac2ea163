// Every option of a training run: name, field, range, when it has an effect, help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "prunex/data/augment.h"
#include "prunex/models/models.h"
#include "prunex/text/settings.h"
#include "prunex/train/options.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using text::between;
using text::number;
using text::OptionList;

// Values of forms of their own.

text::OptionValue partition_value(data::Partition& field) {
  return {.type = "iid|dirichlet:A|classes:N",
          .read =
              [&field](const std::string& word) {
                const auto partition = data::parse_partition(word);
                if (!partition) text::refuse_value(word, "iid, dirichlet:A with A from 0.01 to 1e6, or classes:N");
                field = *partition;
              },
          .write = [&field] { return data::to_string(field); }};
}

/// Words of augmentation, or auto.
text::OptionValue augment_value(std::optional<data::Augmentation>& field) {
  return {.type = "auto|none|WORDS",
          .read =
              [&field](const std::string& words) {
                field = words == "auto" ? std::nullopt : std::optional(data::parse_augmentation(words));
              },
          .write = [&field] { return field ? data::to_string(*field) : "auto"; }};
}

/// A folder's name that is none would be taken for a word.
void expect_there(const std::string& word) {
  const std::filesystem::path path(word);
  std::error_code ignored;
  const bool is_path = path.has_parent_path() || path.has_extension();
  if (!is_path || word.ends_with(".safetensors") || std::filesystem::exists(path, ignored)) return;
  text::refuse_value(word, "one of its words, or a file or folder: there is none of this name");
}

/// A word, a file's name, or that of a folder.
text::OptionValue dataset_value(std::string& field, ImageUse use) {
  auto words = data::set_names();
  words.insert(words.end(), {"DIR", "SHARDS.tar"});  // shown: what they stand for is_streamed()
  text::OptionValue value = text::one_of(field, words, ".safetensors");
  const auto is_open = [use](const std::string& word) {  // {node}: one or the other, once the node is known
    return data::is_streamed(word) || (use == ImageUse::kTraining && word.find("{node}") != std::string::npos);
  };
  value.read = [&field, is_open, read = value.read](const std::string& word) {
    if (is_open(word)) {
      field = word;
      return;
    }
    expect_there(word);
    try {
      read(word);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}; nor is there a folder of this name", error.what()));
    }
  };
  value.check = [&field, is_open, check = value.check] {
    if (is_open(field)) return;
    expect_there(field);
    check();
  };
  return value;
}

std::optional<double> seconds_in(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"min", 60}, {"s", 1}, {"h", 3600}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = text::number_in<double>(text.substr(0, text.size() - unit.size()));
    if (number) return *number * seconds;
  }
  return std::nullopt;
}

/// A number of exchanges, a time such as 90s, 10min or 1h, or auto.
text::OptionValue checkpoints(TrainOptions& o) {
  const auto read = [&o](const std::string& word) {
    const TrainOptions usual;
    const auto exchanges = text::number_in<int64_t>(word);
    const auto seconds = seconds_in(word);
    if (word != "auto" && !(exchanges && *exchanges >= 0) && !(seconds && *seconds > 0)) {
      text::refuse_value(word, "a number of exchanges, a time such as 90s, 10min or 1h, or auto");
    }
    o.checkpoint_every = exchanges.value_or(kAutomatic);
    o.checkpoint_seconds = seconds.value_or(usual.checkpoint_seconds);
  };
  const auto write = [&o] {
    if (o.checkpoint_every != kAutomatic) return fmt::format("{}", o.checkpoint_every);
    const bool usual = o.checkpoint_seconds == TrainOptions().checkpoint_seconds;
    return usual ? std::string("auto") : fmt::format("{}s", o.checkpoint_seconds);
  };
  const auto check = [&o] {
    if (o.checkpoint_every != kAutomatic) text::check_range(between(0, kMostExchanges), o.checkpoint_every);
    text::check_range(text::above_zero(), o.checkpoint_seconds);
  };
  return {.type = "INT|TIME|auto", .read = read, .write = write, .check = check};
}

void describe_partition(OptionList& list, TrainOptions& o) {
  for (const char* name : {"dataset", "test", "data-dir"}) {
    list.find(name)->help += "; {node} in it is the node's number";
  }
  list.add("partition", partition_value(o.partition),
           "training images of nodes: all in turns; shares of every class drawn from Dirichlet(A); or N classes each",
           {{"several nodes", [&o] { return o.nodes > 1 ? "" : "there is one node"; }}});
}

void describe_network(OptionList& list, TrainOptions& o) {
  const auto is_file = [&o] { return o.model.ends_with(".pt2"); };
  const text::Condition built_in{
      "built-in networks", [is_file] { return is_file() ? std::string("the network of a file has its own") : ""; }};
  list.topic("Model");
  list.add("model", text::one_of(o.model, models::model_names(), ".pt2"),
           "a built-in network, or a program saved by torch.export.save")
      .basic();
  list.add("width", number(o.width, text::above_zero()), "multiplies the channels of the CIFAR ResNets", {built_in});
  list.add("norm", text::choice(o.norm, {{"batch", models::Norm::kBatch}, {"group", models::Norm::kGroup}}),
           "behind every convolution; group: at most 32 groups of 4 channels or more", {built_in});
  list.add("max-model-size", number(o.max_model_size, between(0, 0x1p40)),
           "MiB that the records of a FILE.pt2 may have together; 0: eight times the file",
           {{"FILE.pt2",
             [is_file, &o] {
               return is_file() || o.teacher.ends_with(".pt2") ? "" : fmt::format("{} is built in", o.model);
             }}})
      .circumstance();
  list.add(
      "widths", text::text_value(o.widths),
      "structure.json of a run: train a network as narrow as its product from scratch",
      {{"built-in networks", [is_file] { return is_file() ? std::string("the weights of a file are trained") : ""; }},
       {"`weights`", [&o] { return o.weights.empty() ? "" : "beside `weights` nothing begins from scratch"; }}});
  list.add("weights", text::text_value(o.weights), "FILE.safetensors to start from").basic();
}

void describe_local_training(OptionList& list, TrainOptions& o) {
  list.topic("Local training");
  list.add("epochs", number(o.epochs, text::at_least(0)), "passes over the training set by all ranks together")
      .instead_of("exchanges")
      .basic();
  list.add("exchanges", number(o.exchanges, between(0, kMostExchanges)),
           "instead of `epochs`: exactly so many exchanges; 0 = off")
      .instead_of("epochs");
  list.add("local-steps", number(o.local_steps, between(1, kMostExchanges)), "optimizer steps between exchanges (H)")
      .basic();
  list.add("batch-size", number(o.batch_size, text::at_least(1)), "images per rank and step").basic();
  describe_recipe(list, o);
  list.add("precision",
           text::choice(o.precision, {{"auto", Precision::kAuto},
                                      {"fp32", Precision::kFp32},
                                      {"tf32", Precision::kTf32},
                                      {"bf16", Precision::kBf16}}),
           "arithmetic of the local steps; auto: bf16 if every processor is faster in it, tf32 on GPUs")
      .basic();
  list.add("no-cuda-graphs", text::no_flag(o.cuda_graphs),
           "launch local steps kernel by kernel, instead of as one CUDA graph recorded anew after each cut",
           {{"`device` cuda", [&o] { return o.ranks.device == "cuda" ? "" : "a CPU has no CUDA graphs"; }}})
      .resumable();
  list.add("seed", number(o.seed), "of weights, order and augmentation").basic().is_identity = false;
}

void describe_run(OptionList& list, TrainOptions& o) {
  list.topic("Run");
  list.add("eval-every", number(o.eval_every, between(0, kMostExchanges)),
           "exchanges between evaluations; 0 = at the end only")
      .basic()
      .circumstance()
      .of_all_ranks();
  list.add("run-dir", text::text_value(o.run_dir), "results; default: runs/<dataset>-<model>-<strategy>-<n>")
      .basic()
      .not_in_files();
  list.add("trace", text::flag(o.trace), "write trace.json: when every rank did what, for Perfetto")
      .circumstance()
      .of_all_ranks();
  list.add("tensorboard", text::flag(o.tensorboard), "write the metrics of every exchange as TensorBoard's events, too")
      .circumstance();
  list.add("checkpoint-every", checkpoints(o),
           "exchanges between checkpoints, or a time as 90s, 10min, 1h; auto: 5min; 0 = none, at a signal neither")
      .basic()
      .circumstance()
      .of_all_ranks();
  list.add("resume", text::text_value(o.resume), "run directory to go on in, with its configuration")
      .basic()
      .not_in_files();
  list.add("resume-exchange", number(o.resume_exchange, between(0, kMostExchanges)),
           "go on from this checkpoint; 0 = the newest",
           {{"`resume`", [&o] { return o.resume.empty() ? "needs `resume`, which says where to go on" : ""; }}})
      .not_in_files();
  list.add("quiet", text::flag(o.quiet), "no progress, only results").basic().circumstance();
  list.add("log",
           text::choice(o.log,
                        {{"plain", LogForm::kPlain}, {"timestamps", LogForm::kTimestamps}, {"json", LogForm::kJson}}),
           "form of the progress: lines, lines with the time, or JSON objects")
      .circumstance();
}

void describe_streams(OptionList& list, data::DataOptions& data, ImageUse use) {
  const text::Condition streamed{"folders, shards", [&data] {
                                   const std::string& set = data.dataset.empty() ? data.test : data.dataset;
                                   const bool folders =
                                       set.find("{node}") != std::string::npos && !set.ends_with(".safetensors");
                                   if (data::is_streamed(set) || folders) return std::string();
                                   return fmt::format("it is for folders and shards of images; `{}` is {}",
                                                      data.dataset.empty() ? "test" : "dataset", set);
                                 }};
  const text::Condition size_is_open{"no resized-crop in `augment`", [&data] {
                                       return data.augment && data.augment->crop_size > 0
                                                  ? "`augment` says it: " + data::to_string(*data.augment)
                                                  : "";
                                     }};
  list.add("image-size", number(data.image_size, text::Range{.least = 1, .most = 1 << 14, .or_zero = true}),
           "side of the images; 0: what `augment` or, of prunex eval and prune, the model says, else 224",
           {streamed, size_is_open});
  list.add(
      "resize", number(data.resize, text::Range{.least = 1, .most = 1 << 14, .or_zero = true}),
      "shorter side of tested images, before their middle is cut out; 0: what the model says, else 8/7 of the size",
      {streamed});
  list.add("data-threads", number(data.data_threads, between(1, kMostThreads)), "threads per rank that decode images",
           {streamed})
      .circumstance();
  if (use == ImageUse::kTraining) {
    list.add("prefetch", number(data.prefetch, between(1, 1024)), "batches that are decoded ahead", {streamed})
        .circumstance();
  }
  list.add("max-broken", number(data.max_broken, text::at_least(0)),
           "broken files of a set that a rank replaces by the next ones before it gives up", {streamed})
      .circumstance();
}

void describe_validation(OptionList& list, data::DataOptions& data) {
  list.add(
      "validation", number(data.validation),
      "hold out N training images, of files the last ones, of folders and shards of a mixed order; score them too");
}

}  // namespace

void describe_data(OptionList& list, data::DataOptions& data, ImageUse use) {
  const auto of_set = [&data](const std::string& what, const std::vector<std::string>& sets) {
    return text::Condition{what, [&data, sets] {
                             if (std::find(sets.begin(), sets.end(), data.dataset) != sets.end()) return std::string();
                             return data.dataset.empty() ? "no `dataset` is named"
                                                         : fmt::format("`dataset` {} does not read it", data.dataset);
                           }};
  };
  const text::Condition any{
      "", [&data] { return data.dataset.empty() && data.test.empty() ? "no `dataset` is named" : ""; }};
  const auto folders = data::set_names(true);
  list.topic("Data");
  list.add("dataset", dataset_value(data.dataset, use),
           "built-in or CIFAR images, a file with images and labels, a folder DIR/train/CLASS/*.jpg, "
           "DIR/val/CLASS/*.jpg, "
           "or shards-{0000..0099}.tar")
      .basic();
  list.add("test", text::text_value(data.test),
           "test set as `dataset` is one: FILE.safetensors, DIR/CLASS/*.jpg, SHARDS.tar",
           {{"",
             [&data, use] {
               const bool alone = use == ImageUse::kPruning && data.dataset.empty();
               return alone ? "no `dataset` is named" : "";
             }}})
      .basic();
  list.add("data-dir", text::text_value(data.data_dir),
           fmt::format("folder of {} in their official binary layout", fmt::join(folders, " and ")),
           {of_set(fmt::format("{}", fmt::join(folders, ", ")), folders)})
      .basic()
      .circumstance();
  list.add("samples", number(data.samples), "training images of synthetic", {of_set("synthetic", {"synthetic"})});
  if (use != ImageUse::kTesting) {
    list.add("train-limit", number(data.train_limit, text::at_least(0)),
             "use N training images, of files the first ones, of folders and shards of a mixed order; 0 = all", {any});
  }
  list.add("test-limit", number(data.test_limit, text::at_least(0)), "use N test images, chosen likewise; 0 = all",
           {any});
  describe_streams(list, data, use);
}

void describe_augmentation(OptionList& list, data::DataOptions& data) {
  list.add("augment", augment_value(data.augment),
           fmt::format("training images at random: {}; auto: resized-crop:SIZE,flip for folders, crop:4,flip for "
                       "CIFAR, crop:2,flip for synthetic, else none",
                       data::kAugmentationWords),
           {{"", [&data] { return data.dataset.empty() ? "no `dataset` is named" : ""; }}})
      .basic();
}

OptionList describe(TrainOptions& options) {
  OptionList list;
  describe_data(list, options.data);
  describe_validation(list, options.data);
  describe_augmentation(list, options.data);
  describe_partition(list, options);
  describe_network(list, options);
  describe_ranks(list, options);
  describe_local_training(list, options);
  describe_sparse_training(list, options);
  describe_strategies(list, options);
  describe_run(list, options);
  return list;
}

namespace {

/// What is said of an option that may differ.
struct Differing {
  std::string usual;
  bool is_shared = false;
};

const std::map<std::string, Differing>& differing_options() {
  static const std::map<std::string, Differing> found = [] {
    TrainOptions options;
    std::map<std::string, Differing> rows;
    const OptionList list = describe(options);
    for (const auto& option : list.all()) {
      if (option.may_differ) rows[option.name] = {option.usual, option.is_shared};
    }
    return rows;
  }();
  return found;
}

}  // namespace

std::optional<OptionDifference> first_difference(const std::string& one, const std::string& other, Among among) {
  const auto& differing = differing_options();
  const auto is_shared = [among](const Differing& option) { return among == Among::kRanks && option.is_shared; };
  const auto options_in = [&](const std::string& config) {
    std::map<std::string, std::string> options;
    for (const auto& [name, option] : differing) {
      if (is_shared(option)) options[name] = option.usual;  // where it has no effect
    }
    for (const auto& setting : text::read_settings(config, "configuration")) {
      const auto found = differing.find(setting.name);
      if (found == differing.end() || is_shared(found->second)) options[setting.name] = setting.value;
    }
    return options;
  };
  const auto others = options_in(other);
  std::optional<OptionDifference> by_another;
  for (const auto& [option, value] : options_in(one)) {
    const auto found = others.find(option);
    if (found == others.end()) {
      if (!by_another) by_another = {option, value, "nothing"};
    } else if (found->second != value) {
      return OptionDifference{option, value, found->second};
    }
  }
  return by_another;
}

}  // namespace prunex::train
