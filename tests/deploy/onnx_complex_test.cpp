// Complex numbers and Fourier transforms in ONNX: over operators, opsets, and sizes that the export
// did not see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "run_file.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;

class OnnxComplex : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// Exports `forward(self, x, y)` with a first axis of any length, and runs it at several.
  std::string failure(const torch::jit::Module& module, const std::vector<at::Tensor>& examples,
                      int opset = 17) const {
    OnnxOptions options = judged_options();
    options.opset = opset;
    for (const char* name : {"x", "y"}) options.dynamic_axes[name] = {{0, "n"}};
    if (examples.size() == 1) options.dynamic_axes.erase("y");
    return message_of([&] {
      const ExportReport report = export_onnx(module, examples, file_, options);
      EXPECT_THAT(report.verified, HasSubstr("sets of inputs"));
    });
  }

  /// z and w are complex matrices [n, 4], a and b real ones.
  void expect_exported(const std::string& body, int opset = 17) const {
    const auto module = scripted(
        "def forward(self, x: Tensor, y: Tensor):\n"
        "  z = torch.view_as_complex(x)\n  w = torch.view_as_complex(y)\n"
        "  a = torch.real(z)\n  b = torch.imag(w)\n  return " +
        body + "\n");
    EXPECT_EQ(failure(module, {torch::randn({3, 4, 2}), torch::randn({3, 4, 2})}, opset),
              "no error")
        << body << " at opset " << opset;
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_complex_" + std::to_string(getpid()) + ".onnx");
};

TEST_F(OnnxComplex, Arithmetic) {
  for (const char* body : {"torch.abs(z)",
                           "torch.angle(z) + torch.angle(a)",
                           "torch.conj(a) + torch.imag(torch.conj(w))",
                           "z + w",
                           "z - 2 * w",
                           "torch.add(z, w, alpha=3)",
                           "z + 1.5",
                           "2 - z",
                           "z + b",
                           "a - w",
                           "z * w",
                           "z * b",
                           "z * 2j",
                           "a * 1j",
                           "z * torch.conj(w)",
                           "z / w",
                           "z / 2.5",
                           "z / b",
                           "a / w",
                           "torch.reciprocal(z)",
                           "-z",
                           "torch.square(z)",
                           "torch.pow(z, 3)",
                           "torch.exp(z)",
                           "torch.polar(torch.abs(a), b)",
                           "torch.complex(a, b)",
                           "torch.complex(a, torch.zeros([1]))",
                           "z.to(dtype=10)",
                           "torch.where(a > 0, z, w)",
                           "z.masked_fill(a > 0, 0)"})
    expect_exported(body);
}

TEST_F(OnnxComplex, ProductsAndSums) {
  for (const char* body :
       {"torch.matmul(z.t(), w)", "torch.mm(z, w.transpose(0, 1))",
        "torch.einsum('nk,nj->kj', [z, w])", "torch.einsum('nk,nj->nkj', [a, w])",
        "torch.sum(z, 1)", "torch.mean(z, 0)", "torch.cumsum(z, 1)"})
    expect_exported(body);
}

TEST_F(OnnxComplex, MovedNumbers) {
  for (const char* body :
       {"z.reshape([-1, 2, 2])", "z.unsqueeze(1).expand([-1, 3, -1])", "z.transpose(0, 1)",
        "z.flatten()", "z[:, 1:3]", "z[0]", "z[:, [2, 0]]", "torch.cat([z, w], 1)",
        "torch.cat([z, a], 1)", "torch.stack([z, w], -1)",
        "torch.chunk(z, 2, 1)[1] * torch.split(w, 2, 1)[0]", "z.repeat([2, 1])",
        "torch.roll(z, 1, 1)", "torch.flip(z, [1])", "torch.view_as_real(z).sum(-1)",
        "torch.zeros_like(z) + w", "torch.tril(z)"})
    expect_exported(body);
}

TEST_F(OnnxComplex, FourierTransforms) {
  for (const int opset : {17, 20}) {
    for (const char* body : {"torch.fft_fft(a)",
                             "torch.fft_fft(z, norm='ortho')",
                             "torch.fft_ifft(z)",
                             "torch.fft_ifft(z, norm='forward')",
                             "torch.fft_fft(z, n=6)",
                             "torch.fft_fft(z, dim=0, norm='ortho')",
                             "torch.fft_rfft(a)",
                             "torch.fft_rfft(a, n=7, norm='forward')",
                             "torch.fft_rfft(a, n=3)",
                             "torch.fft_rfft(a, dim=0)",
                             "torch.fft_irfft(z)",
                             "torch.fft_irfft(z, n=7, norm='ortho')",
                             "torch.fft_irfft(z, n=4)",
                             "torch.fft_irfft(torch.fft_rfft(a, dim=0), n=a.size(0), dim=0)",
                             "torch.fft_fft2(a.reshape([-1, 2, 2]))",
                             "torch.fft_ifft2(z, norm='ortho')",
                             "torch.fft_fftn(z)",
                             "torch.fft_ifftn(z, dim=[1])",
                             "torch.fft_rfft2(a)",
                             "torch.fft_rfftn(b, s=[4], norm='ortho')",
                             "torch.fft_irfft2(torch.fft_rfft2(a), s=[a.size(0), 4])",
                             "torch.fft_irfftn(z, s=[6], dim=[1])",
                             "torch.fft_fftshift(a)",
                             "torch.fft_fftshift(z, dim=[1])",
                             "torch.fft_ifftshift(w)",
                             "torch.fft_fft(a[0])"})
      expect_exported(body, opset);
  }
}

TEST_F(OnnxComplex, ShortTimeTransforms) {
  const at::Tensor x = torch::randn({2, 150});
  for (const char* body :
       {"torch.stft(x, 32, hop_length=8, return_complex=False)",
        "torch.abs(torch.stft(x, 25, hop_length=10, win_length=20, window=torch.hann_window(20), "
        "return_complex=True))",
        "torch.stft(x, 32, window=torch.hann_window(32), center=True, pad_mode='constant', "
        "normalized=True, onesided=False, return_complex=True)",
        "torch.stft(x, 32, hop_length=8, window=torch.hann_window(32), center=True, "
        "pad_mode='reflect', return_complex=True).abs().pow(2.0)",
        "torch.stft(x[0], 16, hop_length=4, return_complex=True)"}) {
    const auto module =
        scripted("def forward(self, x: Tensor):\n  return " + std::string(body) + "\n");
    EXPECT_EQ(failure(module, {x}), "no error") << body;
  }
}

TEST_F(OnnxComplex, InverseShortTimeTransformsAtAnyLength) {
  for (const char* options :
       {"hop_length=8, window=torch.hann_window(32)", "hop_length=8, length=x.size(1)",
        "hop_length=10, win_length=28, window=torch.hamming_window(28), length=140",
        "hop_length=16, center=False", "hop_length=8, normalized=True",
        "hop_length=8, length=200"}) {
    const std::string given(options);
    const bool window = given.find("hamming") != std::string::npos;
    const auto module = scripted(
        "def forward(self, x: Tensor):\n"
        "  z = torch.stft(x, 32, " +
        std::string(window ? "hop_length=10, win_length=28, window=torch.hamming_window(28)"
                    : given.find("16") != std::string::npos ? "hop_length=16"
                                                            : "hop_length=8") +
        ", center=True, pad_mode='reflect', return_complex=True)\n"
        "  return torch.istft(z, 32, " +
        given + ")\n");
    OnnxOptions to = judged_options();
    to.dynamic_axes = {{"x", {{0, "n"}, {1, "time"}}}};
    const at::Tensor x = torch::randn({2, 150});
    EXPECT_EQ(message_of([&] { export_onnx(module, {x}, file_, to); }), "no error") << given;
  }
}

/// A front end in C++: decibels of a spectrogram, and the sound again.
struct FrontEndImpl : torch::nn::Module {
  FrontEndImpl() { window = register_buffer("window", torch::hann_window(32)); }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor spectrum = torch::stft(x, 32, 8, 32, window, /*center=*/true, "reflect",
                                            /*normalized=*/false, /*onesided=*/true,
                                            /*return_complex=*/true);
    return {torch::log10(spectrum.abs().pow(2) + 1e-3) * 10,
            torch::istft(spectrum * 0.5, 32, 8, 32, window, true, false, true, x.size(1))};
  }
  at::Tensor window;
};
TORCH_MODULE(FrontEnd);

TEST_F(OnnxComplex, NetworksInCppAtAnyLength) {
  FrontEnd net;
  OnnxOptions options = judged_options();
  options.dynamic_axes = {{"input_0", {{0, "batch"}, {1, "time"}}}};
  ASSERT_EQ(message_of([&] {
              export_onnx(net, {torch::randn({2, 160})}, file_, options);
            }),
            "no error");
  const at::Tensor other = torch::randn({3, 411});
  const auto [levels, sound] = net->forward(other);
  EXPECT_LT(error_of_file(file_, {"input_0"}, {other}, c10::ivalue::Tuple::create({levels, sound})),
            1e-4);
}

/// As many frames as the sound has, although sizes near the example's have as many as it.
TEST_F(OnnxComplex, FramesOfLongSounds) {
  auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  z = torch.stft(x, 800, hop_length=400, return_complex=True)\n"
      "  return torch.abs(z) + torch.arange(z.size(2))\n");
  OnnxOptions options = judged_options();
  options.dynamic_axes = {{"x", {{0, "n"}, {1, "time"}}}};
  ASSERT_EQ(message_of([&] {
              export_onnx(module, {torch::randn({1, 8000})}, file_, options);
            }),
            "no error");
  const at::Tensor other = torch::randn({2, 12100});
  EXPECT_LT(error_of_file(file_, {"x"}, {other}, module.forward({other})), 1e-4);
}

TEST_F(OnnxComplex, LayersWithComplexWeights) {
  const auto dtype = at::kComplexFloat;
  const Tensors weights = {{"w", torch::randn({3, 4}, dtype)},
                           {"b", torch::randn({3}, dtype)},
                           {"k", torch::randn({5, 4, 3}, dtype)},
                           {"c", torch::randn({5}, dtype)}};
  for (const char* body : {"torch.linear(z, self.w, self.b)", "torch.linear(z, self.w)",
                           "torch.conv1d(z.reshape(-1, 4, 1), self.k, self.c, padding=1)"}) {
    const auto module = scripted(
        "def forward(self, x: Tensor):\n  z = torch.view_as_complex(x)\n"
        "  return " +
            std::string(body) + "\n",
        weights);
    EXPECT_EQ(failure(module, {torch::randn({3, 4, 2})}), "no error") << body;
  }
}

/// Rotary positions as Llama's first code has them.
TEST_F(OnnxComplex, RotaryPositions) {
  const at::Tensor angles = torch::rand({64, 4});
  auto module = scripted(
      "def forward(self, x: Tensor, y: Tensor):\n"
      "  q = torch.view_as_complex(x.float().reshape([x.size(0), x.size(1), -1, 2]))\n"
      "  turn = self.freqs[:x.size(1)].view([1, x.size(1), -1])\n"
      "  return torch.view_as_real(q * turn).flatten(2).type_as(y)\n",
      {}, {}, {{"freqs", torch::polar(torch::ones_like(angles), angles)}});
  OnnxOptions options = judged_options();
  options.dynamic_axes = {{"x", {{0, "n"}, {1, "time"}}}, {"y", {{0, "n"}, {1, "time"}}}};
  const at::Tensor x = torch::randn({2, 5, 8});
  ASSERT_EQ(message_of([&] { export_onnx(module, {x, x}, file_, options); }), "no error");
  const at::Tensor other = torch::randn({3, 11, 8});
  EXPECT_LT(error_of_file(file_, {"x", "y"}, {other, other}, module.forward({other, other})), 1e-5);
}

/// A layer of a Fourier neural operator: products with complex weights, written into zeros.
TEST_F(OnnxComplex, WritesIntoPartsOfASpectrum) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  found = torch.fft_rfft2(x)\n"
      "  made = torch.zeros([x.size(0), 3, x.size(-2), x.size(-1) // 2 + 1], "
      "dtype=9)\n"
      "  made[:, :, :2, :2] = torch.einsum('bixy,ioxy->boxy', [found[:, :, :2, :2], self.w])\n"
      "  made[:, :, -2:, :2] = torch.einsum('bixy,ioxy->boxy', [found[:, :, -2:, :2], self.v])\n"
      "  return torch.fft_irfft2(made, s=[x.size(-2), x.size(-1)])\n",
      {{"w", torch::randn({2, 3, 2, 2}, at::kComplexFloat)},
       {"v", torch::randn({2, 3, 2, 2}, at::kComplexFloat)}});
  EXPECT_EQ(failure(module, {torch::randn({2, 2, 8, 6})}), "no error");
}

TEST_F(OnnxComplex, BranchesAndLoops) {
  const auto module = scripted(
      "def forward(self, x: Tensor, y: Tensor):\n"
      "  z = torch.view_as_complex(x)\n"
      "  if bool(y.sum() > 0):\n"
      "    z = z * torch.view_as_complex(y)\n"
      "  for i in range(x.size(0)):\n"
      "    z = z * 1j + 1\n"
      "  return torch.abs(z)\n");
  EXPECT_EQ(failure(module, {torch::randn({3, 4, 2}), torch::rand({3, 4, 2})}), "no error");
}

TEST_F(OnnxComplex, InputsAndOutputsArePairs) {
  const auto module = scripted("def forward(self, x: Tensor):\n  return x * x.conj() + x\n");
  const at::Tensor x = torch::randn({3, 4}, at::kComplexFloat);
  ASSERT_EQ(failure(module, {x}), "no error");
  const at::Tensor other = torch::randn({5, 4}, at::kComplexFloat);
  EXPECT_LT(error_of_file(file_, {"x"}, {at::view_as_real(other)},
                          torch::jit::Module(module).forward({other})),
            1e-5);
}

TEST_F(OnnxComplex, WhatIsNotSaidIsAnError) {
  const auto message = [&](const std::string& body, int opset = 17) {
    return failure(scripted("def forward(self, x: Tensor):\n  return " + body + "\n"),
                   {torch::randn({3, 4, 2})}, opset);
  };
  EXPECT_THAT(message("torch.sin(torch.view_as_complex(x))"), HasSubstr("aten::sin"));
  EXPECT_THAT(message("torch.pow(torch.view_as_complex(x), 0.5)"), HasSubstr("whole exponents"));
  EXPECT_THAT(message("torch.fft_rfft(x)", 16), HasSubstr("needs opset 17"));
  EXPECT_THAT(message("torch.fft_hfft(torch.view_as_complex(x))"), HasSubstr("fft_irfft"));
}

}  // namespace
}  // namespace mezzo::deploy
