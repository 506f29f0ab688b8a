// Whatever adds up thousands of values, an operator or its derivative, does so in float. Arguments
// are drawn from the schemas of all overloads and made large; those whose results or gradients are
// then sums of thousands in float have to be so at every level.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "casting/sweep/drawing.h"
#include "casting/sweep/enlarging.h"
#include "casting/sweep/isolated.h"
#include "casting/sweep/recipes.h"
#include "casting/sweep/trial.h"
#include "mezzo/hardware.h"

namespace mezzo::casting::sweep {
namespace {

constexpr int kSumDrawings = 150;
constexpr int kSumSamples = 3;
constexpr int kLarge = 16;  // trials of each

/// A sum that stalls in bfloat16 long before this; far inside the range of float16.
constexpr double kLarger = 1500;
constexpr double kSmaller = 30000;
constexpr double kTolerance = 0.1;
// Drawn sizes can make expanded tensors that no memory holds densely.
constexpr std::int64_t kMostCompared = std::int64_t{1} << 25;
constexpr std::int64_t kMostDimensions = 64;  // that LibTorch's reductions take

/// Derivatives' own functions, which programs do not call, and optimizers' kernels.
bool is_inner(std::string_view overload) {
  return overload.find("backward") != std::string_view::npos || overload.starts_with("_fused_") ||
         overload.find("mkldnn") != std::string_view::npos ||
         overload.find("batch_norm") != std::string_view::npos;
}

/// Not determined for ones: eigenvectors of equal eigenvalues, bases of columns that are all alike,
/// norms of a dimension in the middle, memory that nobody wrote.
bool is_no_number_of_ones(std::string_view overload) {
  static const std::set<std::string_view> bases{"_linalg_eigh", "_linalg_svd", "linalg_eigh",
                                                "linalg_eig",   "linalg_qr",   "linalg_svd",
                                                "qr",           "svd"};
  return bases.contains(overload) || overload.starts_with("_weight_norm") ||
         overload.find("empty") != std::string_view::npos;
}

/// LibTorch's own float16 convolution, for processors that have no such arithmetic, adds up the
/// weights' gradients of a batch in float16. Programs meet it only where they ask for
/// ComputeMode::kNative, as this test does: a processor that measures chooses float there.
bool is_slow_convolution(std::string_view overload, std::string_view failure) {
  return overload.starts_with("conv") && failure.starts_with("float16") &&
         failure.ends_with("a gradient");
}

at::Tensor values_of(const at::Tensor& tensor) {
  // A sparse tensor adds up what has one place when it becomes dense.
  return tensor.detach().to(at::kDouble).to_dense();
}

bool is_comparable(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || !a.is_floating_point() || a.is_nested()) return false;
  const bool shows_values =
      a.layout() == at::kSparse || (a.layout() == at::kStrided && a.has_storage());
  return shows_values && a.sizes() == b.sizes() && a.numel() > 0 && a.numel() <= kMostCompared &&
         a.dim() <= kMostDimensions;
}

/// Where float has large sums.
at::Tensor sums_in(const at::Tensor& values) {
  const at::Tensor size = values.abs();
  return (size > kLarger).logical_and(size < kSmaller);
}

bool has_sums(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& each : tensors) {
    if (is_comparable(each, each) && sums_in(values_of(each)).any().item<bool>()) return true;
  }
  return false;
}

bool loses_sums(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (!is_comparable(ours[i], theirs[i])) continue;
    const at::Tensor expected = values_of(theirs[i]);
    const at::Tensor far = (values_of(ours[i]) - expected).abs() > kTolerance * expected.abs();
    if (far.logical_and(sums_in(expected)).any().item<bool>()) return true;
  }
  return false;
}

void try_large(const c10::OperatorHandle& op, const Stack& stack,
               const std::function<void(const std::string&)>& tell) {
  const Types all_float = [](std::size_t) { return at::kFloat; };
  const Outcome expected = call(op, stack, all_float, /*with_gradients=*/true);
  if (!expected.error.empty()) return;
  if (!has_sums(expected.results) && !has_sums(expected.gradients)) return;
  tell("sum");
  for (const at::ScalarType low : {at::kBFloat16, at::kHalf}) {
    set_compute_mode(low, ComputeMode::kNative);
    for (const Mode mode : {Mode::kOperators, Mode::kWholeModel}) {
      const Types all_low = [low](std::size_t) { return low; };
      const Outcome got = call(op, stack, all_low, true, Policy::defaults(low), mode);
      const std::string where = std::string(low == at::kHalf ? "float16" : "bfloat16") +
                                (mode == Mode::kOperators ? ", operators: " : ", whole model: ");
      if (!got.error.empty()) continue;  // the other sweep's
      if (loses_sums(got.results, expected.results)) return tell("failed " + where + "a result");
      if (loses_sums(got.gradients, expected.gradients))
        return tell("failed " + where + "a gradient");
    }
  }
}

void try_sums(const std::string& name, const c10::OperatorHandle& op,
              const std::function<void(const std::string&)>& tell) {
  const Types all_float = [](std::size_t) { return at::kFloat; };
  Drawing drawing(name, 0);
  Enlarging enlarging(name);
  int samples = 0;
  const auto sample = [&](const Stack& small) {
    if (count_floats(small) == 0) return;
    if (!call(op, small, all_float, /*with_gradients=*/false).error.empty()) return;
    ++samples;
    for (int i = 0; i < kLarge; ++i) {
      if (const auto large = enlarging.enlarge(op.schema(), small)) try_large(op, *large, tell);
    }
  };
  for (const Stack& stack : recipes_for(name)) sample(stack);
  for (int i = 0; i < kSumDrawings && samples < kSumSamples; ++i) {
    const std::optional<Stack> stack = drawing.draw(op.schema());
    if (!stack) break;
    sample(*stack);
  }
}

struct SumsTried {
  bool sums = false;
  std::string failure;
};

SumsTried sums_tried(const std::string& name, const c10::OperatorHandle& op) {
  SumsTried all;
  const Isolated run =
      isolated(std::chrono::seconds(30), [&](const auto& tell) { try_sums(name, op, tell); });
  std::istringstream lines(run.said);
  for (std::string line; std::getline(lines, line);) {
    all.sums = all.sums || line == "sum";
    if (line.starts_with("failed ") && all.failure.empty()) all.failure = line.substr(7);
    if (line.starts_with("threw ") && all.failure.empty()) all.failure = line;
  }
  return all;
}

TEST(SumsSweep, EveryOverloadThatAddsUpManyValuesDoesSoInFloat) {
  at::set_num_threads(1);
  std::fflush(stdout);
  std::vector<std::string> failures;
  std::vector<std::string> adding;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::")) continue;
    std::string overload = name.name.substr(std::string_view("aten::").size());
    if (!name.overload_name.empty()) overload += "." + name.overload_name;
    const bool is_out = std::ranges::any_of(
        op->schema().arguments(), [](const c10::Argument& each) { return each.is_out(); });
    if (is_out || is_inner(overload) || op->hasTag(at::Tag::nondeterministic_seeded)) continue;
    if (c10::toString(op->schema()).find("Tensor") == std::string::npos) continue;
    const SumsTried one = sums_tried(overload, *op);
    if (one.sums) adding.push_back(overload);
    if (one.failure.empty() || is_no_number_of_ones(overload)) continue;
    if (is_slow_convolution(overload, one.failure)) continue;
    failures.push_back(overload + ": " + one.failure);
    std::printf("FAILED %s\n", failures.back().c_str());
    std::fflush(stdout);
  }
  std::printf("%zu overloads add up thousands of values:", adding.size());
  for (const std::string& overload : adding) std::printf(" %s", overload.c_str());
  std::printf("\n");
  EXPECT_GT(adding.size(), 100U) << "the drawings fit";
  EXPECT_THAT(failures, testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo::casting::sweep
