#include <gmock/gmock.h>

#include <set>

#include "cli/command.h"
#include "cli/program.h"

namespace mezzo::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsSupersetOf;

class Completions : public testing::Test {
 protected:
  Completions() { fs::create_directories(folder_); }
  ~Completions() override { fs::remove_all(folder_); }

  // The output of `command`, word by word.
  static std::set<std::string> words_of(const std::string& command) {
    std::string out;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe))
      out.append(buffer, count);
    EXPECT_EQ(pclose(pipe), 0) << command;
    std::istringstream lines(out);
    std::set<std::string> words;
    for (std::string word; lines >> word;) words.insert(word);
    return words;
  }

  // The words that bash offers behind these, the last of which is being typed.
  std::set<std::string> bash_offers(const std::string& typed) {
    const std::string script = (folder_ / "mezzo.bash").string();
    std::ofstream(script) << mezzo("completions bash").out;
    const fs::path test = folder_ / "test.bash";
    std::ofstream(test) << "cd " << folder_.string()
                        << "\ncompopt() { :; }  # bash has it while it completes only\n"
                           "source "
                        << script << "\nCOMP_WORDS=(mezzo " << typed
                        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_mezzo\n"
                           "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    return words_of("bash --norc " + test.string());
  }

  static bool is_there(const std::string& shell) {
    return std::system(("command -v " + shell + " >/dev/null").c_str()) == 0;
  }

  fs::path folder_ =
      fs::temp_directory_path() / ("mezzo_completions_test_" + std::to_string(getpid()));
};

TEST_F(Completions, BashOffersCommandsThenTheirOptionsAndWhatTheyTake) {
  EXPECT_THAT(bash_offers("''"), IsSupersetOf({"info", "lists", "convert", "completions"}));
  EXPECT_EQ(bash_offers("conv"), std::set<std::string>{"convert"});
  EXPECT_EQ(bash_offers("convert --weights"), std::set<std::string>{"--weights-only"});
  EXPECT_EQ(bash_offers("convert --dtype ''"), (std::set<std::string>{"bfloat16", "float16"}));
  EXPECT_EQ(bash_offers("convert --dtype = b"), std::set<std::string>{"bfloat16"});
  EXPECT_EQ(bash_offers("lists --system ''"),
            (std::set<std::string>{"apex", "cpu", "cuda", "mxnet", "torch"}));
  EXPECT_EQ(bash_offers("completions f"), std::set<std::string>{"fish"});
}

TEST_F(Completions, BashOffersFilesWhereOneIsMeant) {
  std::ofstream(folder_ / "net.onnx") << "";
  EXPECT_EQ(bash_offers("convert ne"), std::set<std::string>{"net.onnx"});
  EXPECT_EQ(bash_offers("convert net.onnx -o n"), std::set<std::string>{"net.onnx"});
  EXPECT_THAT(bash_offers("lists ne"), testing::IsEmpty());
}

TEST_F(Completions, NamesWithUnderscoresAreNotOffered) {
  EXPECT_EQ(bash_offers("launch --node"), std::set<std::string>{"--node-rank"});
}

TEST_F(Completions, FishOffersTheSame) {
  if (!is_there("fish")) GTEST_SKIP() << "no fish here";
  const fs::path script = folder_ / "mezzo.fish";
  std::ofstream(script) << mezzo("completions fish").out;
  const auto offers = [&](const std::string& typed) {
    return words_of("HOME=" + folder_.string() + " fish --no-config -c 'source " + script.string() +
                    "; complete -C \"mezzo " + typed + "\"' | cut -f 1");
  };
  EXPECT_EQ(offers("conv"), std::set<std::string>{"convert"});
  EXPECT_EQ(offers("convert --dtype "), (std::set<std::string>{"bfloat16", "float16"}));
  EXPECT_EQ(offers("convert --weights"), std::set<std::string>{"--weights-only"});
}

TEST_F(Completions, ZshReadsItsScriptAndFindsAllCommands) {
  if (!is_there("zsh")) GTEST_SKIP() << "no zsh here";
  const fs::path script = folder_ / "_mezzo";
  std::ofstream(script) << mezzo("completions zsh").out;
  // _arguments as a function that shows what it is asked to offer.
  const std::string shown =
      "zsh -f -c 'compdef() { :; }; _describe() { print -l ${(P)2}; }; "
      "_arguments() { if [[ $1 == -C ]]; then state=${STATE}; else print -rl -- \"$@\"; fi; }; "
      "source " +
      script.string() + "; words=(convert); STATE=";
  EXPECT_THAT(words_of(shown + "command _mezzo'"),
              IsSupersetOf({"lists:List", "convert:Make", "bench:Measure"}));
  EXPECT_THAT(words_of(shown + "argument _mezzo'"),
              IsSupersetOf({"*--dtype=[The", "*--weights-only[Store", "*:argument:_files"}));
}

TEST_F(Completions, AnotherShellIsRefused) {
  const Outcome outcome = mezzo("completions tcsh");
  EXPECT_EQ(outcome.code, kWrongUsage);
  EXPECT_THAT(outcome.err, HasSubstr("tcsh"));
}

// Every line of help is in the page, options as their own entries.
TEST_F(Completions, AManPageHoldsWhatHelpSays) {
  const std::string page = (folder_ / "page").string();
  const std::string make = std::string(MEZZO_PROGRAM) +
                           " launch --help | awk -v name=mezzo-launch -v version=9.8.7 -f " +
                           MEZZO_MANUAL_SCRIPT + " >" + page;
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string text = content_of(page);
  EXPECT_THAT(text, testing::StartsWith(".TH MEZZO\\-LAUNCH 1 \"\" \"mezzo 9.8.7\" \"Mezzo\"\n"
                                        ".SH NAME\nmezzo\\-launch \\- start a program in many"));
  EXPECT_THAT(text, HasSubstr("\n.TP\n.B \\-\\-nnodes INT\nMachines (1); the command"));
  // As wide as the column of descriptions, and described on the line below.
  EXPECT_THAT(text, HasSubstr("\n.TP\n.B \\-\\-master\\-addr, \\-\\-master_addr TEXT\nWhere the"));
  EXPECT_THAT(text, HasSubstr("\n.SH EXAMPLE\n.nf\nmezzo launch \\-\\-nproc"));
}

}  // namespace
}  // namespace mezzo::cli
