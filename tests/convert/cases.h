// The inputs and outputs that libonnx-testdata stores beside its models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "builder.h"
#include "convert/engine/runner.h"
#include "convert/judge/metrics.h"
#include "convert/onnx/document.h"
#include "convert/onnx/tensor.h"
#include "corpus.h"
#include "mezzo/error.h"

namespace mezzo::convert {

/// A stored input or output; nothing for sequences and optionals.
inline std::optional<Array> stored(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  Document document(std::string("\x3A\x00", 2));
  const std::string bytes = contents(path);
  try {
    return array_of(document, Message::parse(bytes));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The first stored sample of a model for these inputs; nothing where one is no tensor.
inline std::optional<Sample> stored_sample(const std::filesystem::path& model,
                                           const std::vector<std::string>& inputs) {
  Sample sample;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto array =
        stored(model.parent_path() / "test_data_set_0" / ("input_" + std::to_string(i) + ".pb"));
    if (!array) return std::nullopt;
    sample[inputs[i]] = *array;
  }
  return sample;
}

/// Outputs that are drawn at random agree with nothing.
inline bool is_random(const std::filesystem::path& model) {
  const std::string name = model.string();
  return name.find("random") != std::string::npos || name.find("bernoulli") != std::string::npos ||
         name.find("training_dropout") != std::string::npos;
}

/// bfloat16 is stored as integers of the same bits.
inline bool stores_bits(const std::filesystem::path& model) {
  return model.string().find("BFLOAT16") != std::string::npos;
}

/// Floats within `tolerance` of the output's range, integers within one, the same strings.
inline bool agrees(const Array& reference, const Array& got, double tolerance = 0.02) {
  if (reference.element == Element::kString)
    return reference.dims == got.dims && reference.bytes == got.bytes;
  const OutputError error = compare_outputs("", reference, got);
  const bool is_float =
      reference.element == Element::kFloat || reference.element == Element::kFloat16 ||
      reference.element == Element::kBFloat16 || reference.element == Element::kDouble;
  return error.finite && (is_float ? error.relative_to_range < tolerance : error.max_absolute <= 1);
}

/// x * 400 * 400 / 400 / 400 between two products: infinite in half, harmless in float.
inline Message overflowing_model() {
  GraphBuilder g;
  g.input("x").weight("w", {1, 0, 0, 1}).weight("k", {400, 400, 400, 400});
  g.node("MatMul", {"x", "w"}, {"a"}).node("Mul", {"a", "k"}, {"b"}).node("Mul", {"b", "k"}, {"c"});
  g.node("Div", {"c", "k"}, {"d"})
      .node("Div", {"d", "k"}, {"e"})
      .node("MatMul", {"e", "w"}, {"y"})
      .output("y");
  return model(g.take());
}

}  // namespace mezzo::convert
