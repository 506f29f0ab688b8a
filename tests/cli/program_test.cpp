#include "cli/program.h"

#include <gmock/gmock.h>

#include <chrono>

#include "cli/command.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Program, TellsItsVersionItsCommitAndWhatItWasBuiltWith) {
  const Outcome outcome = mezzo("--version");
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_THAT(outcome.out, testing::MatchesRegex("mezzo " + version() +
                                                 "\ncommit ([0-9a-f]{40}|unknown)\n"
                                                 "compiler (g\\+\\+|clang) .+\n"
                                                 "LibTorch (none|[0-9.]+)\n"));
}

TEST(Program, EverySubcommandHasHelpWithAnExample) {
  const std::string help = mezzo("--help").out;
  for (const char* name : {"info", "lists", "explain", "report", "advise", "lint", "convert",
                           "export", "inspect", "launch", "bench"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + name + " "));
    const Outcome outcome = mezzo(std::string(name) + " --help");
    EXPECT_EQ(outcome.code, kDone) << name;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("Example:\n  mezzo ") + name)) << name;
    EXPECT_THAT(outcome.out, HasSubstr("--json")) << name;
    EXPECT_THAT(outcome.err, IsEmpty()) << name;
  }
}

TEST(Program, WrongUsageIsExitCodeTwoAndSilentOnStandardOutput) {
  for (const char* arguments :
       {"", "nothing", "lists --unknown", "lists --dtype float32", "lists --dtype", "explain",
        "lists --class lower", "lists --system jax", "lists --levels --dtype float16",
        "explain softmax mm", "info extra"}) {
    const Outcome outcome = mezzo(arguments);
    EXPECT_EQ(outcome.code, kWrongUsage) << arguments;
    EXPECT_THAT(outcome.out, IsEmpty()) << arguments;
    EXPECT_THAT(outcome.err, testing::Not(IsEmpty())) << arguments;
  }
}

TEST(Program, NamesWhatIsNearestToAnUnknownWord) {
  struct Case {
    const char* arguments;
    const char* said;
  };
  for (const auto& [arguments, said] : {
           Case{"convrt net.onnx", "mezzo: unknown command 'convrt'; did you mean 'convert'?\n"},
           Case{"frobnicate", "mezzo: unknown command 'frobnicate'\n"},
           Case{"--vesion", "mezzo: unknown option '--vesion'; did you mean '--version'?\n"},
           Case{"lists --levls",
                "mezzo lists: unknown option '--levls'; did you mean '--levels'?\n"},
           Case{"convert --profil=ort net.onnx",
                "mezzo convert: unknown option '--profil'; did you mean '--profile'?\n"},
           Case{"info extra", "mezzo info: unexpected argument 'extra'\n"},
           Case{"explain sofmax", "unknown operator 'sofmax'; did you mean 'softmax'"},
           Case{"explain softmax --dtype bfloat61",
                "'bfloat61' is neither float16 nor bfloat16; did you mean 'bfloat16'"},
           Case{"lists --class flaot",
                "'flaot' is none of low, float, promote, neutral; did you mean 'float'?"},
           Case{"lists --system mxent", "did you mean 'mxnet'?"},
           Case{"completions bsh", "'bsh' is none of bash, zsh, fish; did you mean 'bash'"},
           Case{"launch --nproc 2 -- true",
                "unknown option '--nproc'; did you mean '--nproc-per-node'"},
           Case{"export n.pt -o n.onnx --input 1 --dtype flaot16", "did you mean 'float16'"},
           Case{"export n.pt -o n.onnx --input 1x3:itn64", "did you mean 'int64'"},
       }) {
    const Outcome outcome = mezzo(arguments);
    EXPECT_EQ(outcome.code, kWrongUsage) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(said)) << arguments;
  }
}

TEST(Program, AResultThatCannotBeWrittenIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no full device here";
  const Outcome outcome = mezzo("lists >/dev/full");
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be written"));
}

// The benchmarks themselves are measured by hand; here only what reaches them counts.
TEST(Program, BenchHandsItsWordsToTheBenchmarks) {
  const Outcome outcome = mezzo("bench setp --repeats 3 --json");
  EXPECT_THAT(outcome.out, IsEmpty());
#ifdef MEZZO_WITH_BENCH
  EXPECT_EQ(outcome.code, kWrongUsage);
  EXPECT_THAT(outcome.err, HasSubstr("mezzo bench: no suite 'setp'; there are:"));
  EXPECT_THAT(outcome.err, HasSubstr("\n  step: "));
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'step'?"));
#else
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("mezzo_bench is not installed with this one"));
#endif
}

}  // namespace
}  // namespace mezzo::cli
