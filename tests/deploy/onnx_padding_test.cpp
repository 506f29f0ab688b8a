// Padding, and other operators on images and sequences whose sizes follow from inputs, in files
// with axes of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "function_network.h"
#include "messages.h"
#include "mezzo/deploy.h"
#include "run_file.h"

namespace mezzo::deploy {
namespace {

namespace F = torch::nn::functional;
using Tensor = at::Tensor;
using Sizes = std::vector<std::int64_t>;

class OnnxAnySize : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(18); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// The file gives what the function gives, also at sizes that the export did not see.
  void expect_same(const std::string& what, const FunctionNetworkImpl::Function& function,
                   const Tensor& x, const Sizes& axes, const std::vector<Sizes>& others,
                   int opset = 17) {
    SCOPED_TRACE(what);
    FunctionNetwork net(function);
    OnnxOptions options = judged_options();
    options.opset = opset;
    for (const std::int64_t axis : axes)
      options.dynamic_axes["input_0"][axis] = "axis_" + std::to_string(axis);
    const Tensor y = torch::zeros({1});
    const std::string message = message_of([&] {
      const ExportReport report = export_onnx(net, {x, y}, file_, options);
      EXPECT_FALSE(report.verified.empty());
    });
    ASSERT_EQ(message, "no error");
    for (const Sizes& sizes : others) {
      const Tensor other = torch::randn(sizes).to(x.scalar_type());
      const c10::IValue wanted = net->forward(other, y);
      EXPECT_LT(error_of_file(file_, {"input_0", "input_1"}, {other, y}, wanted), 1e-5) << sizes;
    }
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_sizes_" + std::to_string(getpid()) + ".onnx");
};

TEST_F(OnnxAnySize, PadsInEveryWayOverOneToThreeDimensions) {
  struct {
    Sizes sizes, axes, other;
    std::vector<Sizes> pads;
  } const shapes[] = {
      {{2, 3, 7}, {0, 2}, {3, 3, 9}, {{1, 2}, {0, 3}, {2, 0}, {-1, 2}, {3, -2}, {-1, -1}}},
      {{3, 7}, {1}, {3, 10}, {{1, 2}}},
      {{2, 3, 6, 7}, {0, 2, 3}, {1, 3, 9, 8}, {{1, 2, 0, 3}, {0, 0, 2, 1}, {-2, 1, 1, -1}}},
      {{1, 2, 4, 5, 6}, {2, 3, 4}, {1, 2, 6, 7, 5}, {{1, 2, 0, 3, 2, 1}, {1, 1, -1, 1, 0, -1}}},
  };
  const std::pair<const char*, F::PadFuncOptions::mode_t> modes[] = {
      {"constant", torch::kConstant},
      {"reflect", torch::kReflect},
      {"replicate", torch::kReplicate},
      {"circular", torch::kCircular}};
  for (const auto& [name, mode] : modes) {
    for (const auto& shape : shapes) {
      for (const Sizes& pads : shape.pads) {
        for (const int opset : {17, 20}) {
          const auto function = [&, mode = mode](const Tensor& x, const Tensor& y) {
            return F::pad(x, F::PadFuncOptions(pads).mode(mode)) + y;
          };
          expect_same(std::string(name) + " " + c10::str(pads), function, torch::randn(shape.sizes),
                      shape.axes, {shape.sizes, shape.other}, opset);
          expect_same(std::string(name) + " of fixed sizes " + c10::str(pads), function,
                      torch::randn(shape.sizes), {}, {shape.sizes}, opset);
        }
      }
    }
  }
}

TEST_F(OnnxAnySize, PadsWithValuesAndTypes) {
  const auto filled = [](double value) {
    return [value](const Tensor& x, const Tensor&) {
      return F::pad(x, F::PadFuncOptions({1, 0, 2, 1}).value(value));
    };
  };
  expect_same("value", filled(2.5), torch::randn({4, 5}), {0}, {{6, 5}});
  expect_same("minus infinity", filled(-INFINITY), torch::randn({4, 5}), {0}, {{6, 5}});
  expect_same("integers", filled(7), torch::arange(20).reshape({4, 5}), {0}, {{6, 5}});
  expect_same("truth",
              [](const Tensor& x, const Tensor&) {
                return F::pad(x > 0, F::PadFuncOptions({1, 0}).value(1)).logical_not();
              },
              torch::randn({4, 5}), {0}, {{6, 5}});
}

/// As networks of windows do, which want a multiple of the window's size.
TEST_F(OnnxAnySize, PadsToAMultipleOfASize) {
  const std::pair<const char*, F::PadFuncOptions::mode_t> modes[] = {
      {"constant", torch::kConstant},
      {"reflect", torch::kReflect},
      {"replicate", torch::kReplicate},
      {"circular", torch::kCircular}};
  for (const auto& [name, mode] : modes) {
    for (const int opset : {17, 20}) {
      expect_same(
          name,
          [mode = mode](const Tensor& x, const Tensor& y) {
            const std::int64_t down = (8 - x.size(2) % 8) % 8, across = (8 - x.size(3) % 8) % 8;
            return F::pad(x, F::PadFuncOptions({0, across, 0, down}).mode(mode)) + y;
          },
          torch::randn({1, 2, 13, 11}), {0, 2, 3}, {{2, 2, 16, 10}, {1, 2, 20, 24}}, opset);
    }
  }
}

TEST_F(OnnxAnySize, PixelUnshuffles) {
  const auto unshuffle = [](const Tensor& x, const Tensor& y) {
    return F::pixel_unshuffle(x, F::PixelUnshuffleFuncOptions(2)) + y;
  };
  const Tensor x = torch::randn({2, 3, 4, 6});
  for (const Sizes& axes : {Sizes{}, Sizes{0}, Sizes{2}, Sizes{3}, Sizes{2, 3}, Sizes{0, 2, 3}}) {
    Sizes other = {2, 3, 4, 6};
    for (const std::int64_t axis : axes) other[static_cast<std::size_t>(axis)] *= axis + 2;
    expect_same("of " + c10::str(axes), unshuffle, x, axes, {other});
  }
  expect_same("channels, too", unshuffle, x, {0, 1, 2, 3}, {{1, 5, 8, 2}, {3, 2, 2, 10}});
  expect_same("without a batch", unshuffle, x[0], {1, 2}, {{3, 8, 2}});
  expect_same("of videos", unshuffle, torch::randn({2, 2, 3, 4, 6}), {0, 1, 3, 4},
              {{1, 3, 3, 8, 2}});
  expect_same("to and fro",
              [](const Tensor& a, const Tensor& y) {
                const Tensor deep = F::pixel_unshuffle(a, F::PixelUnshuffleFuncOptions(2)) * 2;
                return F::pixel_shuffle(deep, F::PixelShuffleFuncOptions(2)) + y;
              },
              x, {0, 2, 3}, {{1, 3, 6, 8}});
}

TEST_F(OnnxAnySize, PixelShufflesWithoutOneBatch) {
  const auto shuffle = [](const Tensor& x, const Tensor& y) {
    return F::pixel_shuffle(x, F::PixelShuffleFuncOptions(2)) + y;
  };
  expect_same("none", shuffle, torch::randn({8, 3, 4}), {1, 2}, {{8, 5, 2}});
  expect_same("two", shuffle, torch::randn({2, 3, 8, 3, 4}), {0, 1, 3, 4}, {{1, 2, 8, 5, 2}});
}

TEST_F(OnnxAnySize, RepeatsElements) {
  const Tensor x = torch::randn({2, 3, 4, 5});
  for (const std::int64_t axis : {0, 1, 2, 3, -1, -3}) {
    const auto repeat = [axis](const Tensor& a, const Tensor& y) {
      return a.repeat_interleave(3, axis) + y;
    };
    for (const Sizes& axes :
         {Sizes{}, Sizes{0}, Sizes{2}, Sizes{3}, Sizes{2, 3}, Sizes{0, 1, 2, 3}}) {
      Sizes other = {2, 3, 4, 5};
      for (const std::int64_t each : axes) other[static_cast<std::size_t>(each)] += each + 2;
      expect_same("axis " + std::to_string(axis) + " of " + c10::str(axes), repeat, x, axes,
                  {other});
    }
  }
  expect_same("of all", [](const Tensor& a, const Tensor& y) { return a.repeat_interleave(2) + y; },
              x, {0, 2}, {{3, 3, 6, 5}});
  expect_same(
      "as often as there are rows",
      [](const Tensor& a, const Tensor& y) { return a.repeat_interleave(a.size(0), 1) + y; }, x,
      {0, 2}, {{3, 3, 6, 5}});
  expect_same("a number each",
              [](const Tensor& a, const Tensor& y) {
                return a.repeat_interleave(torch::tensor({2, 0, 3}), 1) + y;
              },
              x, {0, 2}, {{3, 3, 6, 5}});
}

TEST_F(OnnxAnySize, AveragesToSizesThatDoNotDivide) {
  for (const Sizes& wanted : {Sizes{1, 1}, Sizes{2, 3}, Sizes{3, 4}, Sizes{6, 6}, Sizes{7, 1}}) {
    expect_same(c10::str(wanted),
                [&](const Tensor& x, const Tensor& y) {
                  return F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions(wanted)) + y;
                },
                torch::randn({2, 3, 8, 10}), {0, 2, 3},
                {{1, 3, 5, 7}, {1, 3, 11, 9}, {1, 3, 2, 3}});
  }
}

}  // namespace
}  // namespace mezzo::deploy
