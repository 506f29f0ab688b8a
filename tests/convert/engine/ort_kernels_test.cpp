// ONNX Runtime and the table of what it does not run.
#include <gmock/gmock.h>

#include <cstdio>

#include "cases.h"
#include "convert/engine/ort.h"
#include "half_island.h"
#include "kernel_models.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class OnnxRuntimeKernels : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("ort_kernels");
    std::string why;
    runtime_ = OrtRuntime::open(MEZZO_ONNXRUNTIME, &why);
    ASSERT_TRUE(runtime_) << why;
  }

  // The outputs, or nothing where the model is not loaded or run.
  std::optional<std::vector<Array>> outputs(const fs::path& model, const Sample& sample,
                                            bool optimise) {
    try {
      return OrtSession(runtime_, model, optimise).run(sample);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  Sample sample_of(const KernelGap& gap) {
    Sample sample;
    Document document(std::string("\x3A\x00", 2));
    const KernelCase made = kernel_case(gap);
    for (const KernelInput& in : made.inputs) {
      if (in.name.empty()) continue;
      const std::string bytes = bytes_of(in.values());
      sample[in.name] = array_of(document, Message::parse(bytes));
    }
    return sample;
  }

  fs::path folder_;
  std::shared_ptr<OrtRuntime> runtime_;
};

TEST_F(OnnxRuntimeKernels, FailWhereTheTableSaysSo) {
  for (const KernelGap& gap : kernel_gaps()) {
    const Sample sample = sample_of(gap);
    save(folder_ / "float.onnx", kernel_model(gap, {}));
    save(folder_ / "low.onnx", kernel_model(gap, {std::string(gap.variable)}));
    bool fails = false;
    for (const bool optimise : {true, false}) {
      EXPECT_TRUE(outputs(folder_ / "float.onnx", sample, optimise)) << gap.op << gap.since;
      fails = fails || !outputs(folder_ / "low.onnx", sample, optimise);
    }
    EXPECT_TRUE(fails) << runtime_->version() << " runs " << gap.op << ' ' << gap.since
                       << " with a low " << gap.variable
                       << ": tools/make_onnxruntime_kernels.py makes the table";
  }
}

TEST_F(OnnxRuntimeKernels, RunWhatIsConvertedOfTheTablesOperators) {
  for (const KernelGap& gap : kernel_gaps()) {
    const Sample sample = sample_of(gap);
    save(folder_ / "in.onnx", kernel_model(gap, {}));
    const auto expected = outputs(folder_ / "in.onnx", sample, true);
    ASSERT_TRUE(expected) << gap.op;
    for (const char* io : {"keep", "low"}) {
      Options options;
      options.io = io;
      options.verify = "none";
      options.choose = [](const Decision&) -> std::optional<bool> { return true; };
      convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options);
      for (const bool optimise : {true, false}) {
        const auto got = outputs(folder_ / "out.onnx", sample, optimise);
        EXPECT_TRUE(got) << io << ' ' << gap.op << gap.since;
        if (!got) continue;
        EXPECT_TRUE(agrees((*expected)[0], (*got)[0])) << io << ' ' << gap.op << gap.since;
      }
    }
  }
}

// Engines take Casts out where they find pairs of them; what is left must be right in either way.
TEST_F(OnnxRuntimeKernels, RunAnIslandOfHalfWithAndWithoutOptimisations) {
  Sample sample;
  Document document(std::string("\x3A\x00", 2));
  const std::string bytes = bytes_of(floats("x", {4, 8}, uniform_values(32, 3, 6)));
  sample["x"] = array_of(document, Message::parse(bytes));
  for (const bool is_multiplied : {false, true}) {
    save(folder_ / "in.onnx", half_island(false, is_multiplied));
    const auto expected = outputs(folder_ / "in.onnx", sample, false);
    ASSERT_TRUE(expected);
    for (const bool rounds_weights : {false, true}) {
      Options options;
      options.cast_optional_params = rounds_weights;
      options.verify = "none";
      convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options);
      for (const bool optimise : {true, false}) {
        const auto got = outputs(folder_ / "out.onnx", sample, optimise);
        ASSERT_TRUE(got) << optimise;
        EXPECT_TRUE(agrees((*expected)[0], (*got)[0], 2e-3)) << is_multiplied << optimise;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::convert
