#include "support/command_line.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>

namespace examples {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Options {
  std::string level = "O1";
  int epochs = 3;
  double rate = 0.1;
  bool tied = false;
  CommandLine line{"program", "Does something."};

  Options() {
    line.option("opt-level", level, "the level")
        .option("epochs", epochs, "how often")
        .option("lr", rate, "how fast")
        .option("tied", tied, "one matrix for both ends");
  }
  bool parse(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return line.parse(static_cast<int>(words.size()), words.data());
  }
  std::string failure(std::vector<const char*> words) {
    try {
      parse(std::move(words));
    } catch (const mezzo::ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST(CommandLine, TakesValuesInBothSpellings) {
  Options options;
  EXPECT_TRUE(options.parse({"--epochs", "5", "--lr=0.5", "--opt_level", "O2", "--tied"}));
  EXPECT_EQ(options.epochs, 5);
  EXPECT_EQ(options.rate, 0.5);
  EXPECT_EQ(options.level, "O2");
  EXPECT_TRUE(options.tied);
  EXPECT_TRUE(options.line.given("epochs"));
  EXPECT_THAT(options.line.given_except({"tied", "lr"}),
              ElementsAre("--opt-level=O2", "--epochs=5"));
}

TEST(CommandLine, KeepsDefaults) {
  Options options;
  EXPECT_TRUE(options.parse({}));
  EXPECT_EQ(options.epochs, 3);
  EXPECT_FALSE(options.line.given("epochs"));
}

TEST(CommandLine, SaysWhatIsWrong) {
  EXPECT_THAT(Options().failure({"--epoch", "5"}),
              HasSubstr("unknown option '--epoch'; did you mean '--epochs'?"));
  EXPECT_THAT(Options().failure({"5"}), HasSubstr("unexpected '5'"));
  EXPECT_THAT(Options().failure({"--epochs"}), HasSubstr("--epochs needs a value"));
  EXPECT_THAT(Options().failure({"--epochs", "3.5"}), HasSubstr("'3.5' is no whole number"));
  EXPECT_THAT(Options().failure({"--epochs="}), HasSubstr("'' is no whole number"));
  EXPECT_THAT(Options().failure({"--epochs", "99999999999"}), HasSubstr("no whole number"));
  EXPECT_THAT(Options().failure({"--lr", "fast"}), HasSubstr("'fast' is no number"));
  EXPECT_THAT(Options().failure({"--lr", "nan"}), HasSubstr("'nan' is no number"));
  EXPECT_THAT(Options().failure({"--tied=maybe"}), HasSubstr("neither true nor false"));
}

TEST(CommandLine, TakesLettersOtherNamesAndWords) {
  std::string data, level = "O1";
  int size = 1;
  bool tied = false;
  const auto parse = [&](std::vector<const char*> words) {
    CommandLine line("program", "Does something.");
    line.argument("DIR", data, "the data")
        .option("batch-size", size, "items a step")
        .also({"b"})
        .option("tied", tied, "one matrix")
        .also({"t", "one"})
        .option("level", level, "the level");
    words.insert(words.begin(), "program");
    return line.parse(static_cast<int>(words.size()), words.data());
  };
  EXPECT_TRUE(parse({"-b", "5", "./"}));
  EXPECT_EQ(size, 5);
  EXPECT_EQ(data, "./");
  EXPECT_TRUE(parse({"--b", "6", "-t"}));
  EXPECT_EQ(size, 6);
  EXPECT_TRUE(tied);
  EXPECT_TRUE(parse({"-b=7", "--one=false"}));
  EXPECT_EQ(size, 7);
  EXPECT_FALSE(tied);
  EXPECT_THROW(parse({"-x", "7"}), mezzo::ConfigError);
  EXPECT_THROW(parse({"a", "b"}), mezzo::ConfigError);
  EXPECT_THROW(parse({"--DIR", "a"}), mezzo::ConfigError);
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--help"}));
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("program [--option VALUE]... [DIR]\n"));
  EXPECT_THAT(help, HasSubstr("--tied, -t, --one   one matrix"));
}

TEST(CommandLine, ChecksLimits) {
  Options options;
  EXPECT_NO_THROW(options.line.require("epochs", 1, 1, 2));
  EXPECT_THROW(options.line.require("epochs", 0, 1, 2), mezzo::ConfigError);
  EXPECT_THROW(options.line.require("epochs", 3, 1, 2), mezzo::ConfigError);
}

TEST(RunProgram, TellsUsageFromFailure) {
  char* none[] = {nullptr};
  const auto usage = [](int, char**) -> int { throw mezzo::ConfigError("usage"); };
  const auto failure = [](int, char**) -> int { throw mezzo::Error("failure"); };
  EXPECT_EQ(run_program("p", usage, 0, none), 2);
  EXPECT_EQ(run_program("p", failure, 0, none), 1);
  EXPECT_EQ(run_program(
                "p", [](int, char**) { return 0; }, 0, none),
            0);
}

}  // namespace
}  // namespace examples
