// ONNX Runtime as the judge: every model of the corpus that it loads gives a result that it loads,
// that runs, keeps the inputs and outputs asked for, and agrees with the stored outputs.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "cases.h"
#include "convert/engine/ort.h"
#include "joined_models.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<OrtRuntime> runtime() {
  static const std::shared_ptr<OrtRuntime> kRuntime = [] {
    std::string why;
    auto opened = OrtRuntime::open(MEZZO_ONNXRUNTIME, &why);
    EXPECT_TRUE(opened) << why;
    return opened;
  }();
  return kRuntime;
}

std::unique_ptr<OrtSession> load(const fs::path& model) {
  try {
    return std::make_unique<OrtSession>(runtime(), model, true);
  } catch (const Error&) {
    return nullptr;
  }
}

struct Case {
  Sample sample;
  std::vector<Array> outputs;
};

std::optional<Case> read_case(const fs::path& model, const OrtSession& session) {
  Case result;
  try {
    const auto sample = stored_sample(model, session.inputs());
    if (!sample) return std::nullopt;
    result.sample = *sample;
    result.outputs = session.run(result.sample);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return result;
}

// The model's result from inputs that were rounded, its outputs rounded: with 16-bit inputs
// and outputs nothing better can be asked for.
std::vector<Array> rounded_reference(const OrtSession& session, const Case& data, Element low) {
  Sample rounded;
  for (const auto& [name, array] : data.sample) {
    rounded[name] = array.element == Element::kFloat
                        ? converted(converted(array, low), Element::kFloat)
                        : array;
  }
  std::vector<Array> outputs = session.run(rounded);
  for (Array& array : outputs) {
    if (array.element == Element::kFloat) array = converted(array, low);
  }
  return outputs;
}

TEST(OnnxRuntime, LoadsRunsAndAgreesOnTheWholeCorpus) {
  using Mode = std::pair<const char*, const char*>;
  for (const auto& [io, profile] : {Mode{"keep", "ort"}, {"low", "ort"}, {"low", "portable"}}) {
    const fs::path folder = scratch_folder("ort");
    const fs::path out = folder / "out.onnx";
    Options options;
    options.io = io;
    options.profile = profile;
    options.cast_optional_params = true;
    options.verify = "none";
    int originals = 0, loaded = 0, compared = 0, agreeing = 0;
    for (const fs::path& model : corpus_models()) {
      const auto original = load(model);
      if (!original) continue;
      ++originals;
      convert_model(model, out, options);
      std::string why;
      std::unique_ptr<OrtSession> result;
      try {
        result = std::make_unique<OrtSession>(runtime(), out, true);
      } catch (const Error& error) {
        ADD_FAILURE() << io << ' ' << model << ' ' << error.what();
        continue;
      }
      ++loaded;
      EXPECT_EQ(result->inputs(), original->inputs()) << model;
      EXPECT_EQ(result->outputs(), original->outputs()) << model;
      const auto data = read_case(model, *original);
      if (!data || is_random(model)) continue;
      const bool is_low = std::string_view(io) == "low";
      const std::vector<Array> reference =
          is_low ? rounded_reference(*original, *data, Element::kFloat16) : data->outputs;
      try {
        const std::vector<Array> got = result->run(data->sample);
        ++compared;
        bool all = true;
        for (std::size_t i = 0; i < got.size(); ++i) all = all && agrees(reference[i], got[i]);
        agreeing += all ? 1 : 0;
        EXPECT_TRUE(all) << io << ' ' << model;
      } catch (const Error& error) {
        ADD_FAILURE() << io << ' ' << model << ' ' << error.what();
      }
    }
    std::printf(
        "io %s, profile %s: ONNX Runtime %s loads %d originals and %d results; %d of %d that were "
        "run agree\n",
        io, profile, runtime()->version().c_str(), originals, loaded, agreeing, compared);
    EXPECT_EQ(loaded, originals);
    EXPECT_GT(compared, 800);
    fs::remove_all(folder.parent_path());
  }
}

class Verify : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("verify");
    options_.onnxruntime = MEZZO_ONNXRUNTIME;
    options_.evaluator = folder_;  // not there: ONNX Runtime judges
    options_.cast_optional_params = true;
  }

  fs::path folder_;
  Options options_;
};

TEST_F(Verify, SeesTheOverflowThatFusedArithmeticHides) {
  save(folder_ / "in.onnx", overflowing_model());
  options_.verify = "run";
  EXPECT_THROW(convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_), Error);
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx"));
}

TEST_F(Verify, CalibrationKeepsTheOverflowingPartFloat) {
  save(folder_ / "in.onnx", overflowing_model());
  save(folder_ / "x.pb", floats("x", {2, 2}, {1, -2, 3, 4}));
  options_.calibration = {folder_ / "x.pb"};
  options_.verify = "compare";
  const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report;
  EXPECT_EQ(report.heavy_low_nodes, 2);
  EXPECT_LT(report.errors.at(0).relative_to_range, 1e-2);
}

TEST_F(Verify, TheSearchFindsWhatMustStayFloat) {
  save(folder_ / "in.onnx", overflowing_model());
  options_.tolerance = 0.01;
  const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report;
  EXPECT_GT(report.kept_by_search, 0);
  EXPECT_LE(report.search_attempts, 12);
  EXPECT_LE(report.errors.at(0).relative_to_range, 0.01);
}

TEST_F(Verify, LoadsWhatIsJoinedInVain) {
  std::vector<Message> models;
  for (const char* between : {"", "Identity", "Dropout", "Mul", "Reshape"})
    models.push_back(moved_batch({{1, 0, 2}, {0, 2, 1}}, between));
  for (const std::vector<std::int64_t>& order : std::vector<std::vector<std::int64_t>>{
           {1, 0, 2}, {1, 2, 0}, {1, 2, 0, 3}, {1, 2, 3, 0}, {1, 2, 3, 0, 4}})
    models.push_back(moved_batch({order}));
  for (const int opset : {13, 14, 15, 17}) {
    for (const char* way : {"", "Identity", "Transpose", "Reshape"})
      models.push_back(norm_behind("MatMul", way, opset));
  }
  for (const int opset : {14, 17, 18, 21}) {
    for (const char* between : {"", "Identity", "Mul", "Sigmoid"}) {
      models.push_back(norm_in_pieces(opset, between));
      models.push_back(norm_in_pieces(opset, between, true));
      models.push_back(norm_in_pieces(opset, between, true, true));
    }
  }
  for (const char* io : {"keep", "low"}) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      save(folder_ / "in.onnx", models[i]);
      Options options;
      options.io = io;
      options.verify = "none";
      convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options);
      EXPECT_EQ(refusal_of(runtime(), folder_ / "out.onnx"), "") << "model " << i << ", io " << io;
    }
  }
}

TEST_F(Verify, ACrashOfTheJudgeIsAVerdict) {
  save(folder_ / "in.onnx", moved_batch({{1, 0, 2}}));
  Options options;
  options.onnxruntime = MEZZO_ONNXRUNTIME;
  options.included_names = {"t*"};
  const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options).report;
  EXPECT_THAT(report.warnings, testing::Contains(testing::HasSubstr("it crashes: SIGSEGV")));
  options.profile = "ort";
  EXPECT_THROW(convert_model(folder_ / "in.onnx", folder_ / "other.onnx", options), Error);
  EXPECT_FALSE(fs::exists(folder_ / "other.onnx"));
}

TEST_F(Verify, RaisedOpsetsComputeTheSame) {
  int raised = 0;
  const fs::path out = folder_ / "out.onnx";
  options_.target_dtype_ops =
      std::vector<std::string>{};  // nothing goes low: only the opset changes
  options_.verify = "none";
  for (const fs::path& model : corpus_models()) {
    const auto original = load(model);
    if (!original) continue;
    const auto data = read_case(model, *original);
    if (!data) continue;
    for (const char* opset : {"13", "18", "22"}) {
      options_.opset = opset;
      try {
        convert_model(model, out, options_);
      } catch (const ConfigError&) {
        continue;  // its opset is a later one
      } catch (const UnsupportedError&) {
        continue;
      }
      const auto result = load(out);
      if (!result) continue;  // not every operator has a kernel in every opset
      const std::vector<Array> got = result->run(data->sample);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (is_random(model)) continue;
        EXPECT_LT(compare_outputs("", data->outputs[i], got[i]).relative_to_range, 1e-5)
            << model << " opset " << opset;
      }
      ++raised;
    }
  }
  std::printf("%d raised models compute the same\n", raised);
  EXPECT_GT(raised, 1000);
}

}  // namespace
}  // namespace mezzo::convert
