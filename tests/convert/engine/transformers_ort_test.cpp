// Transformers whose tables are stored in 16 bits, in ONNX Runtime as users run it: on a CPU it
// has float16 alone.
#include "convert/engine/ort.h"
#include "convert/judge/metrics.h"
#include "corpus.h"
#include "transformers.h"

namespace mezzo::convert {
namespace {

TEST(OrtTransformers, LoadAndRunWithTheirTablesInHalf) {
  namespace fs = std::filesystem;
  std::string why;
  const std::shared_ptr<OrtRuntime> runtime = OrtRuntime::open(MEZZO_ONNXRUNTIME, &why);
  ASSERT_NE(runtime, nullptr) << why;
  const fs::path folder = scratch_folder("transformers");
  for (const Transformer& transformer : transformers()) {
    Sample sample;
    for (const std::string& name : transformer.inputs) {
      std::vector<std::int64_t> rows(24);
      for (std::size_t i = 0; i < 24; ++i)
        rows[i] = static_cast<std::int64_t>(83 * i + 5) % (name == "kinds" ? 2 : 2500);
      Array& array = sample[name];
      array.element = Element::kInt64;
      array.dims = {1, 24};
      array.bytes.assign(reinterpret_cast<const char*>(rows.data()),
                         rows.size() * sizeof(std::int64_t));
    }
    for (const int opset : {14, 16, 17}) {
      for (const char* profile : {"portable", "ort"}) {
        SCOPED_TRACE(transformer.name + " " + std::to_string(opset) + " " + profile);
        save(folder / "in.onnx", transformer.make(opset));
        Options options;
        options.cast_optional_params = true;
        options.profile = profile;
        options.verify = "none";
        convert_model(folder / "in.onnx", folder / "out.onnx", options);
        ASSERT_EQ(refusal_of(runtime, folder / "out.onnx"), "");
        const auto before = OrtSession(runtime, folder / "in.onnx", true).run(sample);
        const auto after = OrtSession(runtime, folder / "out.onnx", true).run(sample);
        ASSERT_EQ(after.size(), 1U);
        const OutputError error = compare_outputs("y", before[0], after[0]);
        EXPECT_TRUE(error.finite);
        EXPECT_LT(error.relative_to_range, 5e-3);
      }
    }
  }
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
