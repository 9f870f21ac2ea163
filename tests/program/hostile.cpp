#include "tests/program/hostile.h"

#include <caffe2/serialize/inline_container.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace prunex::program {
namespace {

using nlohmann::json;

constexpr const char* kFolder = "net/";

/// Every value inside a document, the document itself first.
void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (auto& child : value) collect(child, all);
}

json strange_value(std::mt19937& random) {
  static const std::array<json, 19> kValues{json(nullptr),
                                            json(true),
                                            json(0),
                                            json(-1),
                                            json(1),
                                            json(3),
                                            json(7),
                                            json(INT64_MAX),
                                            json(INT64_MIN),
                                            json(UINT64_MAX),
                                            json(1e308),
                                            json(0.5),
                                            json(""),
                                            json("x"),
                                            json::array(),
                                            json::object(),
                                            json::array({1, 2}),
                                            json{{"as_int", -4}},
                                            json{{"as_none", true}}};
  return kValues[random() % kValues.size()];
}

}  // namespace

Records records_of(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  Records records;
  for (const auto& name : reader.getAllRecords()) {
    const auto [data, size] = reader.getRecord(name);
    records[name] = std::string(static_cast<const char*>(data.get()), size);
  }
  return records;
}

std::string pack(const Records& records, bool compressed) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* target = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_source_keep(target);
  zip_t* zip = zip_open_from_source(target, ZIP_TRUNCATE, &error);
  if (!zip) throw std::runtime_error(zip_error_strerror(&error));
  for (const auto& [name, bytes] : records) {
    zip_source_t* source = zip_source_buffer(zip, bytes.data(), bytes.size(), 0);
    const auto index = zip_file_add(zip, (kFolder + name).c_str(), source, ZIP_FL_ENC_UTF_8);
    zip_set_file_compression(zip, static_cast<zip_uint64_t>(index), compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
  }
  if (zip_close(zip) != 0) throw std::runtime_error(zip_strerror(zip));
  zip_stat_t stat;
  zip_source_stat(target, &stat);
  std::string packed(stat.size, '\0');
  zip_source_open(target);
  zip_source_read(target, packed.data(), packed.size());
  zip_source_close(target);
  zip_source_free(target);
  return packed;
}

void edit(Records& records, const std::string& record, const std::function<void(json&)>& change) {
  auto document = json::parse(records.at(record));
  change(document);
  records[record] = document.dump();
}

json make_node(const std::string& target, const Arguments& arguments, const std::string& output) {
  json inputs = json::array();
  for (const auto& [name, value] : arguments) inputs.push_back({{"name", name}, {"arg", value}, {"kind", 2}});
  return {{"target", "torch.ops." + target},
          {"inputs", inputs},
          {"outputs", json::array({{{"as_tensor", {{"name", output}}}}})},
          {"metadata", json::object()},
          {"name", output}};
}

void add_node(json& document, const json& node, const std::string& like, size_t at) {
  auto& graph = document["graph_module"]["graph"];
  graph["nodes"].insert(graph["nodes"].begin() + static_cast<std::ptrdiff_t>(at), node);
  graph["tensor_values"][node.at("name").get<std::string>()] = graph["tensor_values"][like];
}

void mutate(json& document, std::mt19937& random) {
  std::vector<json*> all;
  collect(document, all);
  json& place = *all[random() % all.size()];
  switch (random() % 5) {
    case 0:
      if (place.is_array() && !place.empty()) return void(place.erase(random() % place.size()));
      if (place.is_object() && !place.empty()) {
        return void(place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(random() % place.size()))));
      }
      break;
    case 1:
      if (place.is_array() && !place.empty()) return place.push_back(json(place[random() % place.size()]));
      break;
    case 2:
      if (place.is_number_integer()) {
        place = place.get<int64_t>() + static_cast<int64_t>(random() % 7) - 3;
        return;
      }
      break;
    case 3: {
      const json other = *all[random() % all.size()];  // a copy: it may hold the place, or lie in it
      if (other.type() == place.type()) {
        place = other;
        return;
      }
      break;
    }
    default:
      break;
  }
  place = strange_value(random);
}

bool speaks_foreign(const std::string& error) {
  constexpr std::array kForeign{
      "\n",      "_M_",       "std::",     "c10::", "vector", "basic_string", "Exception raised from",
      "frame #", "bad_alloc", "terminate", "[json."};
  return std::any_of(kForeign.begin(), kForeign.end(),
                     [&](const char* text) { return error.find(text) != std::string::npos; });
}

}  // namespace prunex::program
