// Every overload of the dispatcher's namespace aten that takes floating tensors runs at every
// level, whatever their types: forward and backward, float16 and bfloat16, native and emulated.
// Arguments are drawn from the schemas, and an overload counts as tried if some drawing runs in
// float.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "casting/sweep/drawing.h"
#include "casting/sweep/isolated.h"
#include "casting/sweep/recipes.h"
#include "casting/sweep/trial.h"
#include "mezzo/hardware.h"
#include "operators/operators.h"
#include "platform/libraries.h"

namespace mezzo::casting::sweep {
namespace {

constexpr int kDrawings = 400;
constexpr int kSamples = 5;
constexpr int kAttempts = 3;  // after crashes of LibTorch's own, on arguments that do not fit

/// Fail at some level, on purpose.
const std::map<std::string_view, std::string_view>& exempt() {
  static const std::map<std::string_view, std::string_view> all{
      {"_add_relu.Scalar", "fails in float as well, but for a few sizes"},
      {"_add_relu.Tensor", "fails in float as well, but for a few sizes"},
      {"_add_relu_.Scalar", "fails in float as well, but for a few sizes"},
      {"_add_relu_.Tensor", "fails in float as well, but for a few sizes"},
      {"_amp_foreach_non_finite_check_and_unscale", "the scale is float by its contract"},
      {"_amp_foreach_non_finite_check_and_unscale_", "the scale is float by its contract"},
      {"_assert_tensor_metadata", "asserts the type that it is told"},
      {"_saturate_weight_to_fp16", "packs float weights"},
      {"_test_optional_floatlist", "LibTorch's own test"},
      {"choose_qparams_optimized", "quantises float"},
      {"fbgemm_linear_quantize_weight", "packs float weights"},
      {"fbgemm_pack_gemm_matrix_fp16", "packs float weights"},
      {"_fused_moving_avg_obs_fq_helper", "its observers are float by their contract"},
      {"fused_moving_avg_obs_fake_quant", "its observers are float by their contract"},
      {"view.dtype", "looks at the bytes of one type as another"},
      {"view_copy.dtype", "looks at the bytes of one type as another"},
      {"set.source_Tensor", "shares the memory of another tensor"},
      {"set_.source_Tensor", "shares the memory of another tensor"},
      {"set_.source_Tensor_storage_offset", "shares the memory of another tensor"},
      {"cumsum_", "a dtype was drawn that is not that of the tensor"},
      {"cumprod_", "a dtype was drawn that is not that of the tensor"},
      {"_cummax_helper", "writes into tensors that its caller made of the input's type"},
      {"_cummin_helper", "writes into tensors that its caller made of the input's type"},
      {"_foreach_lerp_.List", "one list in place holds several types here"},
      {"_foreach_lerp_.Scalar", "one list in place holds several types here"},
      {"_foreach_lerp_.ScalarList", "one list in place holds several types here"},
      {"_dyn_quant_matmul_4bit", "multiplies packed 4-bit weights"},
      {"addbmm_", "gives what it writes another size, where float has no gradient"},
      {"dequantize.self", "is the identity of float, without a derivative"},
  };
  return all;
}

/// Families that no row is for.
std::string_view family_of(std::string_view overload) {
  if (overload.starts_with("_fused_") && overload != "_fused_rms_norm" &&
      !overload.starts_with("_fused_dropout"))
    return "updates weights: an optimizer's kernel";
  if (overload.starts_with("sparse_") && overload.find("_tensor.") != std::string_view::npos)
    return "builds a sparse tensor of the type that it is told";
  if (overload.starts_with("_sparse_") && overload.find("_unsafe") != std::string_view::npos)
    return "builds a sparse tensor of the type that it is told";
  if (overload.find("batch_norm") != std::string_view::npos && overload != "batch_norm")
    return "statistics stay float: a batch norm's inner function";
  if (overload.find("mkldnn") != std::string_view::npos) return "a kernel of one library";
  return {};
}

struct SweepSetting {
  std::string name;
  at::ScalarType low;
  ComputeMode computed;
  Mode mode;
};

const std::vector<SweepSetting>& settings() {
  static const std::vector<SweepSetting> all = [] {
    std::vector<SweepSetting> made;
    for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
      for (const ComputeMode computed : {ComputeMode::kNative, ComputeMode::kEmulated}) {
        for (const Mode mode : {Mode::kOperators, Mode::kWholeModel}) {
          made.push_back({std::string(low == at::kHalf ? "float16" : "bfloat16") +
                              (computed == ComputeMode::kNative ? " native" : " emulated") +
                              (mode == Mode::kOperators ? " operators" : " whole model"),
                          low, computed, mode});
        }
      }
    }
    return made;
  }();
  return all;
}

std::string full_name(const c10::OperatorName& name) {
  std::string text = name.name.substr(std::string_view("aten::").size());
  if (!name.overload_name.empty()) text += "." + name.overload_name;
  return text;
}

/// A form that writes its results into tensors of the caller's.
bool is_out(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(),
                             [](const c10::Argument& argument) { return argument.is_out(); });
}

/// Have its results no values that float's could be compared with?
bool is_no_number(std::string_view overload, const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return true;
  if (op.schema().is_mutable()) return true;
  // Memory that nobody wrote.
  if (overload.find("empty") != std::string_view::npos || overload.starts_with("resize"))
    return true;
  if (overload.starts_with("_padded_dense_to_jagged")) return true;
  // Reads behind the end of coefficients that do not fit, which it does not check.
  if (overload == "_compute_linear_combination") return true;
  // Drawn arguments of such a formula do not belong together.
  if (overload.find("_backward") != std::string_view::npos) return true;
  // Not determined where the rank is too small, and for a dimension in the middle.
  if (overload == "linalg_lstsq" || overload.starts_with("_weight_norm")) return true;
  // The second result, the backward pass's, is unset behind the end of each input.
  return overload.starts_with("_ctc_loss");
}

/// Does the policy compute it, or something inside, in the low type?
bool may_round(std::string_view overload, bool all_low) {
  const auto found = find(overload);
  if (!found) return true;  // composites follow what they call
  const Operator& row = operators()[found->row];
  if (all_low && row.class_for(DType::kFloat16) == CastClass::kPromote) return true;
  return row.matrix || row.class_for(DType::kFloat16) == CastClass::kLow ||
         row.class_for(DType::kFloat16) == CastClass::kNeutral;
}

/// Rows whose tensors must agree are tried with each of them low and the others wide, too.
bool wants_agreement(std::string_view overload) {
  const auto found = find(overload);
  if (!found) return false;
  const Operator& row = operators()[found->row];
  return row.one_type || row.input_only || row.classes.front() == CastClass::kPromote;
}

std::string try_sample(const std::string& name, const c10::OperatorHandle& op, const Stack& stack,
                       bool with_gradients, Drawing& drawing) {
  const std::size_t floats = count_floats(stack);
  const std::size_t patterns = floats < 2 ? 1 : 4 + (wants_agreement(name) ? floats : 0);
  for (const SweepSetting& setting : settings()) {
    set_compute_mode(setting.low, setting.computed);
    const Policy policy = Policy::defaults(setting.low);
    for (std::size_t pattern = 0; pattern < patterns; ++pattern) {
      const std::uint64_t bits = drawing.below(std::uint64_t{1} << 30);
      const Types types = [&](std::size_t i) {
        const bool low = pattern == 0 || (pattern == 1 && i == 0) || (pattern == 2 && i > 0) ||
                         (pattern == 3 && ((bits >> i) & 1) != 0) || pattern == i + 4;
        return low ? setting.low : at::kFloat;
      };
      const Outcome outcome = call(op, stack, types, with_gradients, policy, setting.mode);
      const std::string where = setting.name + ", types " + std::to_string(pattern) + ": ";
      if (!outcome.error.empty()) return where + outcome.error;
      if (is_no_number(name, op)) continue;
      const Outcome reference = call(
          op, rounded_to(stack, types), [](std::size_t) { return at::kFloat; }, with_gradients);
      if (const std::string what = lost(outcome, reference); !what.empty())
        return where + what + " is not finite, as float's is";
      if (setting.mode != Mode::kOperators || may_round(name, pattern == 0)) continue;
      if (const std::string what = difference(outcome, reference); !what.empty())
        return where + what + " has not the precision of float";
    }
  }
  return {};
}

void try_overload(const std::string& name, const c10::OperatorHandle& op, std::uint64_t attempt,
                  const std::function<void(const std::string&)>& tell) {
  const Types all_float = [](std::size_t) { return at::kFloat; };
  Drawing drawing(name, attempt);
  std::string last = "nothing was drawn";
  int samples = 0;
  const auto sample = [&](const Stack& stack) {
    bool with_gradients = true;
    Outcome plain = call(op, stack, all_float, with_gradients);
    if (!plain.error.empty()) {
      with_gradients = false;
      plain = call(op, stack, all_float, with_gradients);
    }
    if (!plain.error.empty()) {
      last = plain.error;
      return;
    }
    if (count_floats(stack) == 0) {
      tell("integers");
      return;
    }
    ++samples;
    tell(count_floats(stack) > 1 ? "sample several" : "sample one");
    const std::string failure = try_sample(name, op, stack, with_gradients, drawing);
    if (!failure.empty()) tell("failed " + failure);
  };
  for (const Stack& stack : recipes_for(name)) sample(stack);
  // Drawn states do not belong to drawn weights, which oneDNN's LSTM, of float alone, does not
  // check.
  const int drawings = name == "lstm.input" ? 0 : kDrawings;
  for (int i = 0; i < drawings && samples < kSamples; ++i) {
    const std::optional<Stack> stack = drawing.draw(op.schema());
    if (!stack) {
      last = "names dimensions, or wants a storage";
      break;
    }
    sample(*stack);
  }
  tell("last " + last);
}

struct Tried {
  int samples = 0;
  bool several = false;
  bool integers = false;
  std::string failure;
  std::string last = "crashes on arguments that do not fit";
};

Tried tried(const std::string& name, const c10::OperatorHandle& op) {
  Tried all;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Isolated run = isolated(std::chrono::seconds(60), [&](const auto& tell) {
      try_overload(name, op, static_cast<std::uint64_t>(attempt), tell);
    });
    std::istringstream lines(run.said);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("sample")) {
        ++all.samples;
        all.several = all.several || line == "sample several";
      } else if (line == "integers") {
        all.integers = true;
      } else if (line.starts_with("failed ") && all.failure.empty()) {
        all.failure = line.substr(7);
      } else if (line.starts_with("threw ") && all.failure.empty()) {
        all.failure = line;
      } else if (line.starts_with("last ")) {
        all.last = line.substr(5);
      }
    }
    if (run.ended || all.samples >= kSamples) break;
  }
  return all;
}

std::string reason_of(const Tried& one) {
  if (one.samples == 0 && one.integers) return "takes no floating tensor";
  if (one.last.find("Could not run") != std::string::npos) return "of another backend or layout";
  if (one.last.find("names dimensions") != std::string::npos ||
      one.last.find("all symbols must have a namespace") != std::string::npos)
    return "names dimensions, or wants a storage";
  return "no arguments that fit were drawn";
}

TEST(Sweep, EveryOverloadWithFloatingTensorsRunsAtEveryLevel) {
  at::set_num_threads(1);
  std::fflush(stdout);
  std::map<std::string, std::vector<std::string>> left;
  std::vector<std::string> failures;
  int overloads = 0;
  int done = 0;
  int several = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::")) continue;
    const std::string overload = full_name(name);
    if (is_out(op->schema())) continue;
    ++overloads;
    if (c10::toString(op->schema()).find("Tensor") == std::string::npos) {
      left["takes no tensor"].push_back(overload);
      continue;
    }
    const Tried one = tried(overload, *op);
    if (one.samples == 0) {
      left[reason_of(one)].push_back(overload);
      continue;
    }
    ++done;
    several += one.several;
    if (one.failure.empty()) continue;
    if (const auto found = exempt().find(overload); found != exempt().end()) {
      left["fails on purpose: " + std::string(found->second)].push_back(overload);
    } else if (const auto family = family_of(overload); !family.empty()) {
      left["fails on purpose: " + std::string(family)].push_back(overload);
    } else {
      failures.push_back(overload + ": " + one.failure);
      std::printf("FAILED %s\n", failures.back().c_str());
      std::fflush(stdout);
    }
  }
  std::printf(
      "overloads in place or functional: %d; tried: %d, of which with several floating "
      "tensors: %d\n",
      overloads, done, several);
  for (const auto& [reason, names] : left) {
    std::printf("%zu left, %s:", names.size(), reason.c_str());
    for (const std::string& overload : names) std::printf(" %s", overload.c_str());
    std::printf("\n");
  }
  EXPECT_GT(done, 1200) << "the drawings fit";
  EXPECT_THAT(failures, testing::IsEmpty());
}

// The same for the rows of the table on a device, whose kernels take other types than the CPU's:
// fewer drawings, one copy of the process for many overloads.
constexpr int kDeviceDrawings = 60;
constexpr std::chrono::seconds kDeviceLimit{80};

void try_on_device(const std::string& name, const c10::OperatorHandle& op, at::Device device,
                   const std::function<void(const std::string&)>& tell) {
  const Types all_float = [](std::size_t) { return at::kFloat; };
  Drawing drawing(name, 0);
  bool done = false;
  const auto sample = [&](const Stack& drawn) {
    const Stack stack = on_device(drawn, device);
    bool with_gradients = true;
    Outcome plain = call(op, stack, all_float, with_gradients);
    if (!plain.error.empty()) {
      with_gradients = false;
      plain = call(op, stack, all_float, with_gradients);
    }
    if (!plain.error.empty() || count_floats(stack) == 0) return;
    done = true;
    const std::string failure = try_sample(name, op, stack, with_gradients, drawing);
    tell(failure.empty() ? "ran " + name : "failed " + name + ": " + failure);
  };
  for (const Stack& stack : recipes_for(name)) sample(stack);
  for (int i = 0; i < kDeviceDrawings && !done; ++i) {
    const std::optional<Stack> stack = drawing.draw(op.schema());
    if (!stack) return;
    sample(*stack);
  }
}

/// The overloads that rows of the table are for.
std::vector<c10::OperatorName> listed_overloads() {
  std::vector<c10::OperatorName> listed;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::") || is_out(op->schema())) continue;
    const std::string overload = full_name(name);
    if (!find(overload) || exempt().contains(overload) || !family_of(overload).empty()) continue;
    listed.push_back(name);
  }
  return listed;
}

/// Runs in a copy of the process, the only one that knows the device: CUDA does not outlive a fork.
void sweep_from(const std::vector<c10::OperatorName>& listed, std::size_t begin,
                const std::string& device, const std::function<void(const std::string&)>& tell) {
  std::string why;
  if (device != "cpu" && platform::open_library("libtorch_cuda.so", &why) == nullptr)
    throw std::runtime_error(why);
  const at::Device place(device);
  for (std::size_t i = begin; i < listed.size(); ++i) {
    tell("begin " + std::to_string(i));
    const auto op = c10::Dispatcher::singleton().findSchema(listed[i]);
    try_on_device(full_name(listed[i]), *op, place, tell);
    // Arguments that do not fit can break the device for this process: this throws then.
    at::zeros({1}, place).add(1).item<float>();
  }
  tell("end");
}

TEST(DeviceSweep, RowsOfTheTableRunOnTheDeviceAtEveryLevel) {
  const char* const device = std::getenv("MEZZO_SWEEP_DEVICE");
  if (device == nullptr) GTEST_SKIP() << "MEZZO_SWEEP_DEVICE names no device";
  at::set_num_threads(1);
  std::fflush(stdout);
  const std::vector<c10::OperatorName> listed = listed_overloads();
  const auto end = std::chrono::steady_clock::now() + kDeviceLimit;
  std::vector<std::string> failures;
  std::size_t next = 0;
  int ran = 0;
  bool ended = false;
  while (!ended && next < listed.size()) {
    const std::size_t first = next;
    const auto left =
        std::chrono::duration_cast<std::chrono::seconds>(end - std::chrono::steady_clock::now());
    if (left.count() < 1) break;
    const Isolated run =
        isolated(left, [&](const auto& tell) { sweep_from(listed, first, device, tell); });
    std::istringstream lines(run.said);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("begin ")) next = std::stoul(line.substr(6)) + 1;
      if (line.starts_with("ran ")) ++ran;
      if (line.starts_with("failed ")) failures.push_back(line.substr(7));
      ended = ended || line == "end";
    }
    ASSERT_GT(next, first) << "the device cannot be used: " << run.said;
  }
  for (const std::string& failure : failures) std::printf("FAILED %s\n", failure.c_str());
  std::printf("rows tried on %s: %zu of %zu, calls that ran: %d\n", device, next, listed.size(),
              ran);
  EXPECT_TRUE(ended) << "time was left for " << next << " of " << listed.size() << " rows";
  EXPECT_GT(ran, 300) << "the drawings fit";
  EXPECT_THAT(failures, testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo::casting::sweep
