// The caller's own judge.
#include "convert/judge/check_command.h"

#include <gmock/gmock.h>

#include <bit>
#include <fstream>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(CheckCommand, GetsThePathWholeWhereverItStands) {
  const fs::path folder = scratch_folder("check");
  const fs::path model = folder / "it's \"a\" $HOME `model` \\ {} ; *.onnx";
  std::ofstream(model) << "content";
  const std::string got = (folder / "got").string();
  for (const char* word : {"{}", "\"{}\"", "'{}'", "\"\"{}''", "\\\"\"\"'' {}"}) {
    const std::string command =
        "for each in " + std::string(word) + "; do printf %s \"$each\" > " + got + "; done";
    EXPECT_TRUE(ask_command(command, model).accepts) << word;
    EXPECT_EQ(contents(got), model.string()) << word;
  }
  EXPECT_TRUE(ask_command("grep -q content {} && cmp {} \"{}\"", model).accepts);
  fs::remove_all(folder.parent_path());
}

TEST(CheckCommand, SaysHowItEndedAndWhatItWroteLast) {
  const auto why = [](const char* command) { return ask_command(command, "m.onnx").why; };
  EXPECT_EQ(why("echo {}; echo worse >&2; exit 3"), "exit code 3:\nm.onnx\nworse");
  EXPECT_EQ(why("false"), "exit code 1");
  EXPECT_THAT(why("kill -SEGV $$"), HasSubstr("ended by SIGSEGV"));
  EXPECT_THAT(why("sh -c 'kill -TERM $$'; exit $?"), HasSubstr("exit code 143, SIGTERM"));
  const std::string long_one = why("seq 100000; exit 1");
  EXPECT_THAT(long_one, HasSubstr("99991\n"));
  EXPECT_THAT(long_one, Not(HasSubstr("99990\n")));
  EXPECT_TRUE(ask_command("exec >&- 2>&-; sleep 0.1", "m").accepts);
  EXPECT_TRUE(ask_command("test -z \"$(cat)\"", "m").accepts);
}

TEST(CheckCommand, ThatDoesNotExistJudgesNothing) {
  try {
    ask_command("no-such-program {}", "m.onnx");
    ADD_FAILURE() << "judged by nothing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the shell cannot run 'no-such-program {}'"));
    EXPECT_THAT(error.what(), HasSubstr("not found"));
  }
}

// Six products one after another. In the file the first one's weights read AAAAAAAAAAAAAAAA as long
// as they are float32, the second one's BBBB..., and so on: a command of the shell can tell.
Message lettered_products(int opset = 17) {
  GraphBuilder g;
  g.input("v0", Element::kFloat, {2, 2});
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i);
    const auto letters = std::bit_cast<float>(0x41414141U + 0x01010101U * static_cast<unsigned>(i));
    g.weight("w" + name, {letters, letters, letters, letters});
    g.named("m" + name).node("MatMul", {"v" + name, "w" + name}, {"v" + std::to_string(i + 1)});
  }
  return model(g.output("v6").take(), opset);
}

class Check : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("a check's");
    options_.cast_optional_params = true;
    options_.verify = "none";
    save(in(), lettered_products());
  }
  fs::path in() const { return folder_ / "in.onnx"; }
  fs::path out() const { return folder_ / "out.onnx"; }
  // A command that accepts where its script does; the model is $1.
  std::string script(const std::string& text) {
    std::ofstream(folder_ / "judge.sh") << "echo asked >> \"$0.log\"\n" << text << '\n';
    return "sh '" + (folder_.parent_path() / "a check'\\''s" / "judge.sh").string() + "' {}";
  }
  // How often a script was asked.
  std::ptrdiff_t asked() const {
    const std::string log = contents(folder_ / "judge.sh.log");
    return std::ranges::count(log, '\n');
  }
  std::vector<std::string> names_in_folder() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }
  std::string refusal() {
    try {
      convert_model(in(), out(), options_);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(out()));
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }

  fs::path folder_;
  Options options_;
};

TEST_F(Check, SeesTheVeryModelThatIsWritten) {
  options_.check = script("cp \"$1\" \"$0.seen\"");
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_EQ(contents(folder_ / "judge.sh.seen"), contents(out()));
  EXPECT_EQ(asked(), 1);
  EXPECT_EQ(report.low_nodes, 6);
  EXPECT_EQ(report.verified, "accepted by the command");
  EXPECT_THAT(names_in_folder(), UnorderedElementsAre("in.onnx", "out.onnx", "judge.sh",
                                                      "judge.sh.log", "judge.sh.seen"));
  options_.check.clear();
  convert_model(in(), folder_ / "without.onnx", options_);
  EXPECT_EQ(contents(folder_ / "without.onnx"), contents(out()));
}

// Whatever the options, what the command accepted is what is written.
TEST_F(Check, SeesWhatIsWrittenWithAllOptions) {
  const std::string accepts = script("cp \"$1\" \"$0.seen\"");
  std::vector<Options> all(6, options_);
  all[0].io = "low";
  all[1].weights_only = true;
  all[2].cast_optional_params = false;
  all[3].target_dtype = "bfloat16";
  all[3].opset = "auto";
  all[4].verify = "load";
  all[4].io_of = {{"v0", "float16"}};
  all[5].excluded_names = {"m2", "m3"};
  for (const int opset : {6, 17}) {
    save(in(), lettered_products(opset));
    for (Options& options : all) {
      options.check = accepts;
      const auto before = asked();
      const Report report = convert_model(in(), out(), options).report;
      EXPECT_EQ(asked(), before + 1);
      EXPECT_THAT(report.verified, HasSubstr("accepted by the command"));
      EXPECT_EQ(contents(folder_ / "judge.sh.seen"), contents(out())) << report.to_text();
    }
  }
}

TEST_F(Check, HasTheDataFileBesideTheModel) {
  save(folder_ / "w.bin", std::string(16, 'A'));
  GraphBuilder g;
  Message weight;
  for (int i = 0; i < 2; ++i) weight.add(field::tensor::kDims, std::uint64_t{2});
  weight.add(field::tensor::kType, static_cast<std::uint64_t>(Element::kFloat));
  weight.add(field::tensor::kName, std::string_view("w"));
  weight.add(field::tensor::kLocation, std::uint64_t{1});
  auto location = std::make_unique<Message>();
  location->add(field::pair::kKey, std::string_view("location"));
  location->add(field::pair::kValue, std::string_view("w.bin"));
  weight.add(field::tensor::kExternalData, std::move(location));
  g.input("x").initializer(std::move(weight)).weight("v");
  g.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "v"}, {"y"}).output("y");
  save(in(), model(g.take()));
  // Only float32 is good enough for what lies outside: in a file of the result's name or, where
  // there is nothing to convert, under its own.
  const std::string look =
      "cat \"$1.data\" \"${1%/*}/w.bin\" 2> /dev/null | grep -q AAAAAAAAAAAAAAAA";
  options_.check = script(look + " && ls \"${1%/*}\" > \"$0.seen\"");
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_EQ(report.kept_by_search, 1);
  EXPECT_EQ(report.low_nodes, 1);
  EXPECT_EQ(contents(folder_ / "judge.sh.seen"), "out.onnx\nout.onnx.data\n");
  options_.excluded_names = {"*"};
  EXPECT_TRUE(convert_model(in(), out(), options_).report.unchanged);
  EXPECT_EQ(contents(folder_ / "judge.sh.seen"), "out.onnx\nw.bin\n");
}

TEST_F(Check, RefusesWithTheLastWordsOfTheCommand) {
  options_.check = script("echo too bad; exit 7");
  const std::string why = refusal();
  EXPECT_THAT(why, HasSubstr("refuses even the model in which every node stays float32"));
  EXPECT_THAT(why, HasSubstr("exit code 7:\ntoo bad"));
  EXPECT_EQ(asked(), 2);
  EXPECT_THAT(names_in_folder(), UnorderedElementsAre("in.onnx", "judge.sh", "judge.sh.log"));
}

TEST_F(Check, SearchesTheSmallestPartThatMustStayFloat) {
  options_.check = script("grep -q BBBBBBBBBBBBBBBB \"$1\" && grep -q EEEEEEEEEEEEEEEE \"$1\"");
  const Result result = convert_model(in(), out(), options_);
  EXPECT_EQ(result.report.kept_by_search, 2);
  EXPECT_EQ(result.report.low_nodes, 4);
  EXPECT_EQ(result.report.search_attempts, asked());
  EXPECT_EQ(result.report.search_ended_by, "");
  EXPECT_THAT(result.report.verified, "accepted by the command");
  EXPECT_THAT(names_in_folder(),
              UnorderedElementsAre("in.onnx", "out.onnx", "judge.sh", "judge.sh.log"));
}

TEST_F(Check, IsAskedAboutWhatNeedsNoConversion) {
  options_.excluded_names = {"*"};
  options_.check = script("cmp -s \"$1\" '" + std::string("/dev/null") + "' && exit 0; exit 4");
  EXPECT_THAT(refusal(), HasSubstr("exit code 4"));
  options_.check = script("exit 0");
  EXPECT_TRUE(convert_model(in(), out(), options_).report.unchanged);
  EXPECT_EQ(contents(out()), contents(in()));
}

TEST_F(Check, EndsByItsBudgetAndGoesOnFromThere) {
  options_.check = script("grep -q BBBBBBBBBBBBBBBB \"$1\" && grep -q EEEEEEEEEEEEEEEE \"$1\"");
  const Report whole = convert_model(in(), out(), options_).report;
  fs::remove(out());
  options_.attempts = 1;
  EXPECT_THAT(refusal(), HasSubstr("within its budget (attempts)"));
  EXPECT_THAT(names_in_folder(), testing::Contains("out.onnx.search"));
  options_.attempts = 2;
  std::int64_t attempts = 1;
  Report last;
  for (int i = 0; i < 20; ++i) {
    last = convert_model(in(), out(), options_).report;
    attempts += last.search_attempts;
    EXPECT_GE(last.kept_by_search, 2);
    if (last.search_ended_by.empty()) break;
    EXPECT_THAT(last.to_text(), HasSubstr("the search ended by its budget (attempts)"));
    EXPECT_THAT(last.to_json(), HasSubstr("\"search_ended_by\": \"attempts\""));
    EXPECT_TRUE(fs::exists(folder_ / "out.onnx.search"));
  }
  EXPECT_EQ(last.kept_by_search, whole.kept_by_search);
  EXPECT_EQ(attempts, whole.search_attempts);
  EXPECT_FALSE(fs::exists(folder_ / "out.onnx.search"));
}

TEST_F(Check, PlansAreSearchedForToo) {
  options_.check =
      script("case $1 in *.onnx) ;; *) exit 1 ;; esac; grep -q CCCCCCCCCCCCCCCC \"$1\"");
  const Plan plan = plan_model(in(), options_);
  EXPECT_TRUE(std::ranges::any_of(plan.decisions, [](const Decision& each) { return !each.low; }));
  EXPECT_THAT(names_in_folder(), UnorderedElementsAre("in.onnx", "judge.sh", "judge.sh.log"));
  apply_plan(in(), out(), plan);
  EXPECT_THAT(contents(out()), HasSubstr("CCCCCCCCCCCCCCCC"));
}

TEST_F(Check, JudgesWhatAPlanMakesAndSearchesNothing) {
  const Plan plan = plan_model(in(), options_);
  const std::string refuses = script("echo not mine; grep -q CCCCCCCCCCCCCCCC \"$1\"");
  try {
    apply_plan(in(), out(), plan, {.check = refuses});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("refuses the result: exit code 1:\nnot mine"));
  }
  EXPECT_EQ(asked(), 1);
  EXPECT_THAT(names_in_folder(), UnorderedElementsAre("in.onnx", "judge.sh", "judge.sh.log"));
  const Report report =
      apply_plan(in(), out(), plan, {.verify = "none", .check = script("exit 0")}).report;
  EXPECT_EQ(report.verified, "accepted by the command");
  EXPECT_EQ(report.low_nodes, 6);
  EXPECT_EQ(asked(), 2);
}

TEST_F(Check, ThatCannotBeIsRefusedBeforeAnythingIsDone) {
  options_.check = "true";
  EXPECT_THROW(convert_model(in(), out(), options_), ConfigError);
  options_.check.clear();
  options_.attempts = 0;
  EXPECT_THROW(convert_model(in(), out(), options_), ConfigError);
  options_.attempts = 1;
  options_.time_limit = 0;
  EXPECT_THROW(convert_model(in(), out(), options_), ConfigError);
}

}  // namespace
}  // namespace mezzo::convert
