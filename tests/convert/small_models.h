// Small models of what broke in large ones, judged with every 16-bit value rounded: over both
// types, inputs and outputs kept or low, profiles, and with and without calibration.
#pragma once

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {

struct SmallModel {
  std::string name;
  Message model;
  Message input;
  double most_error = 0.02;
};

inline std::vector<float> wave_values(std::size_t count, float loudness) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto t = static_cast<float>(i);
    values[i] = loudness * (std::sin(0.37F * t) + 0.05F * std::sin(1.9F * t));
  }
  return values;
}

inline std::vector<float> uniform_values(std::size_t count, float largest, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> drawn(-largest, largest);
  std::vector<float> values(count);
  for (float& value : values) value = drawn(random);
  return values;
}

inline std::vector<float> step_values(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>(i);
  return values;
}

// Signal, two transforms of it, and numbers that spectra need.
inline GraphBuilder transformed_signal() {
  constexpr std::int64_t kTaps = 64;
  std::vector<float> re, im;
  for (std::int64_t band = 0; band < 16; ++band) {
    for (std::int64_t k = 0; k < kTaps; ++k) {
      const double turn = 2 * M_PI * static_cast<double>(band * k) / kTaps;
      const double window = 0.5 - 0.5 * std::cos(2 * M_PI * static_cast<double>(k) / kTaps);
      re.push_back(static_cast<float>(window * std::cos(turn)));
      im.push_back(static_cast<float>(window * std::sin(turn)));
    }
  }
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 512}).weight("re", re, {16, 1, kTaps});
  g.weight("im", im, {16, 1, kTaps}).weight("two", {2}, {}).weight("floor", {1e-12F}, {});
  const auto stride = [] { return integers_attribute("strides", {16}); };
  g.node("Conv", {"x", "re"}, {"r"}, stride()).node("Conv", {"x", "im"}, {"i"}, stride());
  return g;
}

// The logarithm of the power of quiet audio.
inline SmallModel quiet_spectrum() {
  GraphBuilder g = transformed_signal();
  g.node("Mul", {"r", "r"}, {"rr"}).node("Mul", {"i", "i"}, {"ii"});
  g.node("Add", {"rr", "ii"}, {"s"}).node("Sqrt", {"s"}, {"a"}).node("Pow", {"a", "two"}, {"p"});
  g.node("Max", {"p", "floor"}, {"m"}).node("Log", {"m"}, {"y"});
  return {"quiet spectrum", model(g.output("y", Element::kFloat, {1, 16, 29}).take()),
          floats("x", {1, 1, 512}, wave_values(512, 0.003F))};
}

// The same where both transforms are joined and scaled before they are squared.
inline SmallModel joined_spectrum() {
  GraphBuilder g = transformed_signal();
  g.weight("quiet", {0.01F}, {}).weight("lengths", uniform_values(16, 0.5F, 9), {1, 1, 16, 1});
  g.initializer(tensor<std::int64_t>("front", Element::kInt64, {1}, {0}));
  g.node("Unsqueeze", {"r", "front"}, {"r1"}).node("Unsqueeze", {"i", "front"}, {"i1"});
  g.node("Concat", {"r1", "i1"}, {"c"}, attribute("axis", std::int64_t{0}))
      .node("Mul", {"c", "lengths"}, {"z"});
  g.node("Mul", {"z", "z"}, {"zz"}).node("ReduceSum", {"zz", "front"}, {"s"});
  g.node("Sqrt", {"s"}, {"a"}).node("Max", {"a", "quiet"}, {"m"}).node("Log", {"m"}, {"y"});
  std::vector<float> signal = wave_values(512, 1);
  const std::vector<float> noise = uniform_values(512, 0.003F, 10);
  for (std::size_t k = 0; k < 512; ++k) signal[k] += noise[k];
  return {"joined spectrum", model(g.output("y", Element::kFloat, {1, 1, 16, 29}).take()),
          floats("x", {1, 1, 512}, signal), 0.004};
}

// Rows of length one, where one row is zero.
inline SmallModel normalised_rows() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 8}).weight("w", uniform_values(64, 1, 1), {8, 8});
  g.weight("epsilon", {1e-12F}, {});
  g.initializer(tensor<std::int64_t>("shape", Element::kInt64, {2}, {4, 8}));
  g.node("MatMul", {"x", "w"}, {"a"});
  g.node("ReduceL2", {"a"}, {"n"}, integers_attribute("axes", {1}));
  g.node("Clip", {"n", "epsilon"}, {"c"}).node("Expand", {"c", "shape"}, {"e"});
  g.node("Div", {"a", "e"}, {"d"}).node("MatMul", {"d", "w"}, {"y"});
  std::vector<float> x = uniform_values(32, 1, 2);
  std::fill(x.begin() + 8, x.begin() + 16, 0.0F);
  return {"a zero row", model(g.output("y", Element::kFloat, {4, 8}).take()),
          floats("x", {4, 8}, x)};
}

inline SmallModel angles_of_positions() {
  GraphBuilder g;
  g.input("ids", Element::kInt64, {64, 1}).weight("half", {0.5F}, {});
  std::vector<float> frequencies(16);
  for (std::size_t i = 0; i < 16; ++i)
    frequencies[i] = std::pow(10000.0F, -static_cast<float>(i) / 16);
  g.weight("frequencies", frequencies, {1, 16}).weight("w", uniform_values(256, 0.3F, 3), {16, 16});
  g.node("Cast", {"ids"}, {"p"}, attribute("to", 1)).node("Mul", {"p", "half"}, {"h"});
  g.node("MatMul", {"h", "frequencies"}, {"a"}).node("Sin", {"a"}, {"s"});
  g.node("MatMul", {"s", "w"}, {"y"});
  std::vector<std::int64_t> ids(64);
  for (std::size_t i = 0; i < 64; ++i) ids[i] = static_cast<std::int64_t>(61 * i);
  return {"angles", model(g.output("y", Element::kFloat, {64, 16}).take()),
          tensor("ids", Element::kInt64, {64, 1}, ids)};
}

inline SmallModel disparities() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {256, 16})
      .weight("w", uniform_values(16 * 256, 0.4F, 4), {16, 256});
  g.weight("column", step_values(256, 1), {256, 1});
  g.node("MatMul", {"x", "w"}, {"c"}).node("Softmax", {"c"}, {"p"});
  g.node("MatMul", {"p", "column"}, {"e"}).node("Sub", {"e", "column"}, {"y"});
  return {"disparities",
          model(g.output("y", Element::kFloat, {256, 1}).take()),
          {floats("x", {256, 16}, uniform_values(256 * 16, 1, 5))},
          0.05};
}

// A pixel grid and offsets of two convolutions, at which an image is read.
inline SmallModel warped_image() {
  constexpr std::int64_t kSide = 64;
  std::vector<float> grid(2 * kSide * kSide);
  for (std::size_t i = 0; i < grid.size() / 2; ++i) {
    grid[i] = 16 * static_cast<float>(i % kSide);
    grid[i + kSide * kSide] = 16 * static_cast<float>(i / kSide);
  }
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2, kSide, kSide}).weight("grid", grid, {1, 2, kSide, kSide});
  g.weight("w", {0.5F, -0.2F, 0.1F, 0.7F}, {2, 2, 1, 1})
      .weight("size", {512}, {})
      .weight("one", {1}, {});
  g.node("Conv", {"x", "w"}, {"o"}).node("Conv", {"o", "w"}, {"o2"});
  g.node("Add", {"grid", "o"}, {"a"})
      .node("Add", {"a", "o2"}, {"b"})
      .node("Div", {"b", "size"}, {"n"});
  g.node("Sub", {"n", "one"}, {"m"});
  g.node("Transpose", {"m"}, {"t"}, integers_attribute("perm", {0, 2, 3, 1}));
  g.node("GridSample", {"x", "t"}, {"y"});
  return {"warped image",
          model(g.output("y", Element::kFloat, {1, 2, kSide, kSide}).take()),
          {floats("x", {1, 2, kSide, kSide}, uniform_values(2 * kSide * kSide, 1, 6))},
          0.03};
}

inline SmallModel refined_boxes() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {16, 8}).weight("w", uniform_values(64, 1.5F, 7), {8, 8});
  g.weight("one", {1}, {}).weight("least", {1e-3F}, {});
  g.node("MatMul", {"x", "w"}, {"m"})
      .node("Sigmoid", {"m"}, {"c"})
      .node("Sub", {"one", "c"}, {"r"});
  g.node("Max", {"r", "least"}, {"b"}).node("Div", {"c", "b"}, {"q"}).node("Log", {"q"}, {"l"});
  g.node("Sigmoid", {"l"}, {"y"});
  return {"refined boxes", model(g.output("y", Element::kFloat, {16, 8}).take()),
          floats("x", {16, 8}, uniform_values(128, 1, 8))};
}

// How near each row is to each of several codes: |a|^2 - 2 a b + |b|^2.
inline SmallModel nearest_codes() {
  constexpr std::size_t kRows = 8, kWidth = 16;
  std::vector<float> rows = uniform_values(kRows * kWidth, 4, 9);
  for (float& value : rows) value += 10;
  std::vector<float> codes(rows.size()), lengths(kRows, 0.0F);
  const std::vector<float> away = uniform_values(rows.size(), 0.2F, 10);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      const float code = rows[row * kWidth + i] + away[row * kWidth + i];
      codes[i * kRows + row] = code;
      lengths[row] += code * code;
    }
  }
  GraphBuilder g;
  g.input("x", Element::kFloat, {8, 16}).weight("codes", codes, {16, 8});
  g.weight("lengths", lengths, {1, 8}).weight("two", {2}, {});
  g.node("MatMul", {"x", "codes"}, {"dots"}).node("Mul", {"dots", "two"}, {"cross"});
  g.node("ReduceSumSquare", {"x"}, {"n"}, integers_attribute("axes", {1}));
  g.node("Add", {"n", "lengths"}, {"both"}).node("Sub", {"both", "cross"}, {"d"});
  g.node("Neg", {"d"}, {"e"}).node("Exp", {"e"}, {"y"});
  return {"nearest codes", model(g.output("y", Element::kFloat, {8, 8}).take()),
          floats("x", {8, 16}, rows)};
}

// Edges of a picture with little contrast, by a filter.
inline SmallModel faint_edges() {
  constexpr std::size_t kSide = 32;
  std::vector<std::uint8_t> pixels(kSide * kSide);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(150 + (i % kSide / 4 + i / kSide / 5) % 3);
  GraphBuilder g;
  g.input("x", Element::kUint8, {1, 1, kSide, kSide}).weight("scale", {1 / 255.0F}, {});
  g.weight("sobel", {-1, 0, 1, -2, 0, 2, -1, 0, 1, -1, -2, -1, 0, 0, 0, 1, 2, 1}, {2, 1, 3, 3});
  g.node("Cast", {"x"}, {"f"}, attribute("to", 1)).node("Mul", {"f", "scale"}, {"s"});
  g.node("Conv", {"s", "sobel"}, {"y"});
  return {"faint edges", model(g.output("y", Element::kFloat, {1, 2, 30, 30}).take()),
          tensor("x", Element::kUint8, {1, 1, kSide, kSide}, pixels)};
}

// (anchor + right) - (anchor - left), far from the origin.
inline SmallModel box_sizes() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {16, 8}).weight("w", uniform_values(64, 1, 11), {8, 8});
  g.weight("v", uniform_values(64, 1, 12), {8, 8}).weight("anchors", step_values(128, 13), {16, 8});
  g.node("MatMul", {"x", "w"}, {"right"}).node("MatMul", {"x", "v"}, {"left"});
  g.node("Add", {"anchors", "right"}, {"high"}).node("Sub", {"anchors", "left"}, {"low"});
  g.node("Sub", {"high", "low"}, {"y"});
  return {"box sizes", model(g.output("y", Element::kFloat, {16, 8}).take()),
          floats("x", {16, 8}, uniform_values(128, 2, 13))};
}

/// Converts all of them in every mode. The error is small without calibration, and with it not
/// larger. `libraries` names the libraries that judge.
inline void expect_small_models_stay_right(const Judges& libraries,
                                           const std::vector<std::string>& profiles) {
  namespace fs = std::filesystem;
  for (const auto make :
       {quiet_spectrum, joined_spectrum, normalised_rows, angles_of_positions, disparities,
        warped_image, refined_boxes, nearest_codes, faint_edges, box_sizes}) {
    const SmallModel small = make();
    const fs::path folder = scratch_folder("small");
    save(folder / "in.onnx", small.model);
    const std::vector<fs::path> samples{folder / "sample.pb"};
    save(samples[0], small.input);
    for (const char* dtype : {"float16", "bfloat16"}) {
      const bool is_half = std::string_view(dtype) == "float16";
      for (const char* io : {"keep", "low"}) {
        for (const std::string& profile : profiles) {
          Options options;
          options.target_dtype = dtype;
          options.io = io;
          options.profile = profile;
          options.opset = "auto";
          options.cast_optional_params = true;
          options.verify = "none";
          options.onnxruntime = libraries.onnxruntime;
          options.evaluator = libraries.evaluator;
          const Plan blind = plan_model(folder / "in.onnx", options);
          options.calibration = samples;
          const Plan calibrated = plan_model(folder / "in.onnx", options);
          const auto error_of = [&](const Plan& plan) {
            Judges judges{.verify = "run", .calibration = samples};
            judges.onnxruntime = libraries.onnxruntime;
            judges.evaluator = libraries.evaluator;
            const Report report =
                apply_plan(folder / "in.onnx", folder / "out.onnx", plan, judges).report;
            return report.errors.empty() ? 0 : report.errors.at(0).relative_to_range;
          };
          const double without = error_of(blind);
          const double with = error_of(calibrated);
          std::printf("%s, %s, io %s, profile %s: %.2g, calibrated %.2g\n", small.name.c_str(),
                      dtype, io, profile.c_str(), without, with);
          // bfloat16 has an eighth of the digits, and inputs that are low are rounded before.
          const double most =
              small.most_error * (is_half ? 1 : 5) * (std::string_view(io) == "low" ? 4 : 1);
          EXPECT_LT(without, most) << small.name << ' ' << dtype << ' ' << io << ' ' << profile;
          EXPECT_LE(with, without * 1.0001 + 1e-7)
              << small.name << ' ' << dtype << ' ' << io << ' ' << profile;
        }
      }
    }
    fs::remove_all(folder.parent_path());
  }
}

}  // namespace mezzo::convert
