// MXNet's files, as MXNet 1.9.1 wrote them: read, converted, written; damaged ones are one error.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "builder.h"
#include "mezzo/convert_mxnet.h"
#include "mezzo/error.h"
#include "mezzo/messages.h"

namespace mezzo::convert::mxnet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const fs::path kData = MEZZO_MXNET_DATA;

Checkpoint small() {
  return load_checkpoint((kData / "small").string(), 0);
}

std::vector<float> floats_of(const NDArrays& arrays, const std::string& name) {
  const std::string_view bytes = arrays.bytes(name);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

const Node& node_of(const Symbol& symbol, const std::string& name) {
  for (const Node& node : symbol.nodes()) {
    if (node.name == name) return node;
  }
  throw std::runtime_error("no node " + name);
}

std::string input_of(const Symbol& symbol, const std::string& node, std::size_t input) {
  return symbol.nodes()[node_of(symbol, node).inputs.at(input).node].name;
}

template <typename F>
std::string error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MxnetFiles, AGraphAndItsParametersAreRead) {
  const Checkpoint read = small();
  EXPECT_EQ(read.symbol.mxnet_version(), 10901);
  EXPECT_THAT(read.symbol.list_auxiliary_states(),
              ElementsAre("norm_running_mean", "norm_running_var"));
  EXPECT_THAT(read.aux_params.names(),
              testing::UnorderedElementsAre("norm_running_mean", "norm_running_var"));
  EXPECT_THAT(read.arg_params.shape("conv_weight"), ElementsAre(4, 3, 3, 3));
  EXPECT_EQ(node_of(read.symbol, "conv_fwd").attr("kernel"), "(3, 3)");
}

TEST(MxnetFiles, SparseArraysBecomeDense) {
  const NDArrays arrays = NDArrays::load(kData / "arrays.params");
  for (const char* name : {"dense", "rows", "cells"}) {
    EXPECT_THAT(arrays.shape(name), ElementsAre(3, 3)) << name;
    EXPECT_THAT(floats_of(arrays, name), ElementsAre(1, 0, 2, 0, 0, 0, 0, 3, 0)) << name;
  }
  EXPECT_EQ(arrays.dtype("half"), "float16");
  EXPECT_EQ(arrays.bytes("half"), std::string_view("\x00\x3E\x00\xC0", 4));
  EXPECT_EQ(arrays.dtype("counts"), "int64");
  EXPECT_EQ(arrays.bytes("bytes"), "\x07");
}

TEST(MxnetFiles, TheOldestParametersAreRead) {
  std::string bytes;
  const auto put = [&](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto array = [&](bool is_oldest) {
    if (!is_oldest) put(std::uint32_t{0xF993FAC8});
    put(std::uint32_t{1});
    is_oldest ? put(std::uint32_t{2}) : put(std::int64_t{2});
    for (const std::int32_t number : {1, 0, 0}) put(number);  // device, its id, float32
    for (const float value : {1.5F, -2.0F}) put(value);
  };
  for (const std::uint64_t number : {0x112, 0, 2}) put(number);
  array(true);
  array(false);
  put(std::uint64_t{0});
  const NDArrays arrays = NDArrays::from_bytes(bytes);
  EXPECT_THAT(floats_of(arrays, "0"), ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(floats_of(arrays, "1"), ElementsAre(1.5F, -2.0F));
}

TEST(MxnetFiles, WhatIsWrittenIsReadAgain) {
  const fs::path folder = fs::temp_directory_path() / ("mezzo_mxnet_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const Checkpoint made = convert_model(small(), {.cast_optional_params = true});
  save_checkpoint((folder / "net").string(), 3, made, /*remove_amp_cast=*/false);
  const Checkpoint read = load_checkpoint((folder / "net").string(), 3);
  EXPECT_EQ(read.symbol.to_json(), made.symbol.to_json());
  EXPECT_EQ(read.arg_params.dtype("conv_weight"), "float16");
  EXPECT_EQ(read.arg_params.bytes("conv_weight"), made.arg_params.bytes("conv_weight"));
  save_checkpoint((folder / "bare").string(), 0, made);
  const Checkpoint bare = load_checkpoint((folder / "bare").string(), 0);
  EXPECT_EQ(bare.arg_params.dtype("conv_weight"), "float32");
  EXPECT_EQ(node_of(bare.symbol, "conv_weight").attr("__dtype__"), "0");
  // MXNet leaves the cast that is itself the result.
  EXPECT_EQ(bare.symbol.nodes().size(), small().symbol.nodes().size() + 1);
  fs::remove_all(folder);
}

TEST(MxnetFiles, AnyCutOffOrChangedFileIsAnErrorThatNamesIt) {
  const std::string params = contents(kData / "arrays.params");
  for (std::size_t size = 0; size < params.size(); ++size) {
    EXPECT_THAT(error_of([&] { NDArrays::from_bytes(params.substr(0, size), "p.params"); }),
                HasSubstr("'p.params'"))
        << size;
  }
  EXPECT_THAT(error_of([&] { NDArrays::from_bytes(params + "x", "p.params"); }),
              HasSubstr("after its end"));
  const std::string graph = contents(kData / "small-symbol.json");
  for (std::size_t size = 0; size + 2 < graph.size(); size += 7) {
    EXPECT_THAT(error_of([&] { Symbol::from_json(graph.substr(0, size), "s.json"); }),
                HasSubstr("'s.json'"))
        << size;
  }
  for (std::size_t at = 0; at < params.size(); ++at) {  // ends, one way or the other
    std::string changed = params;
    changed[at] = '\xFF';
    error_of([&] { NDArrays::from_bytes(changed); });
  }
}

TEST(MxnetFiles, GraphsThatCannotBeAreRefused) {
  const auto error = [](const std::string& nodes, const std::string& heads) {
    return error_of([&] {
      Symbol::from_json(R"({"nodes": [)" + nodes + R"(], "arg_nodes": [], "heads": )" + heads + "}",
                        "s.json");
    });
  };
  const std::string x = R"({"op": "null", "name": "x", "inputs": []})";
  EXPECT_EQ(error(x, "[[0, 0, 0]]"), "no error");
  EXPECT_THAT(error(x, "[]"), HasSubstr("no result"));
  EXPECT_THAT(error(x, "[[1, 0, 0]]"), HasSubstr("not there before it"));
  EXPECT_THAT(error(R"({"op": "relu", "name": "r", "inputs": [[0, 0, 0]]})", "[[0, 0, 0]]"),
              HasSubstr("not there before it"));
  EXPECT_THAT(error(R"({"op": "null", "name": "a\u0001", "inputs": []})", "[[0, 0, 0]]"),
              HasSubstr("control characters"));
  EXPECT_THAT(error(R"({"op": "null", "name": 3})", "[[0, 0, 0]]"), HasSubstr("no name"));
}

TEST(MxnetFiles, StatisticsThatOldFilesLeaveOutComeBack) {
  const Symbol symbol = Symbol::from_json(
      R"({"nodes": [{"op": "null", "name": "x", "inputs": []},
                    {"op": "null", "name": "g", "attr": {"lr_mult": "2"}, "inputs": []},
                    {"op": "null", "name": "b", "inputs": []},
                    {"op": "BatchNorm", "name": "bn", "param": {"eps": "0.1"}, "inputs": [[0, 0], [1, 0], [2, 0]]}],
          "arg_nodes": [0, 1, 2], "heads": [[3, 0]]})");
  EXPECT_THAT(symbol.list_inputs(), ElementsAre("x", "g", "b", "bn_moving_mean", "bn_moving_var"));
  EXPECT_THAT(symbol.list_auxiliary_states(), ElementsAre("bn_moving_mean", "bn_moving_var"));
  EXPECT_EQ(node_of(symbol, "g").attr("__lr_mult__"), "2");
}

TEST(MxnetConversion, ForcedOperatorsAreCastAndResultsAreFloat32) {
  const Symbol made = convert_model(small()).symbol;
  EXPECT_EQ(input_of(made, "conv_fwd", 0), "data_amp_cast_float16");
  EXPECT_EQ(input_of(made, "conv_fwd", 1), "conv_weight_amp_cast_float16");
  EXPECT_EQ(input_of(made, "norm_fwd", 0), "conv_fwd");
  EXPECT_EQ(input_of(made, "norm_fwd", 1), "norm_gamma");
  EXPECT_EQ(input_of(made, "dense_fwd", 0), "relu_fwd");
  EXPECT_EQ(made.nodes()[made.heads().at(0).node].name, "dense_fwd_output_amp_cast_float32");
  EXPECT_EQ(node_of(made, "conv_weight").attr("__dtype__"), "0");
  EXPECT_EQ(node_of(made, "data").attr("__dtype__"), std::nullopt);
}

TEST(MxnetConversion, ParametersThatAreOnlyReadLowAreStoredLowOnRequest) {
  const Checkpoint before = small();
  const Checkpoint made = convert_model(before, {.cast_optional_params = true});
  EXPECT_EQ(made.arg_params.dtype("conv_weight"), "float16");
  EXPECT_EQ(made.arg_params.dtype("norm_gamma"), "float32");
  EXPECT_EQ(made.aux_params.dtype("norm_running_var"), "float32");
  EXPECT_EQ(input_of(made.symbol, "conv_fwd", 1), "conv_weight");
  EXPECT_EQ(node_of(made.symbol, "dense_bias").attr("__dtype__"), "2");
  EXPECT_EQ(before.arg_params.dtype("conv_weight"), "float32");
}

TEST(MxnetConversion, AConvertedModelConvertsToItself) {
  for (const bool optional : {false, true}) {
    for (const char* dtype : {"float16", "bfloat16"}) {
      const Options options{.target_dtype = dtype, .cast_optional_params = optional};
      const Checkpoint once = convert_model(small(), options);
      const Checkpoint twice = convert_model(once, options);
      EXPECT_EQ(twice.symbol.to_json(), once.symbol.to_json()) << dtype << optional;
    }
  }
}

// data -> conv -> (dense reads w2, and so does a float32 softmax of w2): w2 has two kinds of
// reader.
Symbol with_shared_weight(bool float_first) {
  std::vector<Node> nodes{{.op = "null", .name = "data"}, {.op = "null", .name = "w"}};
  const Node dense{.op = "FullyConnected",
                   .name = "dense",
                   .attrs = {{"no_bias", "True"}, {"num_hidden", "2"}},
                   .inputs = {{0, 0, 0}, {1, 0, 0}}};
  const Node soft{.op = "softmax", .name = "soft", .inputs = {{1, 0, 0}}};
  nodes.push_back(float_first ? soft : dense);
  nodes.push_back(float_first ? dense : soft);
  return {nodes, {{2, 0, 0}, {3, 0, 0}}};
}

TEST(MxnetConversion, AParameterThatIsAlsoReadInFloatStaysFloatInAnyOrder) {
  NDArrays args;
  args.set("w", "float32", {2, 2}, std::string(16, '\0'));
  for (const bool float_first : {false, true}) {
    const Checkpoint made =
        convert_model({with_shared_weight(float_first), args, {}}, {.cast_optional_params = true});
    EXPECT_EQ(made.arg_params.dtype("w"), "float32");
    EXPECT_EQ(input_of(made.symbol, "soft", 0), "w");
    EXPECT_EQ(input_of(made.symbol, "dense", 1), "w_amp_cast_float16");
  }
}

// bfloat16 under float16, and the other way about, is no type that an operator can compute in
// beside the target.
TEST(MxnetConversion, AParameterInTheOtherLowTypeIsCastWhereverItIsRead) {
  for (const auto& [target, other] : {std::pair{"float16", "bfloat16"}, {"bfloat16", "float16"}}) {
    Checkpoint before = small();
    for (const char* name : {"conv_weight", "norm_gamma", "dense_weight"})
      before.arg_params.cast(name, other);
    const std::string suffix = std::string("_amp_cast_") + target;
    const Checkpoint made = convert_model(before, {.target_dtype = target});
    EXPECT_EQ(input_of(made.symbol, "conv_fwd", 1), "conv_weight" + suffix);
    EXPECT_EQ(input_of(made.symbol, "dense_fwd", 1), "dense_weight" + suffix);
    EXPECT_EQ(input_of(made.symbol, "norm_fwd", 1), "norm_gamma_amp_cast_float32");
    EXPECT_EQ(input_of(made.symbol, "conv_fwd", 2), "conv_bias" + suffix);
    EXPECT_EQ(made.arg_params.dtype("conv_weight"), other);
    const Checkpoint stored =
        convert_model(before, {.target_dtype = target, .cast_optional_params = true});
    EXPECT_EQ(stored.arg_params.dtype("conv_weight"), target);
    EXPECT_EQ(input_of(stored.symbol, "conv_fwd", 1), "conv_weight");
  }
}

TEST(MxnetConversion, OperatorsThatStayInFloatReadTheOtherLowTypeAsFloat32) {
  NDArrays args;
  args.set("w", "bfloat16", {2, 2}, std::string(8, '\0'));
  const Checkpoint made = convert_model({with_shared_weight(true), args, {}});
  EXPECT_EQ(input_of(made.symbol, "soft", 0), "w_amp_cast_float32");
  EXPECT_EQ(input_of(made.symbol, "dense", 1), "w_amp_cast_float16");
}

TEST(MxnetConversion, AModelInOneLowTypeBecomesOneInTheOther) {
  const Checkpoint once = convert_model(small(), {.target_dtype = "bfloat16"});
  const Checkpoint twice = convert_model(once, {.target_dtype = "float16"});
  for (const Node& node : twice.symbol.nodes()) {
    if (node.op != "Convolution" && node.op != "FullyConnected") continue;
    for (std::size_t input = 1; input < node.inputs.size(); ++input)
      EXPECT_THAT(input_of(twice.symbol, node.name, input), testing::EndsWith("_amp_cast_float16"));
  }
}

TEST(MxnetConversion, BucketsShareTheirParametersTypes) {
  Bucketing module;
  module.buckets["10"] = with_shared_weight(true);
  module.buckets["20"] = Symbol({{.op = "null", .name = "data"},
                                 {.op = "null", .name = "w"},
                                 {.op = "FullyConnected",
                                  .name = "dense",
                                  .attrs = {{"no_bias", "True"}, {"num_hidden", "2"}},
                                  .inputs = {{0, 0, 0}, {1, 0, 0}}}},
                                {{2, 0, 0}});
  module.arg_params.set("w", "float32", {2, 2}, std::string(16, '\0'));
  const Bucketing made = convert_bucketing_module(module, {.cast_optional_params = true});
  EXPECT_EQ(made.arg_params.dtype("w"), "float32");
  EXPECT_EQ(node_of(made.buckets.at("20"), "w").attr("__dtype__"), "0");
  EXPECT_EQ(input_of(made.buckets.at("20"), "dense", 1), "w_amp_cast_float16");
  EXPECT_THAT(error_of([] { convert_bucketing_module({}); }), HasSubstr("should not be empty"));
}

// mxnet/judge/judge_buckets.py exports the graphs of a module, runs this test, and has MXNet load
// the results. Names are MODULE_LENGTH-symbol.json, and parameters MODULE-0000.params.
TEST(MxnetConversion, BucketsOfTheJudge) {
  const char* folder = std::getenv("MEZZO_MXNET_BUCKETS");
  if (folder == nullptr) GTEST_SKIP() << "no module: mxnet/judge/judge_buckets.py exports them";
  const fs::path in = folder;
  Bucketing module;
  for (const char* length : {"3", "5"})
    module.buckets[length] = Symbol::load(in / ("lm_" + std::string(length) + "-symbol.json"));
  module.arg_params = load_checkpoint(in / "lm_3-symbol.json", in / "lm-0000.params").arg_params;
  for (const char* dtype : {"float16", "bfloat16"}) {
    const std::map<std::string, Options> sets{
        {"defaults", {.target_dtype = dtype}},
        {"optional", {.target_dtype = dtype, .cast_optional_params = true}},
        {"lists",
         {.target_dtype = dtype,
          .target_dtype_ops = std::vector<std::string>{"-FullyConnected"},
          .fp32_ops = std::vector<std::string>{"+FullyConnected"}}},
        {"excluded",
         {.target_dtype = dtype, .excluded_sym_names = {"pred"}, .cast_optional_params = true}}};
    for (const auto& [title, options] : sets) {
      const Bucketing made = convert_bucketing_module(module, options);
      EXPECT_EQ(made.buckets.size(), module.buckets.size()) << dtype << ' ' << title;
      for (const auto& [length, symbol] : made.buckets) {
        const fs::path prefix = in / (std::string(dtype) + "-" + title + "-" + length);
        save_checkpoint(prefix.string(), 0, {symbol, made.arg_params, made.aux_params},
                        /*remove_amp_cast=*/false);
      }
    }
  }
}

TEST(MxnetFiles, ParametersOfAGraphInNumpyModeAreWrittenAsItLoadsThem) {
  const fs::path onnx = kData / "onnx";
  const Checkpoint numpy = load_checkpoint((onnx / "numpy_layers").string(), 0);
  EXPECT_TRUE(numpy.symbol.has_numpy_shapes());
  EXPECT_FALSE(small().symbol.has_numpy_shapes());
  const fs::path folder = fs::temp_directory_path() / ("mezzo_numpy_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const auto magic_of = [&](const Checkpoint& checkpoint) {
    save_checkpoint((folder / "saved").string(), 0, checkpoint);
    std::uint32_t magic = 0;
    constexpr std::size_t kFirstArray = 24;  // behind the file's own magic, a zero and the count
    std::memcpy(&magic, contents(folder / "saved-0000.params").data() + kFirstArray, sizeof magic);
    return magic;
  };
  EXPECT_EQ(magic_of(numpy), 0xF993FACAU);
  EXPECT_TRUE(Symbol::load(folder / "saved-symbol.json").has_numpy_shapes());
  EXPECT_EQ(magic_of(small()), 0xF993FAC9U);
  fs::remove_all(folder);
}

// A graph as 2.x, and 1.x in numpy mode, write it: x -> convolution -> (+ 1) -> relu -> (> 0) and
// (@ w).
Symbol of_numpy_mode() {
  return Symbol({{.op = "null", .name = "x"},
                 {.op = "null", .name = "conv_weight"},
                 {.op = "null", .name = "w"},
                 {.op = "_npx_convolution",
                  .name = "conv",
                  .attrs = {{"kernel", "(1, 1)"}, {"no_bias", "True"}, {"num_filter", "2"}},
                  .inputs = {{0, 0, 0}, {1, 0, 0}}},
                 {.op = "_npi_add_scalar", .name = "add", .inputs = {{3, 0, 0}}},
                 {.op = "_npx_relu", .name = "relu", .inputs = {{4, 0, 0}}},
                 {.op = "_npi_matmul", .name = "matmul", .inputs = {{5, 0, 0}, {2, 0, 0}}},
                 {.op = "_npi_mean",
                  .name = "mean",
                  .attrs = {{"axis", "None"}, {"dtype", "None"}},
                  .inputs = {{6, 0, 0}}},
                 {.op = "_npi_greater_scalar", .name = "greater", .inputs = {{5, 0, 0}}}},
                {{7, 0, 0}, {8, 0, 0}});
}

TEST(MxnetConversion, OperatorsOfNumpyModeAreOfTheClassesOf2x) {
  const auto names_of_casts = [](const Options& options) {
    std::set<std::string> names;
    const Symbol converted = convert_symbol(of_numpy_mode(), options, {"x"});
    for (const Node& node : converted.nodes())
      if (node.op == "amp_cast") names.insert(node.name);
    return names;
  };
  // The convolution and the product run low, and what is between goes with them.
  EXPECT_THAT(names_of_casts({}),
              UnorderedElementsAre("x_amp_cast_float16", "conv_weight_amp_cast_float16",
                                   "w_amp_cast_float16", "matmul_output_amp_cast_float32",
                                   "relu_output_amp_cast_float32"));
  // In bfloat16 2.x has the product, and sums with numbers, in float32.
  EXPECT_THAT(names_of_casts({.target_dtype = "bfloat16"}),
              UnorderedElementsAre("x_amp_cast_bfloat16", "conv_weight_amp_cast_bfloat16",
                                   "conv_output_amp_cast_float32"));
  // Lists speak of an operator by its older name, and by its own where it has no other.
  const Options moved{.target_dtype_ops = std::vector<std::string>{"-_npi_matmul"},
                      .fp32_ops = std::vector<std::string>{"+_npi_matmul", "+relu"}};
  EXPECT_THAT(names_of_casts(moved),
              UnorderedElementsAre("x_amp_cast_float16", "conv_weight_amp_cast_float16",
                                   "add_output_amp_cast_float32"));
}

TEST(MxnetConversion, NodesMadeUnderDisableAmpStayInFloat) {
  for (const char* bits : {"0", "1", "3"}) {
    std::vector<Node> nodes = of_numpy_mode().nodes();
    nodes[3].attrs["__opt_constraint__"] = bits;  // the convolution
    const Symbol symbol = of_numpy_mode().with_graph(nodes, of_numpy_mode().heads());
    const Symbol converted = convert_symbol(symbol, {}, {"x"});
    const std::string expected = *bits == '0' ? "x_amp_cast_float16" : "x";
    EXPECT_EQ(input_of(converted, "conv", 0), expected) << bits;
    EXPECT_EQ(node_of(converted, "conv").attr("__opt_constraint__"), bits);
  }
}

TEST(MxnetConversion, AJoinOfTypesRunsInFloat) {
  const Symbol symbol({{.op = "null", .name = "data"},
                       {.op = "null", .name = "w"},
                       {.op = "FullyConnected", .name = "dense", .inputs = {{0, 0, 0}, {1, 0, 0}}},
                       {.op = "softmax", .name = "soft", .inputs = {{0, 0, 0}}},
                       {.op = "Concat", .name = "both", .inputs = {{2, 0, 0}, {3, 0, 0}}}},
                      {{4, 0, 0}});
  for (const char* dtype : {"float16", "bfloat16"}) {  // bfloat16's lists leave Concat neutral
    const Symbol made = convert_symbol(symbol, {.target_dtype = dtype});
    EXPECT_EQ(input_of(made, "both", 0), "dense_output_amp_cast_float32") << dtype;
    EXPECT_EQ(input_of(made, "both", 1), "soft") << dtype;
  }
}

TEST(MxnetConversion, OptionsThatCannotBeAreRefused) {
  const auto error = [](const Options& options) {
    return error_of([&] { convert_model(small(), options); });
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(error({.target_dtype = "int8"}), HasSubstr("only target_dtype float16 and bfloat16"));
  EXPECT_THAT(error({.fp32_ops = Names{"FullyConnected"}}),
              HasSubstr("Common ops in target_dtype_ops and fp32_ops {'FullyConnected'}"));
  EXPECT_THAT(error({.target_dtype_ops = Names{"dot"}}), HasSubstr("widest type"));
  EXPECT_THAT(error({.target_dtype_ops = Names{"Convolutoin"}}),
              HasSubstr("did you mean 'Convolution'"));
  EXPECT_THAT(error({.target_dtype_ops = Names{"+softmax", "dot"}}), HasSubstr("mixes"));
  EXPECT_EQ(
      error({.target_dtype_ops = Names{"-FullyConnected"}, .fp32_ops = Names{"+FullyConnected"}}),
      "no error");
}

TEST(MxnetConversion, ConditionsHoldForAttributesThatASymbolLeavesOut) {
  // A product in 16 bits, and an operator that leaves out attributes.
  const auto input_with = [](const std::string& op, std::map<std::string, std::string> attrs,
                             const std::string& attribute, const std::string& value) {
    const Symbol symbol(
        {{"null", "data"},
         {"null", "weight"},
         {.op = "FullyConnected",
          .name = "product",
          .attrs = {{"num_hidden", "4"}, {"no_bias", "True"}},
          .inputs = {{0, 0, 0}, {1, 0, 0}}},
         {.op = op, .name = "it", .attrs = std::move(attrs), .inputs = {{2, 0, 0}}}},
        {{3, 0, 0}});
    const Options options{.conditional_fp32_ops =
                              std::vector<Conditional>{{op, attribute, {value}}}};
    return input_of(convert_symbol(symbol, options), "it", 0);
  };
  const std::string low = "product", cast = "product_output_amp_cast_float32";
  EXPECT_EQ(input_with("LeakyReLU", {}, "act_type", "leaky"), cast);
  EXPECT_EQ(input_with("LeakyReLU", {}, "act_type", "elu"), low);
  EXPECT_EQ(input_with("LeakyReLU", {{"act_type", "elu"}}, "act_type", "leaky"), low);
  EXPECT_EQ(input_with("LeakyReLU", {}, "slope", "0.25"), cast);
  EXPECT_EQ(input_with("LeakyReLU", {}, "upper_bound", "0.334"), cast);
  EXPECT_EQ(input_with("Pooling", {{"kernel", "(2, 2)"}}, "pool_type", "max"), cast);
  EXPECT_EQ(input_with("Pooling", {{"kernel", "(2, 2)"}}, "global_pool", "False"), cast);
  EXPECT_EQ(input_with("Pooling", {{"kernel", "(2, 2)"}}, "global_pool", "True"), low);
  EXPECT_EQ(input_with("Pooling", {{"kernel", "(2, 2)"}}, "kernel", "(2,2)"), cast);
  EXPECT_EQ(input_with("Activation", {{"act_type", "relu"}}, "act_type", "tanh"), low);
}

TEST(MxnetConversion, ExcludedNodesStayFloatAndUnknownNamesAreAMessage) {
  std::string said;
  const MessageSink before = set_message_sink([&](const std::string& text) { said = text; });
  const Symbol made = convert_model(small(), {.excluded_sym_names = {"conv_fwd", "nobody"}}).symbol;
  set_message_sink(before);
  EXPECT_EQ(input_of(made, "conv_fwd", 0), "data");
  EXPECT_EQ(input_of(made, "dense_fwd", 0), "relu_fwd_output_amp_cast_float16");
  EXPECT_THAT(said, HasSubstr("Missing nodes: {'nobody'}"));
}

}  // namespace
}  // namespace mezzo::convert::mxnet
