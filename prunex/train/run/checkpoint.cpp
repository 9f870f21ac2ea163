#include "prunex/train/run/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/data/load.h"
#include "prunex/io/files.h"
#include "prunex/io/safetensors.h"
#include "prunex/text/option.h"
#include "prunex/text/settings.h"
#include "prunex/train/elastic/elastic.h"
#include "prunex/train/elastic/handover.h"
#include "prunex/train/tensor_hash.h"

namespace prunex::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNone = 0;

// Entries of metadata: what tells the files of one save from those of another, and of z how many nodes took part.
constexpr const char *kSaved = "saved", *kNodes = "nodes", *kNodeSizes = "node_sizes";

/// Exchanges with a folder of their own, ascending.
std::vector<int64_t> exchanges_in(const std::string& directory) {
  std::set<int64_t> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory, missing)) {
    const std::string name = entry.path().filename();
    int64_t exchange = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), exchange);
    if (error == std::errc() && end == name.data() + name.size()) found.insert(exchange);
  }
  return {found.begin(), found.end()};
}

const std::string& entry_of(const io::SafeTensors& file, const std::string& key, const std::string& path) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) throw std::runtime_error(fmt::format("{} has no {}: no checkpoint", path, key));
  return found->second;
}

/// `found`: the newest one up to that exchange.
[[noreturn]] void refuse_without_checkpoint(const fs::path& checkpoints, int64_t exchange, int64_t found) {
  if (found == kNone && fs::exists(checkpoints.parent_path() / "summary.json")) {
    throw std::invalid_argument(fmt::format("`resume`: got {}, a run that is finished and has no checkpoint to repeat",
                                            checkpoints.parent_path().string()));
  }
  throw std::invalid_argument(
      exchange == 0 ? fmt::format("`resume`: {} in {}", kNoCheckpoint, checkpoints.string())
                    : fmt::format("`resume_exchange` {}: {} in {}", exchange, kNoCheckpoint, checkpoints.string()));
}

/// Whether a folder has every kind of file of a checkpoint, as far as is seen here.
bool has_all_kinds(const std::string& folder) {
  std::set<std::string> kinds;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".safetensors")) kinds.insert(name.substr(0, name.find_first_of("-.")));
  }
  return kinds == std::set<std::string>{"node", "rank", "z"};
}

/// Whether a data set is of folders or shards, be they there or not.
bool may_move(const std::string& set) {
  const auto names = data::set_names();
  const bool is_built_in = std::find(names.begin(), names.end(), set) != names.end();
  return !set.empty() && !is_built_in && !set.ends_with(".safetensors");
}

/// `saved`, but where its folders or shards of images are now: what these hold is compared by itself.
std::string with_moved_images(const std::string& saved, const std::string& config) {
  std::map<std::string, std::string> now;
  for (const auto& setting : text::read_settings(config, "configuration")) now[setting.name] = setting.value;
  std::string lines;
  for (const auto& [name, value, kind, line] : text::read_settings(saved, "configuration")) {
    const bool moved = (name == "dataset" || name == "test") && may_move(value) && may_move(now[name]);
    lines += text::setting_line(name, moved ? now[name] : value);
  }
  return lines;
}

/// An entry of a file's metadata; "" if the file or the entry is missing, nothing if it is damaged.
std::optional<std::string> entry_in(const std::string& path, const std::string& key) {
  if (!fs::exists(path)) return "";
  try {
    const auto metadata = io::read_safetensors_metadata(path);
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : found->second;
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace

void check_same_options(const std::string& saved, const std::string& config, const std::string& run_directory,
                        Among among) {
  const auto differs = first_difference(config, with_moved_images(saved, config), among);
  if (!differs) return;
  const bool longer =
      (differs->option == "exchanges" || differs->option == "epochs") && fs::exists(run_directory + "/model.pt2");
  throw std::invalid_argument(fmt::format(
      "{}: got {}, the run in {} had {}{}", text::field_name(differs->option), differs->one, run_directory,
      differs->other,
      longer ? ", by which its rates go; a run with `model` " + run_directory + "/model.pt2 trains its product on"
             : ""));
}

const at::Tensor* checksum_in(const Checkpoint& checkpoint, const std::string& name) {
  const at::Tensor* of_node = checkpoint.node.find(name);
  return of_node != nullptr ? of_node : checkpoint.rank.find(name);
}

Checkpoints::Checkpoints(std::string run_directory, std::string config, comm::Hierarchy& ranks, bool elastic)
    : directory_(std::move(run_directory) + "/checkpoint"),
      config_(std::move(config)),
      ranks_(ranks),
      elastic_(elastic) {}

std::string Checkpoints::folder(int64_t exchange) const {
  return fmt::format("{}/{}", directory_, exchange);
}

std::string Checkpoints::config_file() const {
  return fs::path(directory_).replace_filename("config.toml");
}

std::string Checkpoints::product_file(int64_t exchange) const {
  return folder(exchange) + "/z.safetensors";
}

std::string Checkpoints::node_file(int64_t exchange, int node) const {
  return fmt::format("{}/node-{}.safetensors", folder(exchange), node);
}

std::string Checkpoints::rank_file(int64_t exchange, int rank) const {
  return fmt::format("{}/rank-{}.safetensors", folder(exchange), rank);
}

bool Checkpoints::has_own(int64_t exchange) const {
  return has_share(exchange, ranks_.layout.node(), ranks_.layout.rank);
}

/// Written with the z that is here: a run that went on from an earlier one may have left a folder of this name. A file
/// that is damaged counts, so that load() names it.
bool Checkpoints::has_share(int64_t exchange, int node, int rank) const {
  const auto saved = entry_in(product_file(exchange), kSaved);
  const auto is_of_it = [&](const std::string& path) {
    const auto own = entry_in(path, kSaved);
    return fs::exists(path) && (!own || !saved || *own == *saved);
  };
  return is_of_it(node_file(exchange, node)) && is_of_it(rank_file(exchange, rank));
}

std::optional<std::string> Checkpoints::save(const Checkpoint& checkpoint, const std::string& problem) {
  std::string why = problem;
  const std::string saved = name_of_save(checkpoint.product);
  try {
    if (why.empty()) write_files(checkpoint, saved);
  } catch (const std::runtime_error& error) {
    why = error.what();
  }
  std::optional<int> failed;
  try {
    failed = first_with(why);
  } catch (const std::runtime_error&) {
    if (elastic_) remove(checkpoint.exchange);  // not all that go on can know whether it is whole
    throw;
  }
  if (!failed) {
    remove_others(checkpoint.exchange);
    whole_ = checkpoint.exchange;
    return std::nullopt;
  }
  remove(checkpoint.exchange);
  return *failed == ranks_.layout.rank ? why : "";
}

/// The same on all ranks, another one for another z. Comes when all have ended the save before, and removed what it
/// replaced.
std::string Checkpoints::name_of_save(const TensorDict& product) {
  const bool says = ranks_.layout.rank == 0;
  return comm::gather_texts(*ranks_.world, says ? fmt::format("{:016x}", hash_of(product, TensorDict())) : "").front();
}

/// The first rank that has a problem.
std::optional<int> Checkpoints::first_with(const std::string& problem) {
  const auto problems = comm::gather_texts(*ranks_.world, problem);
  const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& one) { return !one.empty(); });
  if (first == problems.end()) return std::nullopt;
  return static_cast<int>(first - problems.begin());
}

std::optional<std::string> Checkpoints::saved_config() const {
  std::ifstream file(config_file());
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

/// Not that of a run which had a directory of this name on this machine before.
bool Checkpoints::has_config() const {
  const auto saved = saved_config();
  try {
    if (saved) check_same_options(*saved, config_, config_file());
    return saved.has_value();
  } catch (const std::invalid_argument&) {
    return false;
  }
}

bool Checkpoints::is_taken() const {
  const fs::path run = fs::path(directory_).parent_path();
  std::error_code error;
  if (!fs::exists(run, error) || (fs::is_directory(run, error) && fs::is_empty(run, error))) return false;
  return !has_config() || fs::exists(directory_) || is_done(run);
}

void Checkpoints::write_files(const Checkpoint& checkpoint, const std::string& saved) const {
  const int64_t k = checkpoint.exchange;
  fs::create_directories(folder(k));
  const io::Metadata metadata{{"config", config_}, {"exchange", std::to_string(k)}, {kSaved, saved}};
  if (ranks_.layout.local_rank() == 0) {
    io::Metadata with_progress = metadata;
    with_progress["structure"] = checkpoint.structure;
    with_progress["progress"] = checkpoint.progress;
    with_progress[kNodes] = std::to_string(ranks_.layout.nodes());
    with_progress[kNodeSizes] = fmt::format("{}", fmt::join(ranks_.layout.node_sizes, ","));
    io::write_safetensors(product_file(k), checkpoint.product, with_progress);
    io::write_safetensors(node_file(k, ranks_.layout.node()), checkpoint.node, metadata);
    // resuming reads it on every machine, and the run's own is where rank 0 is
    if (!has_config()) io::write_file_atomically(config_file(), config_);
  }
  io::Metadata with_own_progress = metadata;  // the nodes write one product where they share a file system
  with_own_progress["progress"] = checkpoint.progress;
  io::write_safetensors(rank_file(k, ranks_.layout.rank), checkpoint.rank, with_own_progress);
}

/// What a rank that was killed in save() left: files under construction, and folders that lack a kind of file. Those
/// that lack this rank's files alone may be whole for ranks that are started in another order.
void Checkpoints::remove_leftovers() const {
  if (ranks_.layout.local_rank() != 0) return;
  std::error_code ignored;
  for (const int64_t k : exchanges_in(directory_)) {
    io::remove_temporaries(folder(k));
    if (!is_whole(k)) fs::remove_all(folder(k), ignored);
  }
}

void Checkpoints::remove(int64_t exchange) const {
  if (ranks_.layout.local_rank() != 0) return;
  std::error_code ignored;  // ranks of several nodes may remove the same folder
  fs::remove_all(folder(exchange), ignored);
}

/// Keeps this one and the whole one before. Of what others have left nobody knows here whether all ranks have it.
void Checkpoints::remove_others(int64_t exchange) const {
  int64_t before = whole_.value_or(kNone);
  const auto all = exchanges_in(directory_);
  for (const int64_t k : all) {
    if (!whole_ && k < exchange && is_whole(k)) before = k;
  }
  for (const int64_t k : all) {
    if (k != exchange && k != before) remove(k);
  }
}

/// Where nodes were lost, the share that this rank wrote may have another rank's number.
bool Checkpoints::is_whole(int64_t exchange) const {
  return has_all_kinds(folder(exchange));
}

/// A node that did not take part begins with what node 0 has; without the share of one that did, nothing is whole.
bool Checkpoints::complete_here(int64_t exchange) const {
  const std::string product = product_file(exchange);
  if (!fs::exists(product)) return false;
  if (has_own(exchange)) return true;
  const std::string nodes = entry_in(product, kNodes).value_or("");
  const bool took_part = text::number_in<int64_t>(nodes).value_or(0) > ranks_.layout.node();
  return elastic_ && !took_part && has_share(exchange, 0, ranks_.layout.local_rank());
}

int64_t Checkpoints::newest_here(int64_t at_most) const {
  int64_t newest = kNone;
  for (int64_t k : exchanges_in(directory_)) {
    if (k <= at_most && complete_here(k)) newest = k;
  }
  return newest;
}

int64_t Checkpoints::smallest(int64_t mine) {
  at::Tensor negative = at::full({1}, -mine, at::kLong);
  ranks_.world->all_reduce(negative, comm::Reduce::kMax);
  return -negative.item<int64_t>();
}

/// The newest one, up to that exchange, of one save that all ranks have.
int64_t Checkpoints::newest_of_all(int64_t at_most) {
  int64_t k = at_most;
  for (int64_t before = -1; k != before;) {
    before = k;
    k = smallest(newest_here(k));
  }
  return k == kNone || is_of_one_save(k) ? k : newest_of_all(k - 1);
}

/// What is on one machine may be of another save than what is on the next. A damaged file says nothing.
bool Checkpoints::is_of_one_save(int64_t exchange) {
  const std::string damaged = "?";
  auto saves = comm::gather_texts(*ranks_.world, entry_in(product_file(exchange), kSaved).value_or(damaged));
  std::erase(saves, damaged);
  return std::adjacent_find(saves.begin(), saves.end(), std::not_equal_to<>()) == saves.end();
}

/// Before looking for files: of another layout there are none.
void Checkpoints::check_options() const {
  const auto saved = saved_config();
  if (saved && !config_.empty()) check_same_options(*saved, config_, fs::path(directory_).parent_path());
}

/// Files go by the numbers of nodes and ranks, which are others once a node is lost: of nodes of one size any will do.
void Checkpoints::expect_nodes(int64_t exchange) const {
  const auto own = fmt::format("{}", fmt::join(ranks_.layout.node_sizes, ","));
  const auto sizes_in = [&](int64_t k) { return entry_in(product_file(k), kNodeSizes).value_or(""); };
  const auto saved = sizes_in(exchange);
  const auto sizes = text::parts_of(saved, ',');
  const bool of_one_size = std::set(sizes.begin(), sizes.end()).size() == 1 && ranks_.layout.is_even();
  if (saved.empty() || saved == own || of_one_size) return;
  std::string way_out;
  for (const int64_t k : exchanges_in(directory_)) {
    if (k < exchange && sizes_in(k) == own) way_out = fmt::format("; `resume_exchange` {} goes on from before that", k);
  }
  throw std::invalid_argument(
      fmt::format("{}: was saved by nodes of {} ranks after others were lost, from which nodes of {} cannot go on{}",
                  folder(exchange), saved, own, way_out));
}

void expect_checkpoint(const std::string& run_directory, int64_t exchange) {
  const std::string directory = run_directory + "/checkpoint";
  int64_t newest = kNone;
  for (const int64_t k : exchanges_in(directory)) {
    if ((exchange == 0 || k <= exchange) && has_all_kinds(fmt::format("{}/{}", directory, k))) newest = k;
  }
  if (newest == kNone || (exchange != 0 && newest != exchange)) refuse_without_checkpoint(directory, exchange, newest);
}

Checkpoint Checkpoints::load(int64_t exchange) {
  check_options();
  remove_leftovers();
  const int64_t k = newest_of_all(exchange != 0 ? exchange : std::numeric_limits<int64_t>::max());
  if (k == kNone || (exchange != 0 && k != exchange)) refuse_without_checkpoint(directory_, exchange, k);
  try {
    const io::SafeTensors product = io::read_safetensors(product_file(k));
    check_same_options(entry_of(product, "config", product_file(k)), config_, directory_);
    expect_nodes(k);
    const bool own = has_own(k);  // else node 0's, of which a newcomer keeps what all have
    const auto& layout = ranks_.layout;
    const std::string of_rank = rank_file(k, own ? layout.rank : layout.local_rank());
    const io::SafeTensors rank = io::read_safetensors(of_rank);
    Checkpoint checkpoint{.exchange = k,
                          .product = product.tensors,
                          .node = io::read_safetensors(node_file(k, own ? layout.node() : 0)).tensors,
                          .rank = rank.tensors,
                          .structure = entry_of(product, "structure", product_file(k)),
                          .progress = entry_of(own ? rank : product, "progress", own ? of_rank : product_file(k))};
    if (!own) forget_own(checkpoint);
    whole_ = k;
    return checkpoint;
  } catch (const std::runtime_error& damaged) {
    const int64_t earlier = newest_here(k - 1);
    const std::string way_out =
        earlier == kNone ? "" : fmt::format("; `resume_exchange` {} goes on from the one before", earlier);
    throw std::runtime_error(damaged.what() + way_out);
  }
}

}  // namespace prunex::train
