// The sub-commands, and the options that several of them have.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "prunex/models/models.h"
#include "prunex/program/pt2.h"
#include "prunex/text/option.h"

namespace CLI {
class App;
}

namespace prunex::comm {
struct ConnectOptions;
}
namespace prunex::train {
struct RankOptions;
}

namespace prunex::tools {

/// What main() was called with: a launcher starts the ranks with the same arguments.
struct Invocation {
  char** argv = nullptr;
};

struct Command {
  std::string name, help;
  text::OptionList options;  ///< bound to what `run` works with
  std::function<int()> run;  ///< the exit code, or an exception
  /// Between the command line and the checks: what files and presets say.
  std::function<void(text::OptionList&)> complete = {};
  bool last_wins = false;     ///< of an option that is given twice; else it is refused
  std::string examples = {};  ///< behind help, which then shows basic options first
};

/// Adds the command with its options. Once they are parsed, out of range or without effect, they are refused; what
/// `run` returns becomes `status`.
CLI::App& add_command(CLI::App& parent, Command command, int& status);

/// Each adds one.
void add_train(CLI::App& app, Invocation invocation, int& status);
void add_eval(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_graph(CLI::App& app, int& status);
void add_prune(CLI::App& app, int& status);
void add_bench(CLI::App& app, Invocation invocation, int& status);
void add_data(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);

/// Hidden commands that print what an installation has: completion for a shell, the manual page, docs/options.md.
void add_completion(CLI::App& app, int& status);
void add_man_page(CLI::App& app, int& status);
void add_options_page(CLI::App& app, int& status);

/// Takes what the TOML file `path` says for options of `command` that were not given yet; returns all that it says.
/// Throws std::invalid_argument that names `option`, which named the file, and the path.
std::string apply_file(text::OptionList& list, const std::string& command, const std::string& option,
                       const std::string& path);

/// "prunex NAME WORD …" with every other option that was given: what one types to do the same again. `words`: of the
/// option that must be.
std::string line_of(const std::string& name, const std::vector<std::string>& words, const text::OptionList& list);

/// Throws std::invalid_argument if two options name one file, which the first would overwrite. Empty: not given.
void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path);

/// Throws std::invalid_argument, before the work, if a file of that name cannot be made: it is a folder, or its own
/// folder is missing; or if it would be named as images and shards are, and might replace one. Empty: not given.
void expect_output(const char* option, const std::string& path);

/// The same for a text, which is not named as tensors, programs and configurations are, either.
void expect_text_output(const char* option, const std::string& path);

/// Every command has it, so that scripts may say it to all.
void describe_quiet(text::OptionList& list, bool& quiet);

/// How ranks are connected.
comm::ConnectOptions connect_options(const train::RankOptions& ranks);

/// Throws std::invalid_argument for a device that is not there. CUDA starts threads: not before signals are blocked
/// that this process waits for.
void expect_device(const comm::ConnectOptions& options);

/// device: where a command of one process computes.
void describe_device(text::OptionList& list, std::string& device);
/// The CPU, or the first GPU, whose products are fp32's as on the CPU. Throws as check_gpu does.
c10::Device chosen_device(const std::string& device);

/// A network that a command works with.
struct ModelChoice {
  std::string model;
  int64_t max_model_size = 0;  ///< MiB; 0: eight times the file
  std::string input;           ///< 1x3x224x224; empty: what the network was made for
  int64_t classes = 0;         ///< 0: what the network was made for
  double width = 1;
  models::Norm norm = models::Norm::kBatch;
  uint64_t seed = 0;
};

/// model, max-model-size, classes, width, norm.
void describe_model(text::OptionList& list, ModelChoice& choice);
/// input: a shape.
void describe_input(text::OptionList& list, ModelChoice& choice);
/// max-model-size, of program::read_pt2().
void describe_model_limit(text::OptionList& list, int64_t& mebibytes, std::vector<text::Condition> conditions = {});

/// Reads the file or builds the network; std::invalid_argument names the option.
program::Model load_model(const ModelChoice& choice, program::Batch batch = program::Batch::kDynamic);

/// Whether nobody trained them: of a built-in network, unless the file `weights` has some.
bool has_random_weights(const ModelChoice& choice, const std::string& weights);

}  // namespace prunex::tools
