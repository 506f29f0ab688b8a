// The built-in evaluator: right on every model of the corpus that it knows.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "cases.h"
#include "evaluator.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

// The outputs of a model on its stored sample; nothing, with the reason, where it is beyond the
// evaluator.
std::vector<Array> outputs_of(const fs::path& model, const fs::path& data, std::string* why) {
  try {
    const auto session = Evaluator(library()).open(model, false);
    const auto sample = stored_sample(data, session->inputs());
    if (sample) return session->run(*sample);
    *why = "(an input is no tensor)";
  } catch (const Error& error) {
    *why = error.what();
  }
  return {};
}

std::vector<std::optional<Array>> stored_outputs(const fs::path& model, std::size_t count) {
  std::vector<std::optional<Array>> outputs;
  for (std::size_t i = 0; i < count; ++i) {
    outputs.push_back(
        stored(model.parent_path() / "test_data_set_0" / ("output_" + std::to_string(i) + ".pb")));
  }
  return outputs;
}

bool all_agree(const std::vector<std::optional<Array>>& reference, const std::vector<Array>& got,
               double tolerance) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (reference[i] && !agrees(*reference[i], got[i], tolerance)) return false;
  }
  return true;
}

// Its outputs were stored with an epsilon of 0.01, which its node does not have.
bool stores_another_epsilon(const fs::path& model) {
  return model.parent_path().filename() == "test_adam_multiple";
}

TEST(Evaluator, AgreesWithTheStoredOutputsOfTheCorpus) {
  int models = 0, evaluated = 0, agreeing = 0;
  std::map<std::string, int> unknown;
  for (const fs::path& model : corpus_models()) {
    if (is_random(model) || stores_bits(model) || stores_another_epsilon(model)) continue;
    ++models;
    std::string why;
    const std::vector<Array> got = outputs_of(model, model, &why);
    if (got.empty()) {
      ++unknown[why.substr(std::min(why.find('('), why.size()))];
      continue;
    }
    ++evaluated;
    const bool agree = all_agree(stored_outputs(model, got.size()), got, 2e-3);
    agreeing += agree ? 1 : 0;
    EXPECT_TRUE(agree) << model;
  }
  std::printf("the evaluator knows %d of %d models and agrees on %d\n", evaluated, models,
              agreeing);
  for (const auto& [why, count] : unknown) std::printf("  %d x %s\n", count, why.c_str());
  EXPECT_GE(agreeing, 943);
}

// Are there inputs of more digits than 16 bits hold, or outputs beyond float16?
bool needs_float_io(const fs::path& model) {
  const std::string name = model.string();
  return name.find("large_number") != std::string::npos ||
         name.find("FLOAT_to_STRING") != std::string::npos ||
         name.find("reduce_prod_default_axes_keepdims_example") != std::string::npos;
}

// A conversion in the opset in which most is allowed; nothing where the model cannot have low
// inputs and outputs.
std::optional<Report> converted_where_possible(const fs::path& model, const fs::path& out,
                                               Options options) {
  // bfloat16 is allowed from opset 22 on for most; where a model cannot be raised it stays.
  const std::vector<std::string> opsets = options.target_dtype == "float16"
                                              ? std::vector<std::string>{"keep"}
                                              : std::vector<std::string>{"22", "keep"};
  for (const std::string& opset : opsets) {
    options.opset = opset;
    try {
      return convert_model(model, out, options).report;
    } catch (const UnsupportedError&) {
      EXPECT_TRUE(opset != "keep" || options.io == "low") << model;
    }
  }
  return std::nullopt;
}

TEST(Evaluator, FindsConversionsToBothTypesAccurate) {
  const fs::path folder = scratch_folder("evaluate");
  const fs::path out = folder / "out.onnx";
  for (const auto& [dtype, io] : {std::pair("float16", "keep"), std::pair("float16", "low"),
                                  std::pair("bfloat16", "keep"), std::pair("bfloat16", "low")}) {
    Options options;
    options.target_dtype = dtype;
    options.io = io;
    options.cast_optional_params = true;
    options.verify = "none";
    const double tolerance = options.target_dtype == "float16" ? 0.02 : 0.1;
    int evaluated = 0, changed = 0, agreeing = 0;
    for (const fs::path& model : corpus_models()) {
      if (is_random(model) || stores_bits(model)) continue;
      std::string why;
      if (outputs_of(model, model, &why).empty()) continue;
      const std::optional<Report> report = converted_where_possible(model, out, options);
      if (!report) continue;
      const std::vector<Array> got = outputs_of(out, model, &why);
      EXPECT_FALSE(got.empty()) << model << ' ' << why;
      if (got.empty()) continue;
      ++evaluated;
      changed += report->low_nodes != 0 ? 1 : 0;
      const bool agree = all_agree(stored_outputs(model, got.size()), got, tolerance);
      agreeing += agree ? 1 : 0;
      const bool is_held = options.io == "keep" || !needs_float_io(model);
      EXPECT_TRUE(agree || !is_held) << options.target_dtype << ' ' << model;
    }
    std::printf("%s, io %s, profile spec: %d of %d results agree (%d with low operators)\n",
                options.target_dtype.c_str(), options.io.c_str(), agreeing, evaluated, changed);
    EXPECT_GT(changed, 70);
  }
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
