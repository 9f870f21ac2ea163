// The sample inputs of a program, as torch.save writes them; compilers start from them.
#pragma once

#include <string>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::program {

/// The bytes of torch.save(((zeros(x0), zeros(x1), …), {})) for the graph's inputs with `batch` images.
std::string sample_inputs(const Graph& graph, int64_t batch);

}  // namespace prunex::program
