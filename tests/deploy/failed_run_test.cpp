// Examples that a network does not take are one Error: where it stopped, the sizes there, and what
// LibTorch says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "platform/temporaries.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct StageImpl : nn::Module {
  StageImpl() {
    register_module("conv", conv);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = conv(x).flatten(1);
    if (refuses) throw std::runtime_error("there is no such stage");
    return head(y);
  }
  nn::Conv2d conv{nn::Conv2d(nn::Conv2dOptions(3, 4, 3))};
  nn::Linear head{nn::Linear(16, 5)};
  bool refuses = false;
};
TORCH_MODULE(Stage);

struct OuterImpl : nn::Module {
  OuterImpl() { register_module("stage", stage); }
  at::Tensor forward(const at::Tensor& x) { return stage(x).relu(); }
  Stage stage;
};
TORCH_MODULE(Outer);

const at::Tensor kFits = torch::randn({2, 3, 4, 4});

/// The messages of all ways out of the program; none is a bare error of LibTorch, none is long, and
/// none leaves a file behind.
std::vector<std::string> messages_of(const Outer& net, const Examples& examples) {
  const platform::Temporary folder(std::filesystem::temp_directory_path() /
                                   ("mezzo_failed_run_" + std::to_string(getpid())));
  std::filesystem::create_directory(folder.path());
  std::vector<std::string> messages;
  const auto note = [&](const auto& run) {
    EXPECT_THROW(run(), Error);
    messages.push_back(message_of(run));
    EXPECT_EQ(messages.back().find('\n'), std::string::npos) << messages.back();
  };
  note([&] { trace(net, examples); });
  note([&] { convert_hybrid_block(net, examples); });
  note([&] { export_onnx(net, examples, folder.path() / "net.onnx"); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return messages;
}

TEST(FailedRun, AWrongShapeNamesTheModuleTheSizesAndLibTorchsSentence) {
  const Outer net;
  const auto messages = messages_of(net, {torch::randn({2, 5, 4, 4})});
  EXPECT_THAT(messages[0], StartsWith("[trace] "));
  EXPECT_THAT(messages[1], StartsWith("[convert_hybrid_block] "));
  EXPECT_THAT(messages[2], StartsWith("[export_onnx] "));
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(HasSubstr("the network does not run on the examples"),
                               HasSubstr("input_0 float32 [2, 5, 4, 4]"), HasSubstr("'stage.conv'"),
                               HasSubstr("float32 [4, 3, 3, 3]"), HasSubstr("channels")));
  }
}

TEST(FailedRun, ALaterModuleIsNamedWithTheSizesThatReachIt) {
  for (const std::string& message : messages_of(Outer(), {torch::randn({2, 3, 6, 6})})) {
    EXPECT_THAT(message,
                AllOf(HasSubstr("input_0 float32 [2, 3, 6, 6]"), HasSubstr("'stage.head'"),
                      HasSubstr("float32 [2, 64]"), HasSubstr("shapes cannot be multiplied")));
  }
}

TEST(FailedRun, AWrongTypeIsNamed) {
  for (const std::string& message : messages_of(Outer(), {torch::ones({2, 3, 4, 4}, at::kLong)}))
    EXPECT_THAT(message, AllOf(HasSubstr("int64 [2, 3, 4, 4]"), HasSubstr("should be the same")));
  const nn::Linear net(3, 2);
  EXPECT_THAT(
      message_of([&] {
        trace(nn::Sequential(net), {torch::ones({2, 3}, at::kLong)});
      }),
      AllOf(HasSubstr("aten::addmm in '0' on float32 [2], int64 [2, 3]"), HasSubstr("same dtype")));
}

TEST(FailedRun, AnUndefinedTensorIsNamed) {
  for (const std::string& message : messages_of(Outer(), {at::Tensor()}))
    EXPECT_THAT(message, HasSubstr("the network does not run on the examples"));
}

TEST(FailedRun, AWrongNumberOfExamplesIsAConfigError) {
  for (const Examples& examples : {Examples(), Examples{kFits, kFits}}) {
    for (const std::string& message : messages_of(Outer(), examples))
      EXPECT_THAT(message, HasSubstr("takes 1 to 1 arguments"));
  }
}

TEST(FailedRun, TheProgramsOwnExceptionIsToldWithThePlaceBefore) {
  Outer net;
  net->stage->refuses = true;
  for (const std::string& message : messages_of(net, {kFits})) {
    EXPECT_THAT(message, AllOf(HasSubstr("behind aten::flatten"), HasSubstr("'stage.conv'"),
                               HasSubstr("there is no such stage")));
  }
}

TEST(FailedRun, TheNetworkStaysAsItWas) {
  Outer net;
  net->train();
  messages_of(net, {torch::randn({2, 5, 4, 4})});
  EXPECT_TRUE(net->stage->conv->is_training());
  EXPECT_NO_THROW(trace(net, {kFits}));
}

TEST(FailedRun, ChecksOnOtherInputsAreTold) {
  const Outer net;
  const Examples wrong{torch::randn({2, 5, 4, 4})};
  const auto told = AllOf(HasSubstr("check_with"), HasSubstr("float32 [2, 5, 4, 4]"),
                          HasSubstr("channels"), Not(HasSubstr("\n")));
  EXPECT_THAT(message_of([&] { trace(net, {kFits}, {.check_with = wrong}); }), told);
  EXPECT_THAT(message_of([&] { convert_hybrid_block(net, {kFits}, {.check_with = wrong}); }), told);
  EXPECT_THAT(message_of([&] { convert_hybrid_block(trace(net, {kFits}), {.check_with = wrong}); }),
              told);
}

TEST(FailedRun, ModulesOfTorchScriptAreTold) {
  const platform::Temporary file(std::filesystem::temp_directory_path() /
                                 ("mezzo_failed_script_" + std::to_string(getpid()) + ".onnx"));
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.matmul(x, self.w)\n",
      {{"w", torch::randn({6, 6})}});
  for (const Examples& wrong :
       {Examples{torch::randn({2, 5})}, Examples{torch::ones({2, 6}, at::kLong)}}) {
    const auto run = [&] { export_onnx(net, wrong, file.path()); };
    EXPECT_THROW(run(), Error);
    EXPECT_THAT(message_of(run), AllOf(StartsWith("[export_onnx] the module does not run"),
                                       HasSubstr("at aten::matmul in 'w'")));
    EXPECT_FALSE(std::filesystem::exists(file.path()));
  }
}

}  // namespace
}  // namespace mezzo::deploy
