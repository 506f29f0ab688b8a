// The code in documents is compiled and run; CMakeLists.txt cuts it out.
#include <gtest/gtest.h>
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <vector>

// NOLINTBEGIN
namespace documents {
#include "first_steps/0.inc"
}

namespace documents::program_1 {
#include "first_steps/1.inc"
}
namespace documents::program_2 {
#include "first_steps/2.inc"
}
namespace documents::program_3 {
#include "first_steps/3.inc"
}
namespace documents::program_4 {
#include "first_steps/4.inc"
}
namespace documents::program_5 {
#include "first_steps/5.inc"
}
namespace documents::program_6 {
#include "first_steps/6.inc"
}
namespace documents::program_7 {
#include "first_steps/7.inc"
}
namespace documents::program_8 {
#include "first_steps/8.inc"
}
namespace documents::program_9 {
#include "first_steps/9.inc"
}
namespace documents::program_10 {
#include "first_steps/10.inc"
}

// The declarations that the README's snippet takes for granted.
namespace readme {
struct NetImpl : torch::nn::Module {
  NetImpl() : body(register_module("body", torch::nn::Linear(4, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return body(x); }
  torch::nn::Linear body;
};
TORCH_MODULE(Net);

int train() {
  struct Batch {
    torch::Tensor data, target;
  };
  std::vector<Batch> batches(2, {torch::randn({8, 4}), torch::zeros({8}, torch::kLong)});
  auto* loader = &batches;
#include "readme/0.inc"
  return 0;
}
}  // namespace readme
// NOLINTEND

namespace mezzo {
namespace {

TEST(Documents, FirstStepsRun) {
  const MessageSink before = set_message_sink(nullptr);
  EXPECT_EQ(documents::program_1::run(), 0);
  EXPECT_EQ(documents::program_2::run(), 0);
  EXPECT_EQ(documents::program_3::run(), 0);
  EXPECT_EQ(documents::program_4::run(), 0);
  EXPECT_EQ(documents::program_5::run(), 0);
  EXPECT_EQ(documents::program_6::run(), 0);
  EXPECT_EQ(documents::program_7::run(), 0);
  EXPECT_EQ(documents::program_8::run(), 0);
  EXPECT_EQ(documents::program_9::run(), 0);
  EXPECT_EQ(documents::program_10::run(), 0);
  set_message_sink(before);
}

TEST(Documents, TheReadmesSnippetRuns) {
  const MessageSink before = set_message_sink(nullptr);
  EXPECT_EQ(readme::train(), 0);
  set_message_sink(before);
}

}  // namespace
}  // namespace mezzo
