// Numbers of MXNet 1.9.1, computed again from the ONNX models: by the built-in evaluator, or, in
// the program that has it, by ONNX Runtime. mxnet/judge/make_onnx_data.py wrote the numbers.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "builder.h"
#include "convert/engine/samples.h"
#ifdef MEZZO_EVALUATOR
#include "convert/engine/evaluate.h"
#else
#include "convert/engine/ort.h"
#endif
#include "mezzo/convert_mxnet.h"
#include "mezzo/error.h"

namespace mezzo::convert::mxnet {
namespace {

namespace fs = std::filesystem;

using NumberDims = std::vector<std::int64_t>;

const fs::path kNumbers = fs::path(MEZZO_MXNET_DATA) / "onnx";

const Engine& engine_for_numbers() {
  std::string why;
#ifdef MEZZO_EVALUATOR
  static const OperatorLibrary* const kLibrary = open_operators(MEZZO_EVALUATOR, &why);
  if (kLibrary == nullptr) throw std::runtime_error(why);
  static const Evaluator kEngine(*kLibrary);
#else
  static const auto kRuntime = OrtRuntime::open(MEZZO_ONNXRUNTIME, &why);
  if (!kRuntime) throw std::runtime_error(why);
  static const OrtEngine kEngine(kRuntime);
#endif
  return kEngine;
}

struct Reference {
  Sample inputs;
  std::vector<Array> outputs;
};

Reference reference_of(const fs::path& folder, const std::string& name) {
  Reference reference;
  for (auto& [key, array] : read_npz(contents(folder / (name + ".npz")), name + ".npz")) {
    if (key.starts_with("in:"))
      reference.inputs[key.substr(3)] = array;
    else
      reference.outputs.push_back(array);  // by number
  }
  return reference;
}

// The largest difference, relative to the largest number.
double difference(const Array& got, const Array& wanted) {
  const std::vector<double> a = got.values(), b = wanted.values();
  double largest = 1e-3, error = 0;
  for (std::size_t i = 0; i < b.size() && i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    error = std::max(error, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : HUGE_VAL);
  }
  return error / largest;
}

// Does the ONNX model, written for these options, give MXNet's numbers? Sizes are told or not.
void expect_numbers(const std::string& name, const std::string& dtype, bool tells_sizes,
                    double tolerance, const fs::path& folder = kNumbers) {
  SCOPED_TRACE(name + " " + dtype + (tells_sizes ? " of fixed sizes" : ""));
  const Reference reference = reference_of(folder, name);
  InputShapes shapes;
  for (const auto& [input, array] : reference.inputs) {
    shapes[input] = array.dims;
    if (!tells_sizes) std::ranges::fill(shapes[input], 0);
  }
  const fs::path out =
      fs::temp_directory_path() / ("mezzo_numbers_" + std::to_string(::getpid()) + ".onnx");
  convert::Options options;
  options.target_dtype = dtype;
  options.verify = "none";
  to_onnx(load_checkpoint((folder / name).string(), 0), out, options, shapes);
  const std::vector<Array> outputs = engine_for_numbers().open(out, true)->run(reference.inputs);
  fs::remove(out);
  ASSERT_EQ(outputs.size(), reference.outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].dims, reference.outputs[i].dims) << "output " << i;
    EXPECT_LT(difference(outputs[i], reference.outputs[i]), tolerance) << "output " << i;
  }
}

TEST(MxnetNumbers, EveryOperatorGivesMxnetsInFloat) {
  for (const char* name :
       {"elementwise", "layers", "shapes", "indexing", "detection", "attention"}) {
    expect_numbers(name, "float32", true, 1e-5);
    expect_numbers(name, "float32", false, 1e-5);
  }
}

TEST(MxnetNumbers, EveryOperatorOfNumpyModeGivesMxnetsInFloat) {
  expect_numbers("numpy", "float32", true, 1e-5);
  expect_numbers("numpy_layers", "float32", true, 1e-5);
  expect_numbers("numpy_layers", "float32", false, 1e-5);
}

// The results of a graph on samples, through the ONNX model.
std::vector<Array> results_of(const Checkpoint& checkpoint, const Sample& inputs,
                              InputShapes shapes = {}) {
  for (const auto& [input, array] : inputs) shapes.emplace(input, array.dims);
  const fs::path out =
      fs::temp_directory_path() / ("mezzo_results_" + std::to_string(::getpid()) + ".onnx");
  convert::Options options;
  options.target_dtype = "float32";
  options.verify = "none";
  to_onnx(checkpoint, out, options, shapes);
  std::vector<Array> outputs = engine_for_numbers().open(out, true)->run(inputs);
  fs::remove(out);
  return outputs;
}

std::vector<float> numbers_of(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>((i * 37 % 101) - 50) / 50);
  return values;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

Array array_of(const NumberDims& dims, const std::vector<float>& values) {
  Array array;
  array.element = Element::kFloat;
  array.dims = dims;
  array.bytes = bytes_of(values);
  return array;
}

// From (a, c, h, w) to (a, h, w, c).
std::vector<float> with_channels_last(const std::vector<float>& values, const NumberDims& dims) {
  std::vector<float> moved;
  const std::int64_t area = dims[2] * dims[3];
  for (std::int64_t a = 0; a < dims[0]; ++a)
    for (std::int64_t place = 0; place < area; ++place)
      for (std::int64_t c = 0; c < dims[1]; ++c)
        moved.push_back(values[static_cast<std::size_t>((a * dims[1] + c) * area + place)]);
  return moved;
}

// x -> Convolution with weights and bias -> the only result.
Checkpoint convolution_with(const std::string& layout, const NumberDims& weight_dims,
                            const std::vector<float>& weight) {
  Checkpoint checkpoint;
  checkpoint.symbol = Symbol({{.op = "null", .name = "x"},
                              {.op = "null", .name = "w"},
                              {.op = "null", .name = "b"},
                              {.op = "Convolution",
                               .name = "conv",
                               .attrs = {{"kernel", "(3, 2)"},
                                         {"num_filter", "4"},
                                         {"num_group", "2"},
                                         {"pad", "(1, 0)"},
                                         {"stride", "(1, 2)"},
                                         {"layout", layout}},
                               .inputs = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}}}},
                             {{3, 0, 0}});
  checkpoint.arg_params.set("w", "float32", weight_dims, bytes_of(weight));
  checkpoint.arg_params.set("b", "float32", {4}, bytes_of({1, -1, 2, 0.5F}));
  return checkpoint;
}

// MXNet has no kernels for this layout on a CPU.
TEST(MxnetNumbers, AConvolutionWithTheChannelsLastGivesTheNumbersOfOneWithThemFirst) {
  const NumberDims data{2, 6, 5, 4}, weight{4, 3, 3, 2};
  const std::vector<float> x = numbers_of(240), w = numbers_of(72);
  const std::vector<Array> first =
      results_of(convolution_with("NCHW", weight, w), {{"x", array_of(data, x)}});
  const std::vector<Array> last =
      results_of(convolution_with("NHWC", {4, 3, 2, 3}, with_channels_last(w, weight)),
                 {{"x", array_of({2, 5, 4, 6}, with_channels_last(x, data))}});
  ASSERT_EQ(first[0].dims, (NumberDims{2, 4, 5, 2}));
  ASSERT_EQ(last[0].dims, (NumberDims{2, 5, 2, 4}));
  std::vector<float> wanted;
  for (const double value : first[0].values()) wanted.push_back(static_cast<float>(value));
  EXPECT_LT(difference(last[0], array_of({2, 5, 2, 4}, with_channels_last(wanted, first[0].dims))),
            1e-6);
}

// x and y -> op -> the only result.
Checkpoint of_two(const std::string& op, std::map<std::string, std::string> attrs) {
  return {
      Symbol(
          {{.op = "null", .name = "x"},
           {.op = "null", .name = "y"},
           {.op = op, .name = "it", .attrs = std::move(attrs), .inputs = {{0, 0, 0}, {1, 0, 0}}}},
          {{2, 0, 0}}),
      {},
      {}};
}

// Inference of shapes goes wrong beside it in MXNet 1.9.1.
TEST(MxnetNumbers, HstackJoinsAlongTheSecondAxisOrTheOnlyOne) {
  const Array matrix = array_of({2, 3}, numbers_of(6)), vector = array_of({4}, numbers_of(4));
  const Sample matrices{{"x", matrix}, {"y", matrix}}, vectors{{"x", vector}, {"y", vector}};
  const auto stacked = [](const Sample& inputs) {
    return results_of(of_two("_npi_hstack", {{"num_args", "2"}}), inputs)[0];
  };
  const Checkpoint along_1 = of_two("_npi_concatenate", {{"axis", "1"}});
  EXPECT_EQ(stacked(matrices).values(), results_of(along_1, matrices)[0].values());
  EXPECT_EQ(stacked(matrices).dims, (NumberDims{2, 6}));
  EXPECT_EQ(stacked(vectors).dims, (NumberDims{8}));
}

// 2.x has it: what is masked gets nothing, and the rest is a softmax of its own.
TEST(MxnetNumbers, AMaskedSoftmaxGivesTheMaskedNothing) {
  const Array x = array_of({1, 3}, {0.5F, 9, 1.5F}), mask = array_of({1, 3}, {1, 0, 1});
  const Sample inputs{{"x", x}, {"y", mask}};
  const double first = 1 / (1 + std::exp(0.5));
  const std::vector<double> half =
      results_of(of_two("masked_softmax", {{"temperature", "2.0"}}), inputs)[0].values();
  EXPECT_NEAR(half[0], first, 1e-6);
  EXPECT_EQ(half[1], 0);
  EXPECT_NEAR(half[2], 1 - first, 1e-6);
  const std::vector<double> log =
      results_of(of_two("masked_log_softmax", {{"temperature", "2.0"}}), inputs)[0].values();
  EXPECT_NEAR(log[0], std::log(first), 1e-6);
  EXPECT_EQ(log[1], -HUGE_VAL);
}

// Averages over what lies from floor(i * size / count) to ceil((i + 1) * size / count).
std::vector<double> averages_of(const Array& images, const NumberDims& wanted) {
  const std::vector<double> x = images.values();
  const std::int64_t height = images.dims[2], width = images.dims[3];
  std::vector<double> averages;
  for (std::int64_t image = 0; image < images.dims[0] * images.dims[1]; ++image) {
    for (std::int64_t i = 0; i < wanted[0]; ++i) {
      for (std::int64_t j = 0; j < wanted[1]; ++j) {
        double sum = 0, count = 0;
        for (std::int64_t r = i * height / wanted[0]; r * wanted[0] < (i + 1) * height; ++r) {
          for (std::int64_t s = j * width / wanted[1]; s * wanted[1] < (j + 1) * width; ++s) {
            sum += x[static_cast<std::size_t>((image * height + r) * width + s)];
            ++count;
          }
        }
        averages.push_back(sum / count);
      }
    }
  }
  return averages;
}

TEST(MxnetNumbers, AveragesToSizesThatDoNotDivideOrThatNobodyTells) {
  const auto pooled = [](const std::string& size, const Array& x, const NumberDims& shape) {
    const Checkpoint checkpoint{Symbol({{.op = "null", .name = "x"},
                                        {.op = "_contrib_AdaptiveAvgPooling2D",
                                         .name = "it",
                                         .attrs = {{"output_size", size}},
                                         .inputs = {{0, 0, 0}}}},
                                       {{1, 0, 0}}),
                                {},
                                {}};
    return results_of(checkpoint, {{"x", x}}, {{"x", shape}})[0];
  };
  for (const NumberDims& dims :
       {NumberDims{2, 3, 6, 8}, {1, 2, 5, 7}, {1, 2, 9, 4}, {1, 1, 1, 2}}) {
    const Array x = array_of(dims, numbers_of(dims[0] * dims[1] * dims[2] * dims[3]));
    const NumberDims shapes[] = {
        dims, {0, dims[1], 0, 0}, {0, dims[1], dims[2], 0}, {0, dims[1], 0, dims[3]}};
    for (const NumberDims& shape : shapes) {
      for (const auto& [size, wanted] : {std::pair<std::string, NumberDims>{"(1, 1)", {1, 1}},
                                         {"1", {1, 1}},
                                         {"3", {3, 3}},
                                         {"(6,)", {6, 6}},
                                         {"(2, 3)", {2, 3}},
                                         {"(3, 4)", {3, 4}},
                                         {"(1, 8)", {1, 8}}}) {
        const Array got = pooled(size, x, shape);
        EXPECT_EQ(got.dims, (NumberDims{dims[0], dims[1], wanted[0], wanted[1]})) << size;
        const std::vector<double> averages = averages_of(x, wanted), values = got.values();
        ASSERT_EQ(values.size(), averages.size()) << size;
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_NEAR(values[i], averages[i], 1e-6)
              << size << " of " << dims[2] << " x " << dims[3];
      }
    }
  }
}

TEST(MxnetNumbers, ActivationsThatOnly2xHasAreTheirFormulas) {
  const auto of_one = [](const std::string& op, const std::string& kind, float x) {
    const Checkpoint checkpoint{
        Symbol({{.op = "null", .name = "x"},
                {.op = op, .name = "it", .attrs = {{"act_type", kind}}, .inputs = {{0, 0, 0}}}},
               {{1, 0, 0}}),
        {},
        {}};
    return results_of(checkpoint, {{"x", array_of({1}, {x})}})[0].values()[0];
  };
  for (const float x : {-2.0F, -0.3F, 0.0F, 1.7F}) {
    const double exact = x;
    const double softplus = std::log1p(std::exp(exact));
    EXPECT_NEAR(of_one("Activation", "mish", x), exact * std::tanh(softplus), 1e-6);
    EXPECT_NEAR(of_one("Activation", "log_sigmoid", x), -std::log1p(std::exp(-exact)), 1e-6);
    EXPECT_NEAR(of_one("LeakyReLU", "gelu_erf", x),
                exact / 2 * (1 + std::erf(exact / std::sqrt(2))), 1e-6);
    const double inner =
        std::sqrt(2 / 3.14159265358979) * (exact + 0.044715 * exact * exact * exact);
    EXPECT_NEAR(of_one("LeakyReLU", "gelu_tanh", x), exact / 2 * (1 + std::tanh(inner)), 1e-6);
  }
}

TEST(MxnetNumbers, RecurrentNetworksGiveMxnetsInFloat) {
  for (const char* name :
       {"lstm", "lstm_both", "gru", "gru_both", "rnn_tanh", "rnn_tanh_both", "rnn_relu",
        "rnn_relu_both", "language_lstm", "language_gru", "unrolled_2", "unrolled_4"}) {
    expect_numbers(name, "float32", false, 1e-5);
    expect_numbers(name, "float32", true, 1e-5);
  }
}

TEST(MxnetNumbers, MixedModelsAreWithinTheTypesTolerance) {
  for (const char* name : {"layers", "numpy_layers", "attention", "detection", "lstm", "gru_both",
                           "language_lstm", "language_gru", "unrolled_2", "unrolled_4"}) {
    expect_numbers(name, "float16", false, 5e-3);
#ifdef MEZZO_EVALUATOR  // ONNX Runtime has few kernels for bfloat16 on a CPU
    expect_numbers(name, "bfloat16", false, 4e-2);
#endif
  }
}

// mxnet/judge/judge_onnx.py exports networks and runs this test.
TEST(MxnetNumbers, NetworksOfTheJudge) {
  const char* folder = std::getenv("MEZZO_MXNET_NETWORKS");
  if (folder == nullptr) GTEST_SKIP() << "no networks: mxnet/judge/judge_onnx.py exports them";
  int networks = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".npz") continue;
    const std::string name = entry.path().stem().string();
    expect_numbers(name, "float32", false, 1e-4, folder);
    // Boxes of nearly equal scores change places in 16 bits; "heads" are what comes before.
    if (!name.starts_with("ssd") || name.ends_with("heads"))
      expect_numbers(name, "float16", false, 1e-2, folder);
    ++networks;
  }
  EXPECT_GT(networks, 0);
}

}  // namespace
}  // namespace mezzo::convert::mxnet
