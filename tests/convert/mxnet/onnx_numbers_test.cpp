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
  for (const char* name : {"elementwise", "layers", "shapes", "indexing", "detection"}) {
    expect_numbers(name, "float32", true, 1e-5);
    expect_numbers(name, "float32", false, 1e-5);
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
  for (const char* name : {"layers", "detection", "lstm", "gru_both", "language_lstm",
                           "language_gru", "unrolled_2", "unrolled_4"}) {
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
    // Boxes of nearly equal scores change places in 16 bits.
    if (!name.starts_with("ssd")) expect_numbers(name, "float16", false, 1e-2, folder);
    ++networks;
  }
  EXPECT_GT(networks, 0);
}

}  // namespace
}  // namespace mezzo::convert::mxnet
