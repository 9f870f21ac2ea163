// What a module loses for good.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "prunex/sparsity/cut.h"
#include "prunex/train/product.h"
#include "python/src/bindings.h"
#include "python/src/tensors.h"

namespace prunex::python {
namespace {

using sparsity::Cut;
using Kept = std::map<int64_t, std::vector<int64_t>>;

at::Tensor applied(const Cut& cut, const std::string& name, const at::Tensor& tensor) {
  const auto found = cut.tensors.find(name);
  if (found == cut.tensors.end()) throw std::invalid_argument("cut: there is no tensor " + name);
  const at::NoGradGuard no_grad;
  return sparsity::slice(tensor.detach(), found->second, name);
}

std::map<std::string, Kept> kept_of(const Cut& cut) {
  std::map<std::string, Kept> kept;
  for (const auto& [name, tensor] : cut.tensors) {
    if (!tensor.kept.empty()) kept[name] = tensor.kept;
  }
  return kept;
}

// As plain values, for checkpoints: what torch.load takes from a stranger.

nb::dict values_of(const Cut& cut) {
  nb::dict tensors, groups, values;
  for (const auto& [name, tensor] : cut.tensors) tensors[name.c_str()] = nb::make_tuple(tensor.shape, tensor.kept);
  for (const auto& group : cut.groups) {
    groups[group.name.c_str()] =
        nb::make_tuple(group.size, group.kept, group.place.tensor, group.place.axis, group.place.index);
  }
  values["tensors"] = tensors;
  values["groups"] = groups;
  return values;
}

Cut checked_cut_of(const nb::dict& values) {
  Cut cut;
  for (const auto& [name, value] : nb::cast<nb::dict>(values["tensors"])) {
    const auto tensor = nb::cast<nb::sequence>(value);
    cut.tensors[nb::cast<std::string>(name)] = {nb::cast<std::vector<int64_t>>(tensor[0]), nb::cast<Kept>(tensor[1])};
  }
  for (const auto& [name, value] : nb::cast<nb::dict>(values["groups"])) {
    const auto group = nb::cast<nb::sequence>(value);
    cut.groups.push_back({nb::cast<std::string>(name), nb::cast<int64_t>(group[0]),
                          nb::cast<std::vector<int64_t>>(group[1]),
                          sparsity::Slice{nb::cast<std::string>(group[2]), nb::cast<int64_t>(group[3]),
                                          nb::cast<std::vector<int64_t>>(group[4])}});
  }
  return cut;
}

Cut cut_of(const nb::dict& values) {
  try {
    return checked_cut_of(values);
  } catch (const std::exception&) {  // a key that is missing, a value of another type
    throw std::invalid_argument("`cut`: a dictionary that is not a cut's values()");
  }
}

/// The cut that a run or `prunex prune` recorded, `heads` and `statistics`.
nb::tuple cut_of_structure(const std::string& text) {
  const train::Structure structure = train::parse_structure(text);
  return nb::make_tuple(structure.cut, structure.groups.heads, structure.groups.statistics);
}

}  // namespace

void bind_cuts(nb::module_& module) {
  nb::class_<Cut>(module, "Cut", "What is removed for good: the same for module, optimizer and strategy.")
      .def("empty", &Cut::empty, "Whether nothing is removed.")
      .def("kept", &kept_of, "Of tensors that lose something: the positions that stay, by axis.")
      .def(
          "apply",
          [](const Cut& cut, const std::string& name, nb::handle tensor) {
            return to_python(applied(cut, name, tensor_of(tensor)));
          },
          nb::sig("def apply(self, name: str, tensor: torch.Tensor) -> torch.Tensor"), nb::arg("name"),
          nb::arg("tensor"), "What is left of a tensor of this name, or of its likeness: a new one.")
      .def("values", &values_of, nb::sig("def values(self) -> dict[str, dict[str, tuple[object, ...]]]"),
           "As plain values, for torch.save.")
      .def("__getstate__", &values_of, nb::sig("def __getstate__(self) -> dict[str, dict[str, tuple[object, ...]]]"))
      .def(
          "__setstate__", [](Cut& self, const nb::dict& values) { new (&self) Cut(cut_of(values)); },
          nb::sig("def __setstate__(self, values: dict[str, dict[str, tuple[object, ...]]]) -> None"),
          nb::arg("values"))
      .def("__repr__", [](const Cut& cut) { return fmt::format("<prunex.Cut of {} tensors>", kept_of(cut).size()); })
      .def_static("of_values", &cut_of, nb::arg("values"),
                  nb::sig("def of_values(values: dict[str, dict[str, tuple[object, ...]]]) -> Cut"))
      .def_static("of_structure", &cut_of_structure, nb::arg("text"),
                  nb::sig("def of_structure(text: str) -> tuple[Cut, bool, bool]"),
                  "Of the text of a structure.json; and its `heads` and `statistics`.");
}

}  // namespace prunex::python
