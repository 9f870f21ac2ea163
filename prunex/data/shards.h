// Tar files in WebDataset's layout.
#pragma once

#include <string>
#include <vector>

#include "prunex/data/encoded_images.h"

namespace prunex::data {

/// "train-{0000..0099}.tar" and "{a,b}.tar" written out as a shell does, in this order; other text as it is.
/// std::invalid_argument names `option` for braces that are none, or more than 100,000 names.
std::vector<std::string> expand_braces(const std::string& pattern, const std::string& option);

/// Samples KEY.jpg (.jpeg, .png, .webp) with KEY.cls, a label in digits; other members of the key are not read. A KEY
/// ends at the first dot of a file's name, its members lie one behind the other, one image and one label of each. In
/// the order of the files and of their members. Classes have no names, but as many as the largest label says. What
/// SHARD.index says, if there is one with the shard's time, is not read from SHARD. std::invalid_argument names
/// `option` and the file that is not so, damaged or cut short.
Listing list_shards(const std::string& pattern, const std::string& option);

/// Writes SHARD.index beside each, with the time of its shard. Returns the number of samples. Throws likewise, and for
/// a key with a line break.
int64_t write_shard_indices(const std::string& pattern, const std::string& option);

}  // namespace prunex::data
