// mezzo convert NET.pt
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>

#include "cli/program.h"
#include "command_test.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;

class ScriptCommand : public CommandTest {
 protected:
  bool is_there(const std::string& name) const { return std::filesystem::exists(path(name)); }
};

TEST_F(ScriptCommand, ConvertsAFileAndReportsWhatBecameLow) {
  const auto done = cli::mezzo("convert " + path("net.pt") + " -o " + path("low.pt") +
                               " --dtype bfloat16 --input 2x3x8x8 --report " + path("low.json"));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("calls: 3 bfloat16, 1 float32"));
  EXPECT_THAT(done.out, HasSubstr("largest error: 0.00"));
  EXPECT_THAT(cli::content_of(path("low.json")), HasSubstr("\"target_dtype\": \"bfloat16\""));
  torch::jit::Module net = torch::jit::load(path("net.pt"));
  torch::jit::Module low = torch::jit::load(path("low.pt"));
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  EXPECT_LT(difference(low.forward({x}).toTensor(), net.forward({x}).toTensor()), 0.06);
}

TEST_F(ScriptCommand, TakesShapesInEverySpelling) {
  for (const char* shape : {"2,3,8,8", "x=2,3,8,8", "x=2x3x8x8:float32"}) {
    const auto done =
        cli::mezzo("convert " + path("net.pt") + " -o " + path("low.pt") + " --input " + shape);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("largest error: 0.00"));
  }
  const auto failed =
      cli::mezzo("convert " + path("net.pt") + " -o " + path("out.pt") + " --input y=2x3x8x8");
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("forward takes no 'y'; expected one of x"));
}

TEST_F(ScriptCommand, TakesTheListsOfTheOtherModels) {
  const auto done = cli::mezzo("convert " + path("net.pt") + " -o " + path("low.pt") +
                               " --target-ops conv2d --fp32-ops softmax,linear --exclude conv1 "
                               "--json");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("\"low\": 1,"));
  EXPECT_THAT(done.out, HasSubstr("excluded_sym_names names 'conv1'"));
}

TEST_F(ScriptCommand, LeavesNothingBehindWhenItFails) {
  std::ofstream(path("bad.pt")) << "no archive";
  const struct {
    std::string arguments, message;
    int code;
  } cases[] = {
      {path("bad.pt") + " -o " + path("out.pt"), "bad.pt' is no TorchScript archive", 1},
      {path("none.pt") + " -o " + path("out.pt"), "cannot read", 1},
      {path("net.pt") + " -o " + path("out.pt") + " --opset 13", "--opset is for other models", 2},
      {path("net.pt"), "give -o OUT", 2},
      {path("net.pt") + " -o " + path("net.pt"), "is the input", 2},
      {path("net.pt") + " -o " + path("out.pt") + " --exclude nothing",
       "'nothing' names no module and no parameter; there are conv0, bn0", 2},
      {path("net.pt") + " -o " + path("out.pt") + " --input 1x3y4", "expected SHAPE[:DTYPE]", 2},
      {path("net.pt") + " -o " + path("out.pt") + " --input 1x3x8x8 --tolerance 1e-9",
       "net.pt': [convert_hybrid_block] check_with: an output differs by", 1},
  };
  for (const auto& one : cases) {
    const auto failed = cli::mezzo("convert " + one.arguments);
    EXPECT_EQ(failed.code, one.code) << one.arguments;
    EXPECT_THAT(failed.err, HasSubstr(one.message));
    EXPECT_EQ(failed.out, "");
    EXPECT_FALSE(is_there("out.pt"));
  }
}

}  // namespace
}  // namespace mezzo::deploy
