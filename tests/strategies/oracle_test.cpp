// H-SADMM against an independent Python implementation: every outer iteration of every oracle file, over TCP.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "prunex/comm/connect.h"
#include "prunex/sparsity/projection.h"
#include "tests/strategies/oracle_problem.h"
#include "tests/strategies/small_problem.h"

namespace prunex::oracle {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-9;

/// |ours - theirs| <= 1e-9 max(|theirs|, |z|), norms over one tensor.
void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double z_norm, const std::string& what) {
  const double gap = (ours - theirs).norm().item<double>();
  EXPECT_LE(gap, kTolerance * std::max({theirs.norm().item<double>(), z_norm, 1e-300})) << what;
}

at::Tensor mask_tensor(const json& entries) {
  return at::tensor(entries.get<std::vector<int64_t>>(), at::kLong).to(at::kBool);
}

/// One rank's run through all iterations of a file, compared after each.
class Comparison {
 public:
  Comparison(const json& oracle, comm::Hierarchy& ranks)
      : oracle_(oracle),
        ranks_(ranks),
        options_(options_of(oracle)),
        problem_(oracle, ranks.layout.node(), ranks.layout.local_rank()),
        replica_(problem_.initial_replica()),
        strategy_(strategies::make_hsadmm(replica_, ranks, options_)) {}

  void run() {
    for (const json& expected : oracle_["iterations"]) {
      const int64_t k = expected["k"];
      if (!oracle_["cfg"].value("keep_momentum", true)) {
        for (auto& velocity : replica_.optimizer["momentum"]) velocity.value().zero_();
      }
      problem_.local_phase(replica_, strategy_->local_terms());
      before_exchange_ = {};
      for (const auto& theta : replica_.weights.params) before_exchange_[theta.key()] = theta.value().detach().clone();
      const auto sent = ranks_.rail->traffic().bytes.payload;
      const auto exchange = strategy_->after_update(replica_, k * options_.local.steps);
      compare(expected, exchange, ranks_.rail->traffic().bytes.payload - sent);
    }
  }

 private:
  void compare(const json& expected, const strategies::Exchange& exchange, int64_t payload) {
    const std::string at_k = " after iteration " + expected["k"].dump();
    ASSERT_TRUE(exchange.exchanged) << at_k;
    EXPECT_EQ(exchange.frozen, expected["frozen"].get<bool>()) << at_k;
    EXPECT_EQ(exchange.mask_changes, expected["mask_changes"].get<int64_t>()) << at_k;
    for (const auto& mask : strategy_->masks()) {
      EXPECT_TRUE(mask.value().equal(mask_tensor(expected["masks"][mask.key()]))) << mask.key() << at_k;
    }
    const TensorDict state = merged(strategy_->state());
    const json& node_z = expected["zi"][ranks_.layout.node()];
    for (const auto& [name, entries] : expected["z"].items()) {
      const double z_norm = read_tensor(entries, shape_of(oracle_, name)).norm().item<double>();
      const auto check = [&](const std::string& room, const json& theirs) {
        const at::Tensor* ours = state.find(room + name);
        const at::Tensor want = read_tensor(theirs, shape_of(oracle_, name));
        if (ours != nullptr) return expect_close(*ours, want, z_norm, room + name + at_k);
        if (room != "z_node/") {
          EXPECT_EQ(want.norm().item<double>(), 0) << room << name << at_k;
        }
      };
      check("z/", entries);
      check("z_node/", node_z[name]);
      check("u/", expected["u"][ranks_.layout.node()][ranks_.layout.local_rank()][name]);
      compare_v(state, expected, name, z_norm);
      compare_theta(expected, name, state.find("u/" + name) != nullptr, z_norm);
    }
    for (const auto& [name, entries] : expected["z_buffers"].items()) {
      const at::Tensor theirs = read_tensor(entries, {static_cast<int64_t>(entries.size())});
      expect_close(state["z/" + name].to(at::kDouble), theirs, 0, name + at_k);
    }
    compare_penalties(expected, exchange, at_k);
    at::Tensor of_node = at::full({1}, payload, at::kLong);
    ranks_.node->all_reduce(of_node);
    EXPECT_EQ(of_node.item<int64_t>(), payload_of(expected, exchange)) << at_k;
  }

  /// Every rank keeps v of its own rows, one rank's after the other's.
  void compare_v(const TensorDict& state, const json& expected, const std::string& name, double z_norm) {
    const at::Tensor* ours = state.find("v/" + name);
    at::Tensor rows = at::empty({ranks_.node->size(), 1}, at::kLong);
    ranks_.node->all_gather(rows, at::full({1}, ours == nullptr ? 0 : ours->size(0), at::kLong));
    const at::Tensor want = read_tensor(expected["v"][ranks_.layout.node()][name], shape_of(oracle_, name));
    const std::string what = "v/" + name + " after iteration " + expected["k"].dump();
    if (rows.sum().item<int64_t>() == 0) {
      EXPECT_EQ(want.norm().item<double>(), 0) << what;
      return;
    }
    EXPECT_EQ(rows.sum().item<int64_t>(), want.size(0)) << what;
    if (ours == nullptr) return;
    const int64_t first = rows.slice(0, 0, ranks_.layout.local_rank()).sum().item<int64_t>();
    expect_close(*ours, want.narrow(0, first, ours->size(0)), z_norm, what);
  }

  /// A parameter that duals hold keeps its own theta; the strategy may already have restarted it from z.
  void compare_theta(const json& expected, const std::string& name, bool in_admm, double z_norm) {
    const auto shape = shape_of(oracle_, name);
    const json& theirs = expected["theta"][ranks_.layout.node()][ranks_.layout.local_rank()][name];
    at::Tensor ours = replica_.weights.params[name].detach();
    if (in_admm && options_.consensus.start_from == strategies::StartFrom::kZ) {
      ours = before_exchange_.at(name);
      if (expected["frozen"] && options_.masks.mask_theta) {
        const auto supports =
            sparsity::supports_of(options_.masks.groups, strategy_->masks(), strategy_->product().params);
        if (const auto* support = supports.find(name)) sparsity::apply_support(ours, *support);
      }
    }
    expect_close(ours, read_tensor(theirs, shape), z_norm, "theta " + name + " k " + expected["k"].dump());
  }

  void compare_penalties(const json& expected, const strategies::Exchange& exchange, const std::string& at_k) {
    for (const auto& [name, residuals] : exchange.residuals) {
      const json& theirs = expected["residuals"][name];
      // a residual that is exactly zero comes out as rounding noise on either side
      const double scale = strategy_->product().params[name].norm().item<double>();
      const auto check = [&](double ours, const char* key) {
        const double want = theirs[key];
        EXPECT_NEAR(ours, want, kTolerance * std::max(std::abs(want), scale)) << key << " " << name << at_k;
      };
      check(residuals.r_intra, "r_intra");
      check(residuals.s_intra, "s_intra");
      check(residuals.r_inter, "r_inter");
      check(residuals.s_inter, "s_inter");
    }
    const auto& terms = strategy_->local_terms();
    for (size_t t = 0; t < terms.anchor.size(); ++t) {
      const double next = expected["rho1_next"][terms.anchor.keys()[t]];
      EXPECT_NEAR(terms.rho1[t], next, kTolerance * next) << terms.anchor.keys()[t] << at_k;
    }
  }

  /// docs/communication.md: packed weights and batch norm in the run's type, one score (8 bytes) or mask byte per unit
  /// until the freeze is done, four norms (8 bytes each) per tensor in ADMM. The file counts 4 bytes per element.
  int64_t payload_of(const json& expected, const strategies::Exchange& exchange) {
    int64_t units = 0;
    for (const auto& group : options_.masks.groups) units += group.size;
    const bool united = options_.masks.rule == strategies::MaskRule::kUnion && !exchange.frozen;
    const bool deciding = !was_frozen_;
    was_frozen_ = exchange.frozen;
    const json& bytes = expected["bytes"];
    const int64_t elements = (bytes["bytes_packed"].get<int64_t>() + bytes["bytes_bn"].get<int64_t>()) / 4;
    return elements * 8 + (deciding ? units * (united ? 1 : 8) : 0) +
           static_cast<int64_t>(exchange.residuals.size()) * 4 * 8;
  }

  const json& oracle_;
  comm::Hierarchy& ranks_;
  strategies::HsadmmOptions options_;
  Problem problem_;
  Replica replica_;
  std::unique_ptr<strategies::Strategy> strategy_;
  std::map<std::string, at::Tensor> before_exchange_;
  bool was_frozen_ = false;
};

void compare_with(const std::filesystem::path& file) {
  SCOPED_TRACE(file.string());
  const json oracle = json::parse(std::ifstream(file));
  comm::run_ranks(oracle["cfg"]["M"], oracle["cfg"]["P"],
                  [&](comm::Hierarchy& ranks) { Comparison(oracle, ranks).run(); });
}

std::vector<std::filesystem::path> oracle_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FilesTest : public testing::Test {
 public:
  explicit FilesTest(std::vector<std::filesystem::path> files) : files_(std::move(files)) {}
  void TestBody() override {
    for (const auto& file : files_) compare_with(file);
  }

 private:
  std::vector<std::filesystem::path> files_;
};

void register_test(const std::string& name, const std::vector<std::filesystem::path>& files) {
  testing::RegisterTest("oracle", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [files]() -> FilesTest* { return new FilesTest(files); });
}

/// One test per shipped file, and one for all files of the folder that PRUNEX_ORACLES names.
const bool kRegistered = [] {
  for (const auto& file : oracle_files(std::filesystem::path(PRUNEX_TEST_DATA) / "oracles")) {
    register_test(file.stem(), {file});
  }
  const char* folder = std::getenv("PRUNEX_ORACLES");
  register_test("files_of_PRUNEX_ORACLES",
                folder == nullptr ? std::vector<std::filesystem::path>() : oracle_files(folder));
  return true;
}();

}  // namespace
}  // namespace prunex::oracle
