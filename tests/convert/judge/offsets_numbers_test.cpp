// Numbers of normalisations whose operands share an offset.
#include <gmock/gmock.h>

#include <cmath>

#include "evaluator.h"
#include "offset_models.h"

namespace mezzo::convert {
namespace {

class OffsetsNumbers : public JudgedConversions {
 protected:
  double error_of(const Message& made, const std::string& dtype, const Sample& sample,
                  bool without_pin = false) {
    save(in(), made);
    options_.target_dtype = dtype;
    options_.verify = "none";
    options_.without_pins.clear();
    if (without_pin) options_.without_pins = {"offsets"};
    convert_model(in(), out(), options_);
    Document document(out());
    const Graph graph(document);
    const std::vector<DatumPtr> got = Evaluation(library(), document, graph).run(sample);
    const std::vector<Array> wanted = evaluated(made, sample);
    double error = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      error = std::max(error, compare_outputs("", wanted[i], got[i]->tensor).relative_to_range);
    return error;
  }

  static Sample around(float offset, float spread, const std::vector<std::int64_t>& dims) {
    Array x = random_floats(dims, 3);
    std::vector<float> values;
    for (const double value : x.values())
      values.push_back(offset + spread * static_cast<float>(value));
    return {{"x", array(Element::kFloat, dims, values)}};
  }
};

TEST_F(OffsetsNumbers, OfNormalisationsAreAccurate) {
  const std::vector<std::tuple<const char*, Message, Sample>> models = [] {
    std::vector<std::tuple<const char*, Message, Sample>> all;
    all.emplace_back("constant", shifted_norm(100, 0.3F), around(0, 1, {8, 4}));
    all.emplace_back("bias", biased_norm({100, 100.5F, 99.5F, 100}), around(0, 1, {8, 4}));
    all.emplace_back("caller", given_norm(), around(100, 0.3F, {8, 4}));
    all.emplace_back("pieces", shifted_pieces("ReduceSum"), around(0, 1, {8, 4}));
    all.emplace_back("channels", biased_channels("InstanceNormalization", {100, -80}),
                     around(0, 1, {1, 2, 4, 4}));
    all.emplace_back("batch", batch_norm({0.7F, 0.7F}, {1e-6F, 1e-6F}, {1, 1}),
                     around(0, 1, {1, 2, 4, 4}));
    return all;
  }();
  for (const auto& [name, made, sample] : models) {
    EXPECT_LT(error_of(made, "float16", sample), 0.002) << name;
    EXPECT_LT(error_of(made, "bfloat16", sample), 0.02) << name;
    EXPECT_GT(error_of(made, "bfloat16", sample, true), 0.05) << name << ", without the pin";
  }
}

}  // namespace
}  // namespace mezzo::convert
