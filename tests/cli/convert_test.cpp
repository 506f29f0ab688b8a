// mezzo convert and mezzo inspect: every option does what the page says, conflicts name both sides.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cli/command.h"
#include "cli/program.h"
#include "convert/builder.h"
#include "mezzo/convert.h"

namespace mezzo::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// conv -> relu -> matmul -> softmax, with names.
convert::Message network() {
  convert::GraphBuilder g;
  const std::vector<float> kernel(576, 0.1F);  // 8 x 8 x 3 x 3
  g.input("x", convert::Element::kFloat, {1, 8, 4, 4}).weight("conv.weight", kernel, {8, 8, 3, 3});
  g.weight("fc.weight", {1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  g.named("conv").node("Conv", {"x", "conv.weight"}, {"c"});
  g.named("relu").node("Relu", {"c"}, {"r"});
  g.named("fc").node("MatMul", {"r", "fc.weight"}, {"m"});
  g.named("prob").node("Softmax", {"m"}, {"y"});
  return convert::model(g.output("y", convert::Element::kFloat, {1, 8, 2, 4}).take());
}

class ConvertCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("mezzo_cli_convert_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    convert::save(folder_ / "in.onnx", network());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // `mezzo convert in.onnx -o out.onnx ARGUMENTS`, which ends with that code.
  Outcome convert(const std::string& arguments, int code = kDone) const {
    fs::remove(folder_ / "out.onnx");
    Outcome outcome =
        mezzo("convert " + path("in.onnx") + " -o " + path("out.onnx") + " " + arguments);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_EQ(fs::exists(folder_ / "out.onnx"), code == kDone) << arguments;
    return outcome;
  }

  fs::path folder_;
};

TEST_F(ConvertCommand, MakesOnnxOfAModelOfMxnet) {
  const std::string data = MEZZO_MXNET_DATA;
  const auto run = [&](const std::string& arguments) {
    return mezzo("convert " + data + "/small-symbol.json --verify none " + arguments);
  };
  const std::string params = "--params " + data + "/small-0000.params ";
  const Outcome outcome = run(params + "-o " + path("net.onnx"));
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 of 2 heavy ones"));
  EXPECT_THAT(run(params + "-o " + path("f.onnx") + " --dtype float32").out,
              HasSubstr("(float32): 5 nodes, 8 constants"));
  EXPECT_EQ(convert::inspect_model(path("f.onnx")).weight_bytes_by_type.at("float32"), 1672);
  const std::string fixed = params + "-o " + path("g.onnx") + " --dtype float32 --input ";
  EXPECT_EQ(run(fixed + "data=1,3,8,8").code, kDone);
  EXPECT_THAT(run(fixed + "data=1,three").err,
              HasSubstr("expected SHAPE[:DTYPE] or NAME=SHAPE[:DTYPE]"));
  EXPECT_THAT(run(fixed + "image=1,3,8,8").err, HasSubstr("expected 'data'"));
  EXPECT_THAT(run("-o " + path("g.onnx")).err, HasSubstr("--params FILE"));
  EXPECT_THAT(run(params + "--remove-amp-cast -o " + path("g.onnx")).err,
              HasSubstr("--remove-amp-cast beside -o OUT.onnx"));
  EXPECT_THAT(mezzo("convert " + path("in.onnx") + " -o " + path("g.onnx") + " --input x=1").err,
              HasSubstr("--input is for MXNet's"));
}

TEST_F(ConvertCommand, ConvertsAndSaysWhatItDid) {
  const Outcome outcome = convert("");
  EXPECT_THAT(outcome.out, HasSubstr("2 of 2 heavy ones"));
  EXPECT_THAT(outcome.out, HasSubstr("weights are stored low"));
  EXPECT_LE(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 20);
  EXPECT_THAT(outcome.err, IsEmpty());
  const Outcome inspected = mezzo("inspect " + path("out.onnx") + " --json");
  EXPECT_EQ(inspected.code, kDone);
  EXPECT_THAT(inspected.out, HasSubstr("\"float16\""));
  EXPECT_THAT(convert("--quiet").out, IsEmpty());
  EXPECT_THAT(convert("--json").out, HasSubstr("\"heavy_low_nodes\": 2"));
}

TEST_F(ConvertCommand, HowWeightsAreStoredIsSaidWhereNobodyChoseIt) {
  const auto hint = HasSubstr("--cast-optional-params=false keeps them float32");
  EXPECT_THAT(convert("").out, hint);
  for (const char* arguments : {"--cast-optional-params=true", "--cast-optional-params=false",
                                "--weights-only", "--profile ort-cpu", "--exclude '*'"}) {
    EXPECT_THAT(convert(arguments).out, Not(hint)) << arguments;
  }
}

TEST_F(ConvertCommand, EveryListAndNameCounts) {
  const auto low_nodes = [&](const std::string& arguments) {
    const std::string text = convert(arguments + " --json").out;
    const std::size_t at = text.find("\"low_nodes\": ");
    return std::stoi(text.substr(at + 13));
  };
  EXPECT_EQ(low_nodes(""), 3);  // Conv, Relu, MatMul
  EXPECT_EQ(low_nodes("--target-ops Conv"), 2);
  EXPECT_EQ(low_nodes("--target-ops +Softmax"), 4);
  EXPECT_EQ(low_nodes("--fp32-ops +MatMul,+Relu"), 1);
  EXPECT_EQ(low_nodes("--widest-ops -Add"), 3);
  EXPECT_EQ(low_nodes("--fp32-ops -Softmax -Exp"), low_nodes("--fp32-ops -Softmax,-Exp"));
  EXPECT_EQ(low_nodes("--conditional-fp32-ops Conv:group=1,2"), 2);
  EXPECT_EQ(low_nodes("--exclude conv"), 2);
  EXPECT_EQ(low_nodes("--exclude 'c*' --exclude '/f./'"), 0);
  EXPECT_EQ(low_nodes("--exclude-tensor fc.weight"), 2);
  EXPECT_EQ(low_nodes("--exclude-input Conv:0"), 2);
  EXPECT_EQ(low_nodes("--exclude-region x '*'"), 0);
  EXPECT_EQ(low_nodes("--include prob"), 4);
  EXPECT_EQ(low_nodes("--weights-only"), 0);
  EXPECT_EQ(low_nodes("--profile ort-cpu"), 0);
  EXPECT_EQ(low_nodes("--dtype bfloat16 --opset keep"), 2);  // Conv takes it from opset 22 on
  EXPECT_EQ(low_nodes("--dtype bfloat16 --opset auto"), 3);
  EXPECT_EQ(low_nodes("--dtype bfloat16 --opset 22"), 3);
}

TEST_F(ConvertCommand, InputsOutputsAndWeightsTakeTheTypesAskedFor) {
  const auto inspected = [&](const std::string& arguments) {
    convert(arguments);
    return mezzo("inspect " + path("out.onnx")).out;
  };
  EXPECT_THAT(inspected("--io low"), HasSubstr("input x: tensor(float16)"));
  EXPECT_THAT(inspected("--io low"), HasSubstr("output y: tensor(float16)"));
  EXPECT_THAT(inspected("--io-of y=float16"), HasSubstr("output y: tensor(float16)"));
  EXPECT_THAT(inspected("--io-of y=float16"), HasSubstr("input x: tensor(float32)"));
  EXPECT_THAT(inspected("--cast-optional-params=false"), Not(HasSubstr("bytes: float16")));
  EXPECT_THAT(inspected("--cast-optional-params=true"), HasSubstr("float16 1168"));
}

TEST_F(ConvertCommand, PlansAndReportsAreWritten) {
  convert("--plan-out " + path("plan.json") + " --report " + path("r.json") + " --report " +
          path("r.html"));
  const std::string direct = content_of(folder_ / "out.onnx");
  EXPECT_THAT(content_of(folder_ / "r.html"), HasSubstr("<!doctype html>"));
  EXPECT_THAT(content_of(folder_ / "r.json"), HasSubstr("\"decisions\""));
  convert("--plan " + path("plan.json"));
  EXPECT_EQ(content_of(folder_ / "out.onnx"), direct);
  // Without -o nothing but the plan is written.
  fs::remove(folder_ / "out.onnx");
  EXPECT_EQ(mezzo("convert " + path("in.onnx") + " --plan-out " + path("p.json")).code, kDone);
  EXPECT_EQ(content_of(folder_ / "p.json"), content_of(folder_ / "plan.json"));
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx"));
}

TEST_F(ConvertCommand, PlansAndReportsOverwriteNothingElse) {
  const std::string original = content_of(folder_ / "in.onnx");
  for (const char* file : {"in.onnx", "out.onnx", "out.onnx.data"}) {
    const Outcome outcome = convert("--plan-out " + path(file), kWrongUsage);
    EXPECT_THAT(outcome.err, HasSubstr("name another file")) << file;
  }
  convert("--report " + path("both.json") + " --plan-out " + path("both.json"), kWrongUsage);
  EXPECT_EQ(content_of(folder_ / "in.onnx"), original);
  // Nothing is done where the report could not be written in the end.
  EXPECT_THAT(convert("--report " + path("nowhere/r.json"), kFailed).err,
              HasSubstr("there is no folder"));
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx"));
}

TEST_F(ConvertCommand, WhatIsMendedIsAskedForAndTold) {
  convert::GraphBuilder g;
  g.input("x").weight("w", {1e6F, 1, 1, 1}).weight("b", {0, 1}, {2}).weight("v", {1, 2}, {2});
  g.weight("eps", {1e-12F}, {}).node("Gemm", {"x", "w"}, {"m"});
  g.node("BatchNormalization", {"m", "v", "b", "b", "v"}, {"n"});
  g.weight("u").node("MatMul", {"n", "u"}, {"p"}).node("Add", {"p", "eps"}, {"a"});
  g.node("Div", {"p", "a"}, {"q"}).node("MatMul", {"q", "u"}, {"y"}).output("y");
  convert::save(folder_ / "in.onnx", convert::model(g.take()));
  const std::string plain = convert("").out;
  for (const char* what : {"clamped", "raised", "folded"}) EXPECT_THAT(plain, Not(HasSubstr(what)));
  EXPECT_THAT(convert("--clamp-weights").out, HasSubstr("clamped: 1 value of 'w', 1e+06 to 65504"));
  EXPECT_THAT(convert("--raise-epsilons").out, HasSubstr("raised: 1 value of 'eps', 1e-12 to"));
  EXPECT_THAT(convert("--fold-batch-norm --report " + path("r.html")).out,
              HasSubstr("1 of 1 batch normalizations were folded"));
  EXPECT_THAT(content_of(folder_ / "r.html"), HasSubstr("<h2>Batch normalizations</h2>"));
  const std::string all = "--clamp-weights --raise-epsilons --fold-batch-norm";
  convert(all + " --plan-out " + path("plan.json"));
  const std::string direct = content_of(folder_ / "out.onnx");
  convert("--plan " + path("plan.json"));
  EXPECT_EQ(content_of(folder_ / "out.onnx"), direct);
  EXPECT_THAT(convert("--plan " + path("plan.json") + " --clamp-weights", kWrongUsage).err,
              HasSubstr("--clamp-weights"));
}

TEST_F(ConvertCommand, TheModelMayStandBehindAnyOption) {
  for (const char* option :
       {"--exclude conv", "--exclude-tensor x", "--exclude-input Conv:0", "--exclude-region a b",
        "--include conv", "--target-ops Conv,MatMul", "--fp32-ops +Relu", "--widest-ops -Add",
        "--io-of x=float16", "--conditional-fp32-ops Conv:group=2"}) {
    EXPECT_EQ(
        mezzo("convert " + std::string(option) + " " + path("in.onnx") + " -o " + path("out.onnx"))
            .code,
        kDone)
        << option;
  }
  EXPECT_EQ(mezzo("convert --report " + path("r.json") + " " + path("in.onnx") + " -o " +
                  path("out.onnx"))
                .code,
            kDone);
  convert("--exclude conv --exclude fc");
}

TEST_F(ConvertCommand, WithoutOutThereIsAPlanAndNothingElse) {
  const std::string plan_only = "convert " + path("in.onnx") + " --plan-out " + path("p.json");
  const Outcome printed = mezzo(plan_only + " --json");
  EXPECT_EQ(printed.code, kDone);
  EXPECT_EQ(printed.out, content_of(folder_ / "p.json"));
  const Outcome report = mezzo(plan_only + " --report " + path("r.json"));
  EXPECT_EQ(report.code, kWrongUsage);
  EXPECT_THAT(report.err, HasSubstr("--report tells of a conversion: give -o OUT"));
  const Outcome applied = mezzo("convert " + path("in.onnx") + " --plan " + path("p.json") +
                                " --plan-out " + path("q.json"));
  EXPECT_EQ(applied.code, kWrongUsage);
  EXPECT_THAT(applied.err, HasSubstr("--plan is applied in a conversion: give -o OUT"));
  EXPECT_FALSE(fs::exists(folder_ / "q.json"));
  EXPECT_THAT(convert("--plan " + path("in.onnx"), kWrongUsage).err,
              HasSubstr("in.onnx' is no plan"));
}

TEST_F(ConvertCommand, PatternsThatMatchNothingWarn) {
  EXPECT_THAT(convert("--exclude 'nothing*'").out,
              HasSubstr("warning: excluded name 'nothing*' matches no node"));
  EXPECT_THAT(convert("--include absent").out, HasSubstr("'absent' matches no node"));
}

TEST_F(ConvertCommand, ConflictsNameBothOrigins) {
  EXPECT_THAT(convert("--fp32-ops Conv --target-ops Conv", kWrongUsage).err,
              HasSubstr("'Conv' is in fp32_ops and in target_dtype_ops"));
  EXPECT_THAT(convert("--exclude conv --include 'c*'", kWrongUsage).err,
              HasSubstr("excluded by name 'conv', and included by name 'c*'"));
  EXPECT_THAT(convert("--conditional-fp32-ops Conv:group=1 --target-ops Conv", kWrongUsage).err,
              HasSubstr("'Conv' is in conditional_fp32_ops and in target_dtype_ops"));
  for (const char* decides : {"--dtype bfloat16", "--exclude a", "--weights-only", "--headroom 2",
                              "--cast-optional-params=false", "--attempts 2"}) {
    EXPECT_THAT(convert("--plan x.json --tolerance 0.1 " + std::string(decides), kWrongUsage).err,
                HasSubstr("is for deciding, and --plan has decided"))
        << decides;
  }
}

TEST_F(ConvertCommand, WhatCannotBeIsWrongUsageOrAFailure) {
  for (const char* arguments : {"--dtype float8",
                                "--io high",
                                "--io-of x",
                                "--io-of z=float16",
                                "--io-of x=int8",
                                "--profile cpu",
                                "--opset old",
                                "--opset 0",
                                "--opset 99",
                                "--opset 9",
                                "--weights-only --cast-optional-params=false",
                                "--profile ort-cpu --cast-optional-params=false",
                                "--verify perhaps",
                                "--tolerance -1",
                                "--check true",
                                "--check ''",
                                "--tolerance 1 --attempts 0",
                                "--attempts many",
                                "--tolerance 1 --time-limit 0",
                                "--attempts 5",
                                "--time-limit 5",
                                "--report r.txt",
                                "--conditional-fp32-ops Conv",
                                "--target-ops Convolve",
                                "--exclude '/(/'",
                                "--unknown"}) {
    const Outcome outcome = convert(arguments, kWrongUsage);
    EXPECT_THAT(outcome.out, IsEmpty()) << arguments;
    EXPECT_THAT(outcome.err, Not(IsEmpty())) << arguments;
  }
  EXPECT_EQ(mezzo("convert " + path("missing.onnx") + " -o " + path("out.onnx")).code, kFailed);
  EXPECT_EQ(mezzo("convert " + path("in.onnx") + " -o " + path("in.onnx")).code, kWrongUsage);
  EXPECT_EQ(mezzo("convert " + path("in.onnx")).code, kWrongUsage);
  convert::save(folder_ / "bad.onnx", std::string("not a model"));
  EXPECT_EQ(mezzo("inspect " + path("bad.onnx")).code, kFailed);
  EXPECT_EQ(mezzo("inspect " + path("missing.onnx") + " --json").code, kFailed);
}

TEST_F(ConvertCommand, NamesWhatIsNearestToAWordThatItDoesNotKnow) {
  struct Case {
    const char *arguments, *meant;
  };
  for (const auto& [arguments, meant] :
       {Case{"--dtype flaot16", "'float16'"}, Case{"--io lwo", "'low'"},
        Case{"--profile otr", "'ort'"}, Case{"--verify comapre", "'compare'"},
        Case{"--opset atuo", "'auto'"}, Case{"--without-pin signls", "'signals'"},
        Case{"--target-ops Convv", "'Conv'"}, Case{"--fp32-ops +MatMull", "'MatMul'"},
        Case{"--conditional-fp32-ops Cnov:group=1", "'Conv'"},
        Case{"--conditional-fp32-ops Conv:gruop=1", "'group'"}}) {
    EXPECT_THAT(convert(arguments, kWrongUsage).err,
                HasSubstr("did you mean " + std::string(meant)))
        << arguments;
  }
}

// A file of MXNet's that is damaged, or does not belong to its graph, is one line and exit code 1.
TEST_F(ConvertCommand, FilesOfMxnetThatDoNotBelongTogetherLeaveNothingBehind) {
  const std::string graph = content_of(std::string(MEZZO_MXNET_DATA) + "/small-symbol.json");
  const std::string params = content_of(std::string(MEZZO_MXNET_DATA) + "/small-0000.params");
  const auto changed = [](std::string text, const std::string& piece, const std::string& other) {
    return text.replace(text.find(piece), piece.size(), other);
  };
  struct Case {
    std::string graph, params, said;
  };
  for (const auto& [symbol, arrays, said] :
       {Case{changed(graph, "(3, 3)", "(3; 3)"), params,
             "node 'conv_fwd' (Convolution): the attribute"},
        Case{changed(graph, "[[0, 0, 0], [1, 0, 0], [2, 0, 0]]", "[[0, 0, 0]]"), params,
             "node 'conv_fwd' (Convolution) lacks its input 'weight'"},
        Case{graph, changed(params, "arg:dense_bias", "arg:dense_bais"), "'dense_bias'"},
        Case{changed(graph, "(2, 144)", "(2, 145)"), params, "'dense_weight' is (2, 144)"},
        Case{graph, params.substr(0, params.size() - 3), "x-0000.params"}}) {
    convert::save(folder_ / "x-symbol.json", symbol);
    convert::save(folder_ / "x-0000.params", arrays);
    for (const char* out : {"made", "made.onnx"}) {
      const Outcome outcome = mezzo("convert " + path("x-symbol.json") + " --params " +
                                    path("x-0000.params") + " -o " + path(out));
      EXPECT_EQ(outcome.code, kFailed) << said;
      EXPECT_THAT(outcome.out, IsEmpty());
      EXPECT_THAT(outcome.err, HasSubstr(said));
      EXPECT_THAT(outcome.err, HasSubstr(folder_.string()));
      EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
      for (const auto& entry : fs::directory_iterator(folder_))
        EXPECT_THAT(entry.path().filename().string(), Not(testing::StartsWith("made")));
    }
  }
  convert::save(folder_ / "x-symbol.json",
                changed(changed(graph, "\"Activation\"", "\"my_company_relu\""),
                        "\"attrs\": {\"act_type\": \"relu\"}", "\"attrs\": {}"));
  convert::save(folder_ / "x-0000.params", params);
  const Outcome kept = mezzo("convert " + path("x-symbol.json") + " --params " +
                             path("x-0000.params") + " -o " + path("made"));
  EXPECT_EQ(kept.code, kDone);
  EXPECT_THAT(kept.err, HasSubstr("'my_company_relu' (node 'relu_fwd')"));
  EXPECT_THAT(content_of(folder_ / "made-symbol.json"), HasSubstr("my_company_relu"));
}

// One spelling for all commands: names or the order, x or commas.
TEST_F(ConvertCommand, TakesShapesInEverySpelling) {
  const std::string data = MEZZO_MXNET_DATA;
  const auto made = [&](const std::string& inputs) {
    return mezzo("convert " + data + "/small-symbol.json --params " + data +
                 "/small-0000.params --dtype float32 --verify none -o " + path("made.onnx") +
                 inputs);
  };
  ASSERT_EQ(made(" --input data=1,3,8,8").code, kDone);
  const std::string wanted = content_of(folder_ / "made.onnx");
  for (const char* shape : {"1x3x8x8", "1,3,8,8", "data=1x3x8x8", "data=1,3,8,8,",
                            "data=1x3x8x8:float32", "1x3x8x8:float"}) {
    fs::remove(folder_ / "made.onnx");
    EXPECT_EQ(made(std::string(" --input ") + shape).code, kDone) << shape;
    EXPECT_EQ(content_of(folder_ / "made.onnx"), wanted) << shape;
  }
  EXPECT_EQ(made(" --input 0x3x0x0").code, kDone) << "sizes that change";
  struct Case {
    const char *inputs, *said;
  };
  for (const auto& [inputs, said] :
       {Case{"1x3,8", "such as 1x3x224x224, data=1,3,224,224 or 1x128:int64"},
        Case{"1x3y8", "expected SHAPE"}, Case{"data=", "expected SHAPE"},
        Case{"=1x3", "expected SHAPE"}, Case{"1x-3", "expected SHAPE"},
        Case{"1xx3", "expected SHAPE"}, Case{"'1 x 3'", "expected SHAPE"},
        Case{":int64", "expected SHAPE"},
        Case{"1x3:itn64", "'itn64' is no type of an element; did you mean 'int64'"},
        Case{"1x3x8x8 --input 1x3", "'1x3' is one more than the graph has data"},
        Case{"data=1,3,8,8 --input data=1,3,8,8", "a second time"},
        Case{"dta=1,3,8,8", "'dta', which is no data of the graph; expected 'data'"}}) {
    const Outcome outcome = made(std::string(" --input ") + inputs);
    EXPECT_EQ(outcome.code, kWrongUsage) << inputs;
    EXPECT_THAT(outcome.err, HasSubstr(said)) << inputs;
  }
}

TEST_F(ConvertCommand, TheModelMayStandBehindAnyList) {
  const Outcome outcome = mezzo("convert --calibration " + path("none.npz") + " --exclude a " +
                                path("in.onnx") + " -o " + path("out.onnx"));
  EXPECT_EQ(outcome.code, kFailed) << outcome.err;  // and not a missing IN
}

TEST_F(ConvertCommand, ACommandJudgesTheModelBeforeItIsWritten) {
  // Quoted twice: by the shell of this test, and by that of the program.
  EXPECT_THAT(convert("--check 'test -s {} && cp \"{}\" " + path("seen.onnx") + "'").out,
              HasSubstr("accepted by the command"));
  EXPECT_EQ(content_of(folder_ / "seen.onnx"), content_of(folder_ / "out.onnx"));
  const Outcome refused = convert("--check 'echo not with me; test ! -s {}'", kFailed);
  EXPECT_THAT(refused.err, HasSubstr("refuses even the model in which every node stays float32"));
  EXPECT_THAT(refused.err, HasSubstr("exit code 1:\nnot with me"));
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx.search"));
  EXPECT_THAT(convert("--check 'no-such-judge {}'", kFailed).err,
              HasSubstr("the shell cannot run 'no-such-judge {}'"));
  const std::string plan = "convert " + path("in.onnx") + " --plan-out " + path("p.json");
  EXPECT_EQ(mezzo(plan + " --check 'test -s {}'").code, kDone);
  EXPECT_EQ(mezzo(plan + " --check 'test ! -s {}'").code, kFailed);
  EXPECT_EQ(mezzo(plan).code, kDone);
  const std::string planned = "--plan " + path("p.json");
  EXPECT_THAT(convert(planned + " --check 'test -s {}'").out, HasSubstr("accepted by the command"));
  EXPECT_THAT(convert(planned + " --check 'test ! -s {}'", kFailed).err,
              HasSubstr("refuses the result: exit code 1"));
  EXPECT_THAT(convert(planned + " --check 'test -s {}' --attempts 2", kWrongUsage).err,
              HasSubstr("--attempts"));
}

TEST_F(ConvertCommand, ASearchEndsByItsBudgetAndSaysSo) {
  // Larger than the model that stores all weights low: something must stay float32.
  const std::string larger = "--check 'test $(wc -c < {}) -gt 1700' ";
  const std::string all_low = convert("--quiet").out + content_of(folder_ / "out.onnx");
  ASSERT_LT(all_low.size(), 1700U);
  EXPECT_THAT(convert(larger + "--attempts 1", kFailed).err,
              HasSubstr("within its budget (attempts)"));
  EXPECT_TRUE(fs::exists(folder_ / "out.onnx.search"));
  EXPECT_THAT(convert(larger + "--attempts 1").out,
              HasSubstr("the search ended by its budget (attempts)"));
  EXPECT_THAT(convert(larger + "--time-limit 600").out, Not(HasSubstr("ended by its budget")));
  EXPECT_GT(content_of(folder_ / "out.onnx").size(), 1700U);
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx.search"));
  EXPECT_THAT(convert(larger + "--time-limit 1e-9", kFailed).err,
              HasSubstr("within its budget (time limit)"));
}

// Ctrl-C while the command runs: neither the model that it looks at nor itself is left.
TEST_F(ConvertCommand, AnInterruptedCommandLeavesNothingBehind) {
  const std::string number = path("number");
  const std::string script = "echo $$ > " + number + "; test -s {} && exec sleep 60";
  const pid_t program = fork();
  if (program == 0) {
    execl(MEZZO_PROGRAM, "mezzo", "convert", path("in.onnx").c_str(), "-o",
          path("out.onnx").c_str(), "--check", script.c_str(), nullptr);
    _exit(1);
  }
  const auto soon = [](const auto& is_so) {
    for (int i = 0; i < 1000 && !is_so(); ++i) usleep(20000);
    return is_so();
  };
  EXPECT_TRUE(soon([&] { return !content_of(number).empty(); }));
  kill(program, SIGINT);
  int status = 0;
  waitpid(program, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  const int command = std::stoi(content_of(number));
  EXPECT_TRUE(soon([&] {
    const std::string state = content_of("/proc/" + std::to_string(command) + "/stat");
    return state.empty() || state.find(") Z ") != std::string::npos;
  }));
  fs::remove(number);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename(), "in.onnx");
}

TEST_F(ConvertCommand, SamplesThatAreNotThereOrDoNotFitAreRefused) {
  EXPECT_EQ(convert("--calibration " + path("none.npz"), kFailed).out, "");
  convert::save(folder_ / "z.npy", std::string("no array"));
  EXPECT_EQ(convert("--calibration " + path("z.npy"), kFailed).out, "");
}

}  // namespace
}  // namespace mezzo::cli
