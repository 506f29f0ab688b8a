// The built-in evaluator for tests: its operators, models evaluated in memory, and conversions that
// it judges.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "builder.h"
#include "convert/engine/evaluate.h"
#include "convert/onnx/document.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

inline const OperatorLibrary& library() {
  static const OperatorLibrary* const kLibrary = [] {
    std::string why;
    const OperatorLibrary* opened = open_operators(MEZZO_EVALUATOR, &why);
    EXPECT_NE(opened, nullptr) << why;
    return opened;
  }();
  return *kLibrary;
}

inline std::vector<Array> evaluated(const Message& made, const Sample& sample) {
  Document document(bytes_of(made));
  const Graph graph(document);
  std::vector<Array> outputs;
  for (const DatumPtr& datum : Evaluation(library(), document, graph).run(sample))
    outputs.push_back(datum->tensor);
  return outputs;
}

template <typename T>
Array array(Element element, const std::vector<std::int64_t>& dims, const std::vector<T>& values) {
  Array made;
  made.element = element;
  made.dims = dims;
  made.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return made;
}

inline std::size_t count_of(const std::vector<std::int64_t>& dims) {
  std::size_t count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
  return count;
}

inline Array random_floats(const std::vector<std::int64_t>& dims, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count_of(dims));
  for (float& value : values) value = uniform(random);
  return array(Element::kFloat, dims, values);
}

/// Conversions in a folder of their own, without another judge.
class JudgedConversions : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("judged");
    options_.evaluator = MEZZO_EVALUATOR;
    options_.onnxruntime = folder_;  // not there
    options_.cast_optional_params = true;
  }
  std::filesystem::path in() const { return folder_ / "in.onnx"; }
  std::filesystem::path out() const { return folder_ / "out.onnx"; }
  void add_sample(const Message& tensor) {
    const auto path = folder_ / ("sample" + std::to_string(options_.calibration.size()) + ".pb");
    save(path, tensor);
    options_.calibration.push_back(path);
  }

  std::filesystem::path folder_;
  Options options_;
};

}  // namespace mezzo::convert
