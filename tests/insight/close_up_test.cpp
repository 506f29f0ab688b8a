// The first operator inside a call that goes wrong: not one that carries numbers which nobody has
// written yet.
#include "insight/close_up.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "insight/module_paths.h"

namespace mezzo::insight {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

class CloseUpOfACall : public testing::Test {
 protected:
  void inner(const std::string& name, const std::vector<at::Tensor>& inputs, bool writes,
             const at::Tensor& result) {
    call.begin_inner(name, inputs, {}, writes);
    call.end_inner({result});
  }
  /// Memory as an operator of that name leaves it, with these numbers by accident.
  at::Tensor raw(float number) {
    const at::Tensor made = torch::full({3}, number);
    inner("empty", {}, false, made);
    return made;
  }

  ModulePaths paths{std::vector<const torch::nn::Module*>{}};
  CloseUp call{paths, false};
  at::Tensor x = torch::full({3}, 300.0F);
};

TEST_F(CloseUpOfACall, FindsWhatMadeAnInfinity) {
  call.begin({x}, {}, "whole", false);
  inner("mul", {x, x}, false, x * 2);
  inner("exp", {x}, false, torch::full({3}, kInfinite));
  inner("sub", {x, torch::full({3}, kInfinite)}, false, torch::full({3}, -kInfinite));
  call.end({torch::full({3}, -kInfinite)});
  EXPECT_EQ(call.culprit().name, "exp");
}

TEST_F(CloseUpOfACall, TakesNoCopyOfMemoryThatNothingWasWrittenTo) {
  call.begin({x}, {}, "whole", false);
  const at::Tensor low = raw(kNan);
  const at::Tensor wide = raw(kNan);
  inner("copy_", {wide, low}, true, wide);
  inner("to", {low}, false, wide);
  wide.fill_(kInfinite);
  inner("pow", {x, wide}, true, wide);
  inner("copy_", {low, wide}, true, low.fill_(kInfinite));
  call.end({low});
  EXPECT_EQ(call.culprit().name, "pow");
}

TEST_F(CloseUpOfACall, TakesAFillOfSuchMemoryForWhatItIs) {
  call.begin({x}, {}, "whole", false);
  const at::Tensor memory = raw(1);
  inner("fill_", {memory}, true, memory.fill_(kNan));
  call.end({memory});
  EXPECT_EQ(call.culprit().name, "fill_");
}

}  // namespace
}  // namespace mezzo::insight
