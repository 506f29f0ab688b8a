// MXNet's models as ONNX: what is written, what is left out, and what cannot be said.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "builder.h"
#include "convert/graph/check.h"
#include "convert/graph/graph.h"
#include "convert/onnx/document.h"
#include "mezzo/convert_mxnet.h"
#include "mezzo/error.h"

namespace mezzo::convert::mxnet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kOnnxData = fs::path(MEZZO_MXNET_DATA) / "onnx";

Checkpoint stored(const std::string& name) {
  return load_checkpoint((kOnnxData / name).string(), 0);
}

// A folder that goes away with the test.
class ToOnnx : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("mezzo_to_onnx_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    options_.target_dtype = "float32";
    options_.verify = "none";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Inspection written(const Checkpoint& checkpoint, const InputShapes& shapes = {}) {
    to_onnx(checkpoint, out(), options_, shapes);
    return inspect_model(out());
  }
  std::string refusal(const Checkpoint& checkpoint, const InputShapes& shapes = {}) {
    try {
      to_onnx(checkpoint, out(), options_, shapes);
    } catch (const Error& error) {
      EXPECT_THAT(fs::directory_iterator(folder_), fs::directory_iterator()) << "left behind";
      return error.what();
    }
    return "no error";
  }
  fs::path out() const { return folder_ / "out.onnx"; }

  fs::path folder_;
  convert::Options options_;
};

// x -> op -> the only result.
Checkpoint of_one(const std::string& op, std::map<std::string, std::string> attrs = {}) {
  return {Symbol({{.op = "null", .name = "x"},
                  {.op = op, .name = "it", .attrs = std::move(attrs), .inputs = {{0, 0, 0}}}},
                 {{1, 0, 0}}),
          {},
          {}};
}

TEST_F(ToOnnx, EveryStoredNetworkIsAValidModelInFloatAndMixed) {
  const std::map<std::string, InputShapes> networks{
      {"elementwise", {{"a", {0, 0, 0, 0}}, {"b", {0, 0, 0, 0}}}},
      {"layers", {{"x", {0, 4, 7, 5}}}},
      {"shapes", {{"x", {0, 0, 0, 0}}, {"y", {2, 3, 2, 3}}, {"m", {0, 4}}, {"n", {4, 2}}}},
      {"lstm", {}},
      {"gru_both", {}},
      {"language_lstm", {}},
      {"language_gru", {}},
      {"unrolled_2", {}}};
  for (const auto& [name, shapes] : networks) {
    for (const char* dtype : {"float32", "float16", "bfloat16"}) {
      options_.target_dtype = dtype;
      EXPECT_THAT(written(stored(name), shapes).findings, IsEmpty()) << name << " " << dtype;
    }
  }
}

TEST_F(ToOnnx, LabelsAreLeftOutAndBatchesChange) {
  const Inspection inspection = written(stored("language_lstm"));
  ASSERT_EQ(inspection.inputs.size(), 1U);
  EXPECT_THAT(inspection.inputs.front(), HasSubstr("data"));
  EXPECT_EQ(inspection.operators.at("LSTM"), 2);  // a layer each
  EXPECT_EQ(inspection.operators.at("Softmax"), 1);
  EXPECT_FALSE(inspection.operators.contains("Expand"));  // states of zeros are ONNX's default
}

TEST_F(ToOnnx, AnImageKeepsItsChannelsAndTheRestChanges) {
  const Checkpoint small = load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0);
  to_onnx(small, out(), options_);
  Document document(out());
  Graph graph(document);
  const Message& model = document.model();
  const std::string bytes = contents(out());
  EXPECT_THAT(bytes, HasSubstr("batch"));
  EXPECT_THAT(bytes, HasSubstr("height"));
  EXPECT_EQ(graph.scope(0).opset(""), 17);
  EXPECT_NE(model.find(field::model::kGraph), nullptr);
  to_onnx(small, out(), options_, {{"data", {1, 3, 8, 8}}});
  EXPECT_THAT(contents(out()), testing::Not(HasSubstr("height")));
}

TEST_F(ToOnnx, MixedPrecisionIsTheConvertersOwn) {
  options_.target_dtype = "float16";
  options_.cast_optional_params = true;
  const Result result =
      to_onnx(load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0), out(), options_);
  EXPECT_EQ(result.plan.target_dtype, "float16");
  EXPECT_EQ(result.report.heavy_low_nodes, 2);  // the convolution and the dense layer
  const auto types = weight_types(out());
  EXPECT_EQ(types.at("conv_weight"), "float16");
  EXPECT_EQ(types.at("dense_bias"), "float16");
  EXPECT_EQ(types.at("norm_running_var"), "float32");
}

// The file has no opset of its own: the lowest that holds what was asked for is taken.
TEST_F(ToOnnx, TheOpsetIsTheLowestInWhichTheModelGoesLow) {
  const Checkpoint small = load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0);
  const auto opset_for = [&](const char* dtype) {
    options_.target_dtype = dtype;
    const Result result = to_onnx(small, out(), options_);
    EXPECT_EQ(result.report.better_opset, 0) << dtype;
    if (std::string(dtype) != "float32") {
      EXPECT_EQ(result.report.heavy_low_nodes, 2) << dtype;
    }
    Document document(out());
    return Graph(document).scope(0).opset("");
  };
  EXPECT_EQ(opset_for("float32"), 17);
  EXPECT_EQ(opset_for("float16"), 17);
  EXPECT_EQ(opset_for("bfloat16"), 22);  // the first with convolutions in bfloat16
  options_.opset = "17";                 // an opset that was asked for stays
  Document document((to_onnx(small, out(), options_), out()));
  EXPECT_EQ(Graph(document).scope(0).opset(""), 17);
}

TEST_F(ToOnnx, NodesMadeUnderDisableAmpStayInFloat) {
  Checkpoint small = load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0);
  std::vector<Node> nodes = small.symbol.nodes();
  for (Node& node : nodes)
    if (node.op == "FullyConnected") node.attrs["__opt_constraint__"] = "1";
  small.symbol = small.symbol.with_graph(nodes, small.symbol.heads());
  options_.target_dtype = "float16";
  options_.cast_optional_params = true;
  EXPECT_EQ(to_onnx(small, out(), options_).report.heavy_low_nodes, 1);  // the convolution
  EXPECT_EQ(weight_types(out()).at("dense_weight"), "float32");
}

TEST_F(ToOnnx, AConvertedCheckpointGivesTheModelOfTheOriginal) {
  const Checkpoint small = load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0);
  const auto shape_of_model = [&](const Checkpoint& checkpoint) {
    const Inspection inspection = written(checkpoint);
    return std::tuple(inspection.operators, inspection.weight_bytes_by_type, inspection.outputs);
  };
  EXPECT_EQ(shape_of_model(convert_model(small, {.cast_optional_params = true})),
            shape_of_model(small));
}

TEST_F(ToOnnx, AnOperatorWithoutTranslationIsNamedWithItsNode) {
  const std::string said = refusal(of_one("_contrib_Proposal"));
  EXPECT_THAT(said, HasSubstr("operator _contrib_Proposal (node 'it') has no translation"));
  EXPECT_THAT(said, HasSubstr("what works"));
  EXPECT_THAT(refusal(of_one("sofmax")), HasSubstr("did you mean 'softmax'"));
  EXPECT_THROW(to_onnx(of_one("_contrib_Proposal"), out(), options_), UnsupportedError);
}

TEST_F(ToOnnx, WhatAnOperatorCannotSayIsRefusedByName) {
  EXPECT_THAT(
      refusal(of_one("Pooling", {{"kernel", "(2, 2)"}, {"pooling_convention", "same"}})),
      HasSubstr("operator Pooling (node 'it'): pooling_convention is same; expected valid"));
  EXPECT_THAT(refusal(of_one("Reshape", {{"shape", "(0, -7)"}}), {{"x", {2, 2}}}),
              HasSubstr("it has the code -7"));
  EXPECT_THAT(refusal(of_one("Reshape", {{"shape", "(-1, -1)"}}), {{"x", {2, 2}}}),
              HasSubstr("two unknown sizes"));
  EXPECT_THAT(refusal(of_one("sum", {{"axis", "(5,)"}}), {{"x", {2, 2}}}), HasSubstr("axis 5"));
  EXPECT_THAT(refusal(of_one("slice_axis", {{"axis", "one"}}), {{"x", {2, 2}}}),
              HasSubstr("the attribute 'axis' is 'one'; expected a whole number"));
}

TEST_F(ToOnnx, WhatNumpyModeAndItsLayoutsCannotSayIsRefusedByName) {
  const InputShapes shapes{{"x", {2, 2}}};
  EXPECT_THAT(refusal(of_one("_np_reshape", {{"newshape", "(0, 4)"}}), shapes),
              HasSubstr("operator _np_reshape (node 'it'): its shape is (0, 4); expected sizes"));
  EXPECT_THAT(refusal(of_one("_npx_reshape", {{"newshape", "(-7, 4)"}}), shapes),
              HasSubstr("expected sizes above 0 and codes from -1 to -6"));
  EXPECT_THAT(refusal(of_one("_npx_reshape", {{"newshape", "(-3, -4)"}}), shapes),
              HasSubstr("it skips a size that is not 1"));
  EXPECT_THAT(refusal(of_one("_npi_sum", {{"initial", "1"}}), shapes), HasSubstr("expected none"));
  EXPECT_THAT(
      refusal(of_one("_np_moveaxis", {{"source", "(0, 0)"}, {"destination", "(0, 1)"}}), shapes),
      HasSubstr("an axis moves twice"));
  EXPECT_THAT(refusal(of_one("Deconvolution", {{"kernel", "(2, 2)"}, {"layout", "NHWC"}})),
              HasSubstr("the layout is NHWC; expected NCW, NCHW or NCDHW"));
  EXPECT_THAT(refusal(of_one("_npi_hstak")), HasSubstr("did you mean '_npi_hstack'"));
}

TEST_F(ToOnnx, AProjectedStateIsOneErrorThatSaysWhatWorks) {
  const std::map<std::string, std::string> attrs{
      {"mode", "lstm"}, {"state_size", "4"}, {"num_layers", "1"}, {"projection_size", "2"}};
  EXPECT_THAT(refusal(of_one("RNN", attrs)),
              HasSubstr("operator RNN (node 'it'): a state that is projected (projection_size 2), "
                        "which ONNX's LSTM does not have; expected a network without projection"));
}

TEST_F(ToOnnx, ShapesThatNobodyTellsAreAskedFor) {
  EXPECT_THAT(refusal(of_one("SwapAxis")), HasSubstr("--input x=SIZE"));
  EXPECT_EQ(refusal(of_one("relu"), {{"x", {0, 3}}}), "no error");
  fs::remove(out());
  EXPECT_THAT(refusal(of_one("relu"), {{"y", {0, 3}}}),
              HasSubstr("'y', which is no data of the graph; expected 'x'"));
  EXPECT_THAT(refusal(of_one("relu"), {{"x", {-2, 3}}}), HasSubstr("below 0"));
}

TEST_F(ToOnnx, AParameterThatTheFileLacksIsNamed) {
  Checkpoint small = load_checkpoint((fs::path(MEZZO_MXNET_DATA) / "small").string(), 0);
  small.arg_params = {};
  EXPECT_THAT(refusal(small), HasSubstr("'conv_weight', which 'conv_fwd' (Convolution) reads"));
}

TEST_F(ToOnnx, OptionsOfConversionsAreRefusedForFloatModels) {
  options_.io = "low";
  EXPECT_THAT(refusal(of_one("relu"), {{"x", {2}}}), HasSubstr("expected target_dtype float16"));
}

TEST(OnnxOperators, AreListedSortedAndOnce) {
  const std::vector<std::string> names = list_onnx_ops();
  EXPECT_GT(names.size(), 200U);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_THAT(names, testing::Contains("_contrib_box_nms"));
}

// The snippets of docs/migrating_from_mxnet.md.
TEST_F(ToOnnx, BucketsShareTheirParametersInMixedPrecisionAndInOnnx) {
  namespace mx = mezzo::convert::mxnet;
  const auto in_folder = [&](const std::string& name) { return (folder_ / name).string(); };
  mx::Bucketing module;
  for (const char* length : {"2", "4"})
    module.buckets[length] =
        mx::Symbol::load(kOnnxData / (std::string("unrolled_") + length + "-symbol.json"));
  const mx::Checkpoint shared = stored("unrolled_2");
  module.arg_params = shared.arg_params;
  module.aux_params = shared.aux_params;
  const mx::Bucketing low = mx::convert_bucketing_module(module, {.cast_optional_params = true});
  EXPECT_EQ(low.arg_params.dtype("gru_i2h_weight"), "float16");
  for (const auto& [length, symbol] : low.buckets) {
    mx::save_checkpoint(in_folder("lm16-" + length), 0, {symbol, low.arg_params, low.aux_params},
                        /*remove_amp_cast=*/false);
    const mx::Checkpoint read = mx::load_checkpoint(in_folder("lm16-" + length), 0);
    EXPECT_EQ(read.symbol.to_json(), symbol.to_json());
    mezzo::convert::Options options;
    options.target_dtype = "float32";
    options.verify = "none";
    mx::to_onnx(read, folder_ / "lm.onnx", options);
    mx::to_onnx(read, folder_ / "lm-fixed.onnx", options, {{"data", {3, length == "2" ? 2 : 4}}});
    EXPECT_THAT(inspect_model(folder_ / "lm-fixed.onnx").findings, IsEmpty());
  }
}

// Every name that MXNet's tutorial uses has a row in the table of docs/migrating_from_mxnet.md.
TEST(MigrationFromMxnet, HasARowForEveryNameOfTheTutorial) {
  const fs::path root = fs::path(MEZZO_MXNET_DATA) / "../../../..";
  std::istringstream page(contents(root / "docs/migrating_from_mxnet.md"));
  std::vector<std::pair<std::string, std::string>> rows;  // of MXNet, and the rest
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ")) continue;
    const std::size_t end = line.find(" | ", 2);
    if (end != std::string::npos) rows.emplace_back(line.substr(2, end - 2), line.substr(end));
  }
  const auto answer = [&](const std::string& name) {
    const auto row = std::ranges::find_if(
        rows, [&](const auto& each) { return each.first.find(name) != std::string::npos; });
    return row == rows.end() ? "no row for " + name : row->second;
  };
  for (const char* name :
       {"amp.init(", "amp.init_trainer(", "amp.scale_loss(", "gluon.Trainer(", "trainer.step(",
        "split_and_load(", "mx.metric.Loss", "net.hybridize()", "amp.convert_model",
        "mx.model.load_checkpoint", "save_checkpoint", "mod.Module", ".bind(", ".set_params(",
        ".forward(batch)", "reset_ctx", "net.initialize(", "get_model(", "SSDMultiBoxLoss"})
    EXPECT_THAT(answer(name), testing::Not(HasSubstr("no row"))) << name;
  EXPECT_THAT(answer("amp.convert_hybrid_block"), HasSubstr("deploy::convert_hybrid_block"));
}

// Hostile files: random bytes in the attributes, cut-off inputs. An Error is the right answer.
TEST_F(ToOnnx, DamagedGraphsAndParametersAreErrorsOrModels) {
  const std::string graph = contents(fs::path(MEZZO_MXNET_DATA) / "small-symbol.json");
  const std::string params = contents(fs::path(MEZZO_MXNET_DATA) / "small-0000.params");
  const auto survives = [&](const std::string& symbol_text, const std::string& bytes) {
    try {
      const Symbol symbol = Symbol::from_json(symbol_text, "s.json");
      const NDArrays all = NDArrays::from_bytes(bytes, "p.params");
      Checkpoint checkpoint{symbol, {}, {}};
      for (const std::string& key : all.names()) {
        NDArrays& to = key.starts_with("aux:") ? checkpoint.aux_params : checkpoint.arg_params;
        to.set(key.substr(std::min<std::size_t>(4, key.size())), all.dtype(key), all.shape(key),
               std::string(all.bytes(key)));
      }
      to_onnx(checkpoint, out(), options_);
      return 1;
    } catch (const Error&) {
      return 0;
    }
  };
  EXPECT_EQ(survives(graph, params), 1);
  int models = 0;
  for (std::size_t i = 0; i < graph.size(); i += 7) {
    std::string turned = graph;
    turned[i] = static_cast<char>(turned[i] ^ (1 << i % 7));
    models += survives(turned, params);
    if (i % 3 == 0) survives(graph.substr(0, i), params);
  }
  for (std::size_t i = 0; i < params.size() && i < 1500; i += 9) {
    std::string turned = params;
    turned[i] = static_cast<char>(turned[i] ^ (1 << i % 8));
    models += survives(graph, turned);
  }
  EXPECT_GT(models, 0);
  // Operators of numpy mode, without their parameters or with theirs.
  const std::string numpy = contents(kOnnxData / "numpy-symbol.json");
  const std::string of_numpy = contents(kOnnxData / "numpy-0000.params");
  for (std::size_t i = 0; i < numpy.size(); i += 173) {
    std::string turned = numpy;
    turned[i] = static_cast<char>(turned[i] ^ (1 << i % 7));
    survives(turned, of_numpy);
  }
}

}  // namespace
}  // namespace mezzo::convert::mxnet
