#include "policy/toml.h"

#include <gmock/gmock.h>

#include <sstream>

namespace mezzo {
namespace {

using enum CastClass;

Rules rules_of(const std::string& text) {
  std::istringstream in(text);
  const PolicyFile file = read_policy_file(in, "mine.toml");
  return changed_by(file, "mine.toml", Rules(file.low));
}

constexpr const char* kFile = R"(# what this model needs
dtype = "bfloat16"

[operators]
low = ["softmax", "F.gelu"]
float = [
  "FullyConnected",
]
neutral = ["mse_loss"]

[[conditional]]
operator = "elu"
argument = "alpha"
values = ["1", "2.5"]
)";

TEST(PolicyFile, SaysWhichOperatorsDiffer) {
  const Rules rules = rules_of(kFile);
  EXPECT_EQ(rules.low(), DType::kBFloat16);
  EXPECT_EQ(rules.classify("softmax.int"), kLow);
  EXPECT_EQ(rules.classify("gelu"), kLow);
  EXPECT_EQ(rules.classify("linear"), kFloat);
  EXPECT_EQ(rules.classify("mse_loss"), kNeutral);
  EXPECT_EQ(rules.classify("elu"), kConditional);
  EXPECT_EQ(rules.classify("exp"), kFloat) << "what the file does not name stays";
}

TEST(PolicyFile, TheDtypeAloneIsEnough) {
  EXPECT_EQ(rules_of("dtype = \"float16\"").classes(), Rules(DType::kFloat16).classes());
}

TEST(PolicyFile, IsWrittenAsItIsRead) {
  std::ostringstream out;
  write_policy_file(rules_of(kFile), out);
  EXPECT_EQ(out.str(), R"(dtype = "bfloat16"

[operators]
low = [
  "softmax",
  "F.gelu",
]
float = [
  "FullyConnected",
]
neutral = [
  "mse_loss",
]

[[conditional]]
operator = "elu"
argument = "alpha"
values = ["1", "2.5"]
)");
  const Rules again = rules_of(out.str());
  EXPECT_EQ(again.classes(), rules_of(kFile).classes());
  std::ostringstream second;
  write_policy_file(again, second);
  EXPECT_EQ(second.str(), out.str());
}

TEST(PolicyFile, QuotesWhatNeedsIt) {
  std::ostringstream out;
  write_policy_file(Rules(DType::kFloat16).with_conditional("gelu", "approximate", {"a\"b\\c\n"}),
                    out);
  EXPECT_EQ(rules_of(out.str()).conditionals().at(0).values.at(0), "a\"b\\c\n");
}

struct Bad {
  const char* text;
  const char* message;
};

TEST(PolicyFile, MistakesNameTheFileAndTheLine) {
  for (const Bad& bad : std::vector<Bad>{
           {"", "line 1: no dtype; write dtype = "},
           {"dtype = 16", "line 1: 'dtype' holds an integer; expected a string"},
           {"\ndtype = \"float32\"", "line 2: dtype is 'float32'; expected float16 or bfloat16"},
           {"dtype = \"flaot16\"",
            "line 1: dtype is 'flaot16'; expected float16 or bfloat16; did you mean 'float16'"},
           {"dtype = \"float16\"\nops = 1", "line 2: unknown key 'ops'"},
           {"dtype = \"float16\"\n[operator]",
            "line 2: unknown key 'operator'; did you mean "
            "'operators'?"},
           {"dtype = \"float16\"\noperators = 3",
            "line 2: 'operators' is an integer; expected a table"},
           {"dtype = \"float16\"\n[operators]\nlo = []",
            "line 3: unknown class 'lo'; did you mean 'low'?"},
           {"dtype = \"float16\"\n[operators]\nlow = \"mm\"",
            "line 3: 'low' is a string; expected an array"},
           {"dtype = \"float16\"\n[operators]\nlow = [\"mm\",\n 3]",
            "line 4: 'low' holds an integer; expected a string"},
           {"dtype = \"float16\"\n[operators]\nlow = [\n\"mm\",\n\"softmx\"]",
            "line 5: unknown operator 'softmx'; did you mean 'softmax'"},
           {"dtype = \"float16\"\n[operators]\nlow = [\"mm\"]\nfloat = [\"mm\"]",
            "line 4: 'mm' is in two classes: low (as 'mm') and float"},
           {"dtype = \"float16\"\n[[conditional]]\noperator = \"gelu\"",
            "line 2: 'argument' is missing"},
           {"dtype = \"float16\"\n[[conditional]]\noperator = \"gelu\"\nargument = \"a\"\nvalues = "
            "[]",
            "line 2: 'gelu': no value of 'a' is given"},
           {"dtype = \"float16\"\n[[conditional]]\nop = \"gelu\"", "line 3: unknown key 'op'"},
           {"dtype = \"float16\"\nconditional = 1",
            "line 2: 'conditional' is an integer; expected an array"},
           {"dtype = \"float16\"\n[operators\n", "line 2: "},
           {"dtype = \"float16\"\ndtype = \"float16\"", "line 2: "},
           {"dtype = \"\xff\"", "line 1: "},
       }) {
    try {
      rules_of(bad.text);
      FAIL() << bad.text;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), testing::StartsWith(std::string("[mine.toml] ") + bad.message))
          << bad.text;
    }
  }
}

TEST(PolicyFile, AStreamThatCannotBeReadIsAnError) {
  std::istringstream in("");
  in.setstate(std::ios::failbit);
  EXPECT_THROW(read_policy_file(in, "mine.toml"), ConfigError);
}

}  // namespace
}  // namespace mezzo
