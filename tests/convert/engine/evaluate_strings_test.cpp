// Strings in the evaluator: operators on them, and those that only move them.
#include <gmock/gmock.h>

#include <cmath>

#include "cases.h"
#include "convert/engine/letters.h"
#include "convert/onnx/texts.h"
#include "evaluator.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

Array strings(const Strings& texts, std::vector<std::int64_t> dims = {}) {
  if (dims.empty()) dims = {static_cast<std::int64_t>(texts.size())};
  return array_of(texts, std::move(dims));
}

Message strings_attribute(const std::string& name, const Strings& texts) {
  Message message;
  message.add(field::attribute::kName, kept(name));
  for (const std::string& text : texts) message.add(field::attribute::kStrings, kept(text));
  message.add(field::attribute::kType, std::uint64_t{8});
  return message;
}

/// One node on the input x, whose result y is of that type.
template <typename... Attributes>
std::vector<Array> computed(const std::string& op, const std::vector<Array>& inputs, Element result,
                            const std::string& domain = "", Attributes... attributes) {
  GraphBuilder g;
  Sample sample;
  std::vector<std::string> names;
  for (const Array& input : inputs) {
    names.push_back("x" + std::to_string(names.size()));
    g.input(names.back(), input.element, input.dims);
    sample[names.back()] = input;
  }
  const std::vector<std::string> outputs =
      op == "StringSplit" ? std::vector<std::string>{"y", "n"} : std::vector<std::string>{"y"};
  if (!domain.empty()) g.in_domain(domain);
  g.node(op, names, outputs, std::move(attributes)...);
  g.output("y", result, {-1});
  if (op == "StringSplit") g.output("n", Element::kInt64, {-1});
  Message made = model(g.take(), 20, 10);
  if (!domain.empty())
    made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(2, domain)));
  return evaluated(made, sample);
}

Strings words(const std::vector<Array>& results) {
  return texts_of(results.at(0));
}

TEST(Strings, AreNormalizedAsTheStandardsModelsStore) {
  int models = 0;
  for (const fs::path& model : corpus_models()) {
    if (model.string().find("strnormalizer") == std::string::npos) continue;
    Document document(model);
    const Graph graph(document);
    const auto sample =
        stored_sample(model, {std::string(graph.value(graph.scope(0).inputs[0]).name)});
    ASSERT_TRUE(sample) << model;
    const auto expected = stored(model.parent_path() / "test_data_set_0" / "output_0.pb");
    const Array got = Evaluation(library(), document, graph).run(*sample).at(0)->tensor;
    EXPECT_EQ(got.dims, expected.value().dims) << model;
    EXPECT_EQ(texts_of(got), texts_of(*expected)) << model;
    ++models;
  }
  EXPECT_EQ(models, 6);
}

TEST(Strings, AreNormalizedInTheirCase) {
  const Array x = strings({"Größe", "the", "THE", "Ünder"});
  const auto normalized = [&](const char* change, std::int64_t sensitive) {
    return words(computed("StringNormalizer", {x}, Element::kString, "",
                          attribute("case_change_action", change),
                          attribute("is_case_sensitive", sensitive),
                          strings_attribute("stopwords", {"the", "ünder"})));
  };
  EXPECT_THAT(normalized("UPPER", 0), ElementsAre("GRÖßE"));
  EXPECT_THAT(normalized("LOWER", 1), ElementsAre("größe", "the", "ünder"));
  EXPECT_THAT(normalized("NONE", 1), ElementsAre("Größe", "THE", "Ünder"));
  EXPECT_THAT(words(computed("StringNormalizer", {strings({"a"})}, Element::kString, "",
                             strings_attribute("stopwords", {"a"}))),
              ElementsAre(""));
}

TEST(Strings, AreJoinedAndCut) {
  const Array column = strings({"a", "b"}, {2, 1}), row = strings({"1", "2", "3"});
  const std::vector<Array> joined = computed("StringConcat", {column, row}, Element::kString);
  EXPECT_THAT(joined.at(0).dims, ElementsAre(2, 3));
  EXPECT_THAT(words(joined), ElementsAre("a1", "a2", "a3", "b1", "b2", "b3"));
  const std::vector<Array> cut = computed("StringSplit", {strings({"a-b--c", ""})},
                                          Element::kString, "", attribute("delimiter", "-"));
  EXPECT_THAT(cut.at(0).dims, ElementsAre(2, 4));
  EXPECT_THAT(words(cut), ElementsAre("a", "b", "", "c", "", "", "", ""));
  EXPECT_THAT(cut.at(1).values(), ElementsAre(4, 1));
  const std::vector<Array> spaces = computed("StringSplit", {strings({"  one two  three ", ""})},
                                             Element::kString, "", attribute("maxsplit", 1));
  EXPECT_THAT(words(spaces), ElementsAre("one", "two  three", "", ""));
  EXPECT_THAT(spaces.at(1).values(), ElementsAre(2, 0));
}

TEST(Strings, AreMatchedAsAWhole) {
  const Array x = strings({"a1", "a", "b12", "xa1"});
  const char* const pattern = "[ab]\\d+";
  EXPECT_THAT(computed("RegexFullMatch", {x}, Element::kBool, "", attribute("pattern", pattern))
                  .at(0)
                  .values(),
              ElementsAre(1, 0, 1, 0));
  EXPECT_THROW(computed("RegexFullMatch", {x}, Element::kBool, "", attribute("pattern", "(?i)[a")),
               UnsupportedError);
}

TEST(Strings, BecomeNumbersAndTheOtherWayRound) {
  const Array x = strings({"1.5", "-2e3", "inf", "NaN"});
  const std::vector<double> numbers =
      computed("Cast", {x}, Element::kFloat, "", attribute("to", 1)).at(0).values();
  EXPECT_EQ(numbers[0], 1.5);
  EXPECT_EQ(numbers[1], -2000);
  EXPECT_TRUE(std::isinf(numbers[2]) && std::isnan(numbers[3]));
  EXPECT_THAT(computed("Cast", {strings({"7", "-9007199254740993"})}, Element::kInt64, "",
                       attribute("to", 7))
                  .at(0)
                  .bytes,
              array(Element::kInt64, {2}, std::vector<std::int64_t>{7, -9007199254740993}).bytes);
  EXPECT_THAT(words(computed(
                  "Cast", {array(Element::kFloat, {3}, std::vector<float>{0.1F, 1e10F, -INFINITY})},
                  Element::kString, "", attribute("to", 8))),
              ElementsAre("0.1", "1e+10", "-INF"));
  EXPECT_THROW(computed("Cast", {strings({"1x"})}, Element::kFloat, "", attribute("to", 1)), Error);
}

TEST(Strings, AreMovedByTheOperatorsThatMove) {
  const Array x = strings({"a", "b", "c", "a"}, {2, 2});
  EXPECT_THAT(words(computed("Transpose", {x}, Element::kString)), ElementsAre("a", "c", "b", "a"));
  EXPECT_THAT(
      words(computed("Gather", {x, array(Element::kInt64, {1}, std::vector<std::int64_t>{1})},
                     Element::kString)),
      ElementsAre("c", "a"));
  EXPECT_THAT(words(computed("Concat", {x, x}, Element::kString, "", attribute("axis", 1))),
              ElementsAre("a", "b", "a", "b", "c", "a", "c", "a"));
  EXPECT_THAT(computed("Equal", {x, strings({"a"})}, Element::kBool).at(0).values(),
              ElementsAre(1, 0, 0, 1));
  EXPECT_THROW(computed("Relu", {x}, Element::kString), UnsupportedError);
}

TEST(Strings, AreLabels) {
  const char* const ml = "ai.onnx.ml";
  const Array x = strings({"cat", "cow", "dog"});
  EXPECT_THAT(computed("LabelEncoder", {x}, Element::kInt64, ml,
                       strings_attribute("keys_strings", {"dog", "cat"}),
                       integers_attribute("values_int64s", {4, 5}), attribute("default_int64", 9))
                  .at(0)
                  .values(),
              ElementsAre(5, 9, 4));
  EXPECT_THAT(
      words(computed("LabelEncoder", {array(Element::kInt64, {2}, std::vector<std::int64_t>{5, 1})},
                     Element::kString, ml, integers_attribute("keys_int64s", {4, 5}),
                     strings_attribute("values_strings", {"dog", "cat"}))),
      ElementsAre("cat", "_Unused"));
  EXPECT_THAT(computed("LabelEncoder", {x}, Element::kInt64, ml,
                       strings_attribute("classes_strings", {"dog", "cat"}))
                  .at(0)
                  .values(),
              ElementsAre(1, -1, 0));
  EXPECT_THAT(computed("CategoryMapper", {x}, Element::kInt64, ml,
                       strings_attribute("cats_strings", {"dog", "cat"}),
                       integers_attribute("cats_int64s", {4, 5}))
                  .at(0)
                  .values(),
              ElementsAre(5, -1, 4));
}

TEST(Strings, AreCountedInNGrams) {
  const std::vector<Array> counts = computed(
      "TfIdfVectorizer", {strings({"red", "blue", "red", "red"})}, Element::kFloat, "",
      attribute("mode", "TF"), attribute("min_gram_length", 1), attribute("max_gram_length", 2),
      attribute("max_skip_count", std::int64_t{0}), integers_attribute("ngram_counts", {0, 2}),
      integers_attribute("ngram_indexes", {0, 1, 2}),
      strings_attribute("pool_strings", {"red", "blue", "red", "red"}));
  EXPECT_THAT(counts.at(0).values(), ElementsAre(3, 1, 1));
}

TEST(Strings, ASampleOfAnotherTypeIsRefused) {
  GraphBuilder g;
  g.input("x", Element::kString, {2}).node("Identity", {"x"}, {"y"});
  g.output("y", Element::kString, {2});
  const Message made = model(g.take());
  EXPECT_THROW(evaluated(made, {{"x", random_floats({2}, 1)}}), ConfigError);
  EXPECT_EQ(words(evaluated(made, {{"x", strings({"", "a"})}})), Strings({"", "a"}));
}

TEST(Letters, ChangeTheirCaseAndLeaveOtherBytes) {
  EXPECT_EQ(lower_case("ÀÉ Ω 𐐀 a"), "àé ω 𐐨 a");
  EXPECT_EQ(upper_case("\xFF\xC3"), "\xFF\xC3");
  std::string text;
  for (const char32_t one : {U'a', U'é', U'€', U'😀', static_cast<char32_t>(0xD800)})
    append_utf8(text, one);
  EXPECT_EQ(text, "aé€😀\xEF\xBF\xBD");
}

}  // namespace
}  // namespace mezzo::convert
