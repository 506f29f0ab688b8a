// Transformers whose weights are mostly tables: half their size, and as right as with tables of
// float32.
#include "transformers.h"

#include "corpus.h"
#include "evaluator.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class TransformersOfTables : public JudgedConversions {
 protected:
  void give(const Transformer& transformer, int opset) {
    save(in(), transformer.make(opset));
    options_.calibration.clear();
    for (const std::string& name : transformer.inputs)
      add_sample(row_numbers(name, name == "kinds" ? 2 : 2500));
  }
  Report converted() { return convert_model(in(), out(), options_).report; }
};

TEST_F(TransformersOfTables, HaveAtMost52HundredthsOfTheirSize) {
  for (const Transformer& transformer : transformers()) {
    for (const int opset : {14, 16, 17}) {
      for (const char* dtype : {"float16", "bfloat16"}) {
        SCOPED_TRACE(transformer.name + " " + std::to_string(opset) + " " + dtype);
        give(transformer, opset);
        options_.target_dtype = dtype;
        options_.verify = "run";
        options_.fp32_ops.reset();
        const Report report = converted();
        const double part =
            static_cast<double>(fs::file_size(out())) / static_cast<double>(fs::file_size(in()));
        EXPECT_LE(part, 0.52);
        EXPECT_EQ(report.duplicated_weights, 0);
        std::size_t tables = 0;
        for (const auto& [name, type] : weight_types(out())) {
          for (const std::string& table : transformer.tables) {
            if (!name.starts_with(table)) continue;
            EXPECT_EQ(type, dtype) << name;
            ++tables;
          }
        }
        EXPECT_EQ(tables, transformer.tables.size());
        const double error = report.errors.at(0).relative_to_range;
        // The same with tables of float32: all that rounding them adds is of the size of the rest.
        options_.fp32_ops = std::vector<std::string>{"+Gather", "+Slice"};
        const double before = converted().errors.at(0).relative_to_range;
        std::printf("%s, opset %d, %s: %.4f of its size, error %.2g, with float tables %.2g\n",
                    transformer.name.c_str(), opset, dtype, part, error, before);
        EXPECT_LE(error, 2 * before + (std::string_view(dtype) == "float16" ? 3e-4 : 2.4e-3));
      }
    }
  }
}

TEST_F(TransformersOfTables, AreTheSameByTheirPlanAndWhenTheyAreConvertedAgain) {
  for (const Transformer& transformer : transformers()) {
    SCOPED_TRACE(transformer.name);
    give(transformer, 14);
    options_.calibration.clear();
    options_.verify = "none";
    const Report report = converted();
    const std::string first = contents(out());
    const Plan plan = Plan::from_json(plan_model(in(), options_).to_json());
    apply_plan(in(), folder_ / "planned.onnx", plan, {.verify = "none"});
    EXPECT_EQ(contents(folder_ / "planned.onnx"), first);
    fs::rename(out(), in());
    converted();
    EXPECT_EQ(contents(out()), first);
    EXPECT_GT(report.low_weights, 0);
  }
}

}  // namespace
}  // namespace mezzo::convert
