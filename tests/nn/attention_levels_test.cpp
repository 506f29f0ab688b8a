// Attention with padded keys trains at every level: ours, and LibTorch's own, whose C++ code has no
// 16-bit branch where it masks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/amp.h"
#include "mezzo/attention.h"
#include "mezzo/hardware.h"
#include "mezzo/messages.h"

namespace mezzo::nn {
namespace {

constexpr std::int64_t kWords = 6, kSentences = 4, kFeatures = 16;

at::Tensor pads() {
  return torch::arange(kWords).unsqueeze(0) >= torch::tensor({6, 5, 3, 2}).unsqueeze(1);
}

struct EncoderImpl : torch::nn::Module {
  EncoderImpl()
      : encoder(register_module("encoder",
                                torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                                    torch::nn::TransformerEncoderLayerOptions(kFeatures, 4)
                                        .dim_feedforward(32)
                                        .dropout(0),
                                    2)))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return encoder->forward(x, {}, mask).mean(0);
  }
  torch::nn::TransformerEncoder encoder;
};
TORCH_MODULE(Encoder);

template <typename Attention>
struct AttendingImpl : torch::nn::Module {
  AttendingImpl()
      : attention(this->register_module("attention", Attention(kFeatures, 4))),
        last(this->register_module("last", torch::nn::Linear(kFeatures, kFeatures))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return last(std::get<0>(attention(x, x, x, mask))).mean(0);
  }
  Attention attention;
  torch::nn::Linear last;
};

struct Trained {
  std::vector<double> losses;
  std::string said;
};

template <typename Net>
Trained trained(Net net, const std::string& level) {
  Trained result;
  const auto before =
      set_message_sink([&](const std::string& text) { result.said += text + "\n"; });
  torch::optim::SGD sgd(net->parameters(), 0.1);
  {
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256});
    torch::manual_seed(4);
    const at::Tensor x = torch::randn({kWords, kSentences, kFeatures});
    const at::Tensor target = torch::randn({kSentences, kFeatures});
    for (int step = 0; step < 12; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(model(x, pads()), target);
      amp::scale_loss(loss, optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied()) << level;
      result.losses.push_back(loss.template item<double>());
    }
  }
  set_message_sink(before);
  return result;
}

struct Setting {
  std::string level;
  ComputeMode computed;
};

class AttentionLevels : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { set_modes(GetParam().computed); }
  void TearDown() override { set_modes(ComputeMode::kAuto); }
  static void set_modes(ComputeMode mode) {
    for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) set_compute_mode(low, mode);
  }

  template <typename Make>
  static std::string expect_as_float(const Make& make) {
    torch::manual_seed(9);
    const Trained wanted = trained(make(), "O0");
    torch::manual_seed(9);
    const Trained got = trained(make(), GetParam().level);
    for (std::size_t i = 0; i < wanted.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], wanted.losses[i], 0.03) << GetParam().level << ", step " << i;
    EXPECT_LT(wanted.losses.back(), 0.9 * wanted.losses.front());
    EXPECT_THAT(wanted.said, testing::Not(testing::HasSubstr("MultiheadAttention")));
    return got.said;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Nn, AttentionLevels,
    testing::Values(Setting{"O1", ComputeMode::kNative}, Setting{"O1", ComputeMode::kEmulated},
                    Setting{"O2", ComputeMode::kNative}, Setting{"O2", ComputeMode::kEmulated},
                    Setting{"O3", ComputeMode::kNative}, Setting{"O4", ComputeMode::kNative},
                    Setting{"O4", ComputeMode::kEmulated}, Setting{"O5", ComputeMode::kNative},
                    Setting{"O5", ComputeMode::kEmulated}));

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_P(AttentionLevels, LibTorchsEncoderTrainsAndTheCostIsSaidOnce) {
  const std::string said = expect_as_float([] { return Encoder(); });
  EXPECT_EQ(count_of(said, "torch::nn::MultiheadAttention (Tr"), 1) << said;
}

TEST_P(AttentionLevels, LibTorchsAttentionTrains) {
  const auto make = [] { return std::make_shared<AttendingImpl<torch::nn::MultiheadAttention>>(); };
  EXPECT_EQ(count_of(expect_as_float(make), "torch::nn::MultiheadAttention (Tr"), 1);
}

TEST_P(AttentionLevels, OursTrainsWithoutAWord) {
  const auto make = [] { return std::make_shared<AttendingImpl<MultiheadAttention>>(); };
  EXPECT_EQ(count_of(expect_as_float(make), "bmm"), 0);
}

}  // namespace
}  // namespace mezzo::nn
