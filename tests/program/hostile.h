// Files as a stranger may send them.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace prunex::program {

/// The records of a .pt2 file by their names without the root folder.
using Records = std::map<std::string, std::string>;
Records records_of(const std::string& path);

/// A zip file of these records in the folder "net", with right checksums; compressed ones are deflated.
std::string pack(const Records& records, bool compressed = false);

/// Changes a record that is JSON.
void edit(Records& records, const std::string& record, const std::function<void(nlohmann::json&)>& change);

/// A node of models/model.json with one tensor as its result, which is recorded as `like` is. Arguments by name.
using Arguments = std::vector<std::pair<std::string, nlohmann::json>>;
nlohmann::json make_node(const std::string& target, const Arguments& arguments, const std::string& output);
void add_node(nlohmann::json& document, const nlohmann::json& node, const std::string& like, size_t at = 0);

/// Replaces, removes, doubles or exchanges a part of a document that `random` chooses.
void mutate(nlohmann::json& document, std::mt19937& random);

/// Text of a library or a compiler where a person should read a sentence: a stack trace, a name of the standard
/// library.
bool speaks_foreign(const std::string& error);

}  // namespace prunex::program
