// mezzo export NET.pt
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "command_test.h"
#include "deploy/files/torchvision.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;

class ExportCommand : public CommandTest {
 protected:
  /// `mezzo export FILE -o out.onnx ARGUMENTS`
  cli::Outcome exported(const std::string& file, const std::string& arguments) const {
    return cli::mezzo("export " + path(file) + " -o " + path("out.onnx") + " --evaluator " +
                      MEZZO_EVALUATOR + " " + arguments);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(ExportCommand, WritesAVerifiedModelAndReports) {
  const auto done = exported("net.pt", "--input 2x3x8x8");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("out.onnx: "));
  EXPECT_THAT(done.out, HasSubstr("on 1 sets of inputs"));
  EXPECT_EQ(files(), (std::vector<std::string>{"net.pt", "out.onnx"}));
}

TEST_F(ExportCommand, TakesOpsetAxesByNameAndNumberAndPrintsJson) {
  for (const std::string axis : {"x:0=batch", "0:0=batch"}) {
    const auto done =
        exported("net.pt", "--input 2x3x8x8:float32 --opset 19 --json --dynamic " + axis);
    EXPECT_EQ(done.code, 0) << done.err;
    const auto report = nlohmann::json::parse(done.out);
    EXPECT_LT(report.at("errors").at(0).get<double>(), 1e-4);
    const std::string file = cli::content_of(path("out.onnx"));
    EXPECT_THAT(file, HasSubstr("batch"));
    EXPECT_THAT(cli::mezzo("inspect " + path("out.onnx")).out, HasSubstr("19"));
  }
}

TEST_F(ExportCommand, ConvertsTheResultWithADtype) {
  for (const std::string dtype : {"float16", "bfloat16"}) {
    const auto done = exported("net.pt", "--input 2x3x8x8 --dtype " + dtype);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(cli::mezzo("inspect " + path("out.onnx")).out, HasSubstr(dtype));
    EXPECT_EQ(files(), (std::vector<std::string>{"net.pt", "out.onnx"}));
  }
}

TEST_F(ExportCommand, TensorsWithoutDimensionsAndNumbersAreScalarInputs) {
  scripted(
      "def forward(self, x: Tensor, scale: Tensor, times: int, ids: Tensor):\n"
      "  return x * scale + float(times), torch.sum(ids)\n")
      .save(path("scalars.pt"));
  const auto done =
      exported("scalars.pt", "--input 3 --input scalar --input scalar:int64 --input 2x2:int64");
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* name : {"x", "scale", "times", "ids"})
    EXPECT_THAT(cli::content_of(path("out.onnx")), HasSubstr(name));
}

// As `mezzo convert` takes them: sizes with x or commas, inputs in order or by name.
TEST_F(ExportCommand, TakesShapesInEverySpelling) {
  for (const char* shape : {"2,3,8,8", "x=2,3,8,8", "x=2x3x8x8:float32"})
    EXPECT_EQ(exported("net.pt", std::string("--input ") + shape).code, 0) << shape;
  scripted(
      "def forward(self, x: Tensor, y: Tensor, ids: Tensor):\n"
      "  return torch.matmul(x, y), torch.sum(ids)\n")
      .save(path("named.pt"));
  const auto done = exported("named.pt", "--input ids=4:int64 --input y=3,5 --input 2x3");
  EXPECT_EQ(done.code, 0) << done.err;
  const struct {
    const char *inputs, *said;
  } cases[] = {
      {"--input z=2x3 --input y=3x5", "forward takes no 'z'; expected one of x, y, ids"},
      {"--input idx=4", "did you mean 'ids'"},
      {"--input y=3x5 --input y=3x5", "gives 'y' a second time"},
      {"--input y=3x5 --input ids=4:int64", "leaves 'x' before it without a shape"},
      {"--input x=2x3 --input 1 --input 1 --input 1", "one more than forward takes, 3"},
  };
  for (const auto& [inputs, said] : cases) {
    const auto failed = exported("named.pt", inputs);
    EXPECT_EQ(failed.code, 2) << inputs;
    EXPECT_THAT(failed.err, HasSubstr(said)) << inputs;
  }
}

// The opset is the program's to choose: the lowest in which the network goes low.
TEST_F(ExportCommand, ChoosesTheOpsetThatHoldsTheDtype) {
  const auto opset_of = [&](const std::string& arguments) {
    const auto done = exported("net.pt", "--input 2x3x8x8 --json " + arguments);
    EXPECT_EQ(done.code, 0) << done.err;
    const auto conversion = nlohmann::json::parse(done.out).at("conversion");
    return conversion.at("opset_after").get<int>();
  };
  EXPECT_EQ(opset_of("--dtype float16"), 17);
  EXPECT_EQ(opset_of("--dtype bfloat16"), 22);
  EXPECT_EQ(opset_of("--dtype bfloat16 --opset 18"), 18);
}

TEST_F(ExportCommand, FilesOfDetectorsLoadWithoutTorchvision) {
  know_torchvision();
  scripted(
      "def forward(self, boxes: Tensor, scores: Tensor):\n"
      "  corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs()], 1)\n"
      "  kept = vision.nms(corners, scores, 0.5)\n"
      "  return corners[kept]\n",
      {}, {}, {}, std::make_shared<WithVision>())
      .save(path("nms.pt"));
  const auto done = exported("nms.pt", "--input 5x4 --input 5");
  EXPECT_EQ(done.code, 0) << done.err;
}

TEST_F(ExportCommand, ModesOfTheFileDoNotMatter) {
  torch::jit::Module net = conv_net();
  net.train();
  net.save(path("train.pt"));
  EXPECT_EQ(exported("train.pt", "--input 2x3x8x8").code, 0);
}

TEST_F(ExportCommand, LeavesNothingBehindWhenItFails) {
  std::ofstream(path("bad.pt")) << "no archive";
  scripted("def forward(self, x: Tensor):\n  return torch.linalg_inv(x)\n").save(path("inv.pt"));
  // Sums in float32, which the judge takes in float64.
  scripted("def forward(self, x: Tensor):\n  return torch.sum(x, [1])\n").save(path("sums.pt"));
  const struct {
    std::string file, arguments, message;
    int code;
  } cases[] = {
      {"bad.pt", "--input 1", "bad.pt' is no TorchScript archive", 1},
      {"none.pt", "--input 1", "cannot read", 1},
      {"net.pt", "", "--input is required", 2},
      {"net.pt", "--input 1x3y4", "expected SHAPE[:DTYPE]", 2},
      {"net.pt", "--input 1x3x8x8:float12", "'float12' is no type of an element", 2},
      {"net.pt", "--input 1x3x8x8 --input 1", "takes 1 arguments, and there are 2", 2},
      {"net.pt", "--input 1x3x8x8 --opset 12", "opset must be between 13 and 21, got 12", 2},
      {"net.pt", "--input 1x3x8x8 --dynamic x=batch", "expected INPUT:AXIS=NAME", 2},
      {"net.pt", "--input 1x3x8x8 --dynamic y:0=batch", "names the input 'y'", 2},
      {"net.pt", "--input 1x3x8x8 --dynamic x:7=batch", "which has 4 dimensions", 2},
      {"net.pt", "--input 1x3x8x8 --dtype int8", "--dtype takes float16 or bfloat16", 2},
      {"net.pt", "--input 1x4x8x8", "net.pt': [export_onnx] the module does not run", 1},
      {"sums.pt", "--input 64x5000 --tolerance 1e-30", "the file and the network differ", 1},
      {"inv.pt", "--input 3x3", "aten::linalg_inv", 1},
  };
  const auto before = files();
  for (const auto& one : cases) {
    const auto failed = exported(one.file, one.arguments);
    EXPECT_EQ(failed.code, one.code) << one.arguments << failed.err;
    EXPECT_THAT(failed.err, HasSubstr(one.message)) << one.arguments;
    EXPECT_EQ(failed.out, "");
    EXPECT_EQ(files(), before) << one.arguments;
  }
  const auto same =
      cli::mezzo("export " + path("net.pt") + " -o " + path("net.pt") + " --input 1x3x8x8");
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.err, HasSubstr("is the input; name another file"));
}

}  // namespace
}  // namespace mezzo::deploy
