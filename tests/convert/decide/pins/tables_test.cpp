// Which tables of weights are stored in 16 bits though float32 is computed with them, and which are
// not.
#include "convert/decide/tables.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "builder.h"
#include "convert/graph/check.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"
#include "networks.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 128;
constexpr std::int64_t kColumns = 16;

std::vector<float> values_of(const std::function<double(std::int64_t, std::int64_t)>& of) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column)
      values.push_back(static_cast<float>(of(row, column)));
  }
  return values;
}

std::vector<float> learned() {
  return values_of([](std::int64_t row, std::int64_t column) {
    return std::sin(12.9898 * static_cast<double>(row) + 78.233 * static_cast<double>(column));
  });
}

// A table, a layer norm in pieces that a product reads, and what stands between both.
using Between = std::function<std::string(GraphBuilder&, NetworkBuilder&)>;

Message before_norm(const std::vector<float>& table, const Between& between) {
  GraphBuilder g;
  NetworkBuilder n(g);
  g.input("ids", Element::kInt64, {1, 6}).weight("table", table, {kRows, kColumns});
  const std::string normed = n.layer_norm("norm", between(g, n), kColumns);
  const std::string out = n.linear("last", normed, kColumns, 4);
  return model(g.output(out, Element::kFloat, {}).take(), 14);
}

std::string gathered(GraphBuilder& g, NetworkBuilder& n) {
  g.node("Gather", {"table", "ids"}, {"rows"});
  return n.add("Mul", "scaled", {"rows", n.constant("four", {}, 4)});
}

class Tables : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("tables");
    options_.cast_optional_params = true;
    options_.verify = "none";
    options_.target_dtype = GetParam();
  }

  Report convert(const Message& made) {
    save(folder_ / "in.onnx", made);
    const Report report = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report;
    Document document(folder_ / "out.onnx");
    for (const Finding& finding : check_graph(Graph(document))) ADD_FAILURE() << finding.what;
    return report;
  }

  // The types of the initializers whose names begin so.
  std::vector<std::string> types_of(const std::string& table) const {
    std::vector<std::string> types;
    for (const auto& [name, type] : weight_types(folder_ / "out.onnx")) {
      if (name.starts_with(table)) types.push_back(type);
    }
    return types;
  }

  void expect_low(const Message& made, const std::string& table = "table") {
    EXPECT_EQ(convert(made).duplicated_weights, 0);
    EXPECT_THAT(types_of(table), testing::ElementsAre(std::string(GetParam())));
  }
  void expect_float(const Message& made, const std::string& table = "table") {
    convert(made);
    EXPECT_THAT(types_of(table), testing::ElementsAre("float32"));
  }

  fs::path folder_;
  Options options_;
};

TEST_P(Tables, OfRowsThatANormReadsAreLowWithACastBehindTheirGather) {
  const Report report = [&] {
    const Message made = before_norm(learned(), gathered);
    expect_low(made);
    return convert(made);
  }();
  std::size_t decided = 0;
  for (const Decision& decision : report.decisions) {
    if (decision.key == "rows") {
      EXPECT_TRUE(decision.low);
      EXPECT_EQ(decision.rule, "cut");
      EXPECT_EQ(decision.why, "a table takes half the bytes");
      ++decided;
    } else if (decision.key == "scaled.out") {
      EXPECT_FALSE(decision.low);
      ++decided;
    }
  }
  EXPECT_EQ(decided, 2U);
  EXPECT_THAT(report.casts, testing::Contains(testing::Field(&CastReport::value, "rows")));
}

TEST_P(Tables, WithARowForPaddingAreLow) {
  std::vector<float> table = learned();
  std::fill_n(table.begin(), kColumns, 0.0F);
  expect_low(before_norm(table, gathered));
}

// Everything that moves rows, in front of what is float32.
TEST_P(Tables, AreLowWhateverMovesThem) {
  const std::vector<std::pair<const char*, Between>> ways{
      {"read by the norm itself",
       [](GraphBuilder& g, NetworkBuilder&) {
         g.node("Gather", {"table", "ids"}, {"rows"});
         return std::string("rows");
       }},
      {"added",
       [](GraphBuilder& g, NetworkBuilder& n) {
         g.input("x", Element::kFloat, {kRows, kColumns});
         return n.add("Add", "sum", {"x", "table"});
       }},
      {"sliced",
       [](GraphBuilder& g, NetworkBuilder& n) {
         g.input("x", Element::kFloat, {6, kColumns});
         const std::string rows =
             n.add("Slice", "slice", {"table", n.integers("from", {2}), n.integers("to", {8})});
         return n.add("Add", "sum", {"x", rows});
       }},
      {"turned twice",
       [](GraphBuilder& g, NetworkBuilder& n) {
         const auto perm = [] { return NetworkBuilder::list("perm", {1, 0}); };
         g.node("Gather", {n.add("Transpose", "turned", {"table"}, perm()), "ids"}, {"rows"},
                attribute("axis", std::int64_t{1}));
         const std::string back =
             n.add("Transpose", "back", {"rows"}, NetworkBuilder::list("perm", {1, 2, 0}));
         return n.add("Mul", "scaled", {back, n.constant("four", {}, 4)});
       }},
      {"in a branch", [](GraphBuilder& g, NetworkBuilder& n) {
         g.input("which", Element::kBool, {});
         const auto branch = [](const std::string& name) {
           GraphBuilder b(name);
           return b.node("Gather", {"table", "ids"}, {name})
               .output(name, Element::kFloat, {})
               .take();
         };
         g.node("If", {"which"}, {"rows"}, body_attribute("then_branch", branch("then")),
                body_attribute("else_branch", branch("else")));
         return n.add("Mul", "scaled", {"rows", n.constant("four", {}, 4)});
       }}};
  for (const auto& [name, between] : ways) {
    SCOPED_TRACE(name);
    expect_low(before_norm(learned(), between));
  }
}

TEST_P(Tables, ThatAProductReadsAsWellAreStoredOnce) {
  for (const bool is_float_reader_free : {true, false}) {
    GraphBuilder g;
    NetworkBuilder n(g);
    g.input("ids", Element::kInt64, {1, 6}).weight("table", learned(), {kRows, kColumns});
    std::string x = gathered(g, n);
    if (!is_float_reader_free) options_.excluded_names = {"rows"};
    g.node("Transpose", {"table"}, {"turned"}, integers_attribute("perm", {1, 0}));
    g.node("MatMul", {n.layer_norm("norm", x, kColumns), "turned"}, {"y"});
    const Message made = model(g.output("y", Element::kFloat, {}).take(), 14);
    // Whom the caller keeps float32 reads all digits: the product's copy is made by a Cast.
    is_float_reader_free ? expect_low(made) : expect_float(made);
    EXPECT_EQ(convert(made).duplicated_weights, 0);
  }
}

TEST_P(Tables, ThatDoNotHoldWhatWasLearnedStayFloat) {
  const bool is_half = std::string_view(GetParam()) == "float16";
  const std::vector<std::pair<const char*, std::vector<float>>> tables{
      {"times", values_of([](std::int64_t row, std::int64_t column) {
         return 31'416.5 * static_cast<double>(row + column) / 200;
       })},
      {"counts", values_of([](std::int64_t row, std::int64_t column) {
         return static_cast<double>((row * 173 + column * 37) % 65536);
       })},
      {"a common offset", values_of([](std::int64_t row, std::int64_t column) {
         return 100 + 0.3 * std::sin(static_cast<double>(row * kColumns + column));
       })},
      {"faint numbers", values_of([&](std::int64_t row, std::int64_t column) {
         return (is_half ? 1e-7 : 1e-39) * std::sin(static_cast<double>(row * kColumns + column));
       })},
      {"the lowest number", values_of([](std::int64_t row, std::int64_t column) {
         return row < column ? -3.4e38 : 0.1;
       })}};
  for (const auto& [name, table] : tables) {
    SCOPED_TRACE(name);
    expect_float(before_norm(table, gathered));
  }
}

TEST_P(Tables, WhoseNumbersAreToldApartStayFloat) {
  const auto then = [](const std::function<void(GraphBuilder&)>& add, const char* made,
                       Element element) {
    GraphBuilder g;
    NetworkBuilder n(g);
    g.input("ids", Element::kInt64, {1, 6}).input("t", Element::kFloat, {});
    g.weight("table", learned(), {kRows, kColumns}).weight("bound", {0.5F}, {});
    g.node("Gather", {"table", "ids"}, {"rows"}).node("Mul", {"rows", "t"}, {"scaled"});
    add(g);
    // Whatever is told apart, a norm and a product read the rows as well.
    const std::string out = n.linear("last", n.layer_norm("norm", "scaled", kColumns), kColumns, 4);
    return model(g.output(made, element, {}).output(out, Element::kFloat, {}).take(), 14);
  };
  const std::vector<std::pair<const char*, std::function<void(GraphBuilder&)>>> readers{
      {"angles", [](GraphBuilder& g) { g.node("Cos", {"scaled"}, {"z"}); }},
      {"logarithms", [](GraphBuilder& g) { g.node("Log", {"scaled"}, {"z"}); }},
      {"whole numbers", [](GraphBuilder& g) { g.node("Floor", {"scaled"}, {"z"}); }}};
  for (const auto& [name, add] : readers) {
    SCOPED_TRACE(name);
    expect_float(then(add, "z", Element::kFloat));
  }
  expect_float(then(
      [](GraphBuilder& g) {
        g.node("Greater", {"scaled", "bound"}, {"z"});
      },
      "z", Element::kBool));
  expect_float(then(
      [](GraphBuilder& g) { g.node("Cast", {"scaled"}, {"z"}, attribute("to", std::int64_t{7})); },
      "z", Element::kInt64));
  expect_float(
      then([](GraphBuilder& g) { g.node("ArgMax", {"scaled"}, {"z"}); }, "z", Element::kInt64));
}

// Angles of counted positions: rows of frequencies, times positions.
TEST_P(Tables, OfFrequenciesStayFloat) {
  GraphBuilder g;
  g.input("ids", Element::kInt64, {1}).input("at", Element::kInt64, {6, 1});
  g.weight("table", learned(), {kRows, kColumns}).weight("w", learned(), {kColumns, kRows});
  g.node("Gather", {"table", "ids"}, {"rows"})
      .node("Cast", {"at"}, {"p"}, attribute("to", std::int64_t{1}));
  g.node("MatMul", {"p", "rows"}, {"angles"}).node("Sin", {"angles"}, {"s"});
  g.node("MatMul", {"s", "w"}, {"y"});
  expect_float(model(g.output("y", Element::kFloat, {}).take(), 14));
}

TEST_P(Tables, StayFloatWhereTheCallerSaysSo) {
  const Message made = before_norm(learned(), gathered);
  options_.excluded_names = {"rows"};
  expect_float(made);
  options_.excluded_names.clear();
  options_.fp32_ops = std::vector<std::string>{"+Gather"};
  expect_float(made);
  options_.fp32_ops.reset();
  options_.cast_optional_params = false;
  expect_float(made);
}

// Nothing but the rows themselves comes out: they are what the model was asked for.
TEST_P(Tables, ThatNothingTakesInStayFloat) {
  GraphBuilder g;
  g.input("ids", Element::kInt64, {1, 6}).weight("table", learned(), {kRows, kColumns});
  g.node("Gather", {"table", "ids"}, {"rows"});
  expect_float(model(g.output("rows", Element::kFloat, {}).take(), 14));
}

TEST_P(Tables, OfFewNumbersStayFloat) {
  GraphBuilder g;
  NetworkBuilder n(g);
  g.input("ids", Element::kInt64, {1, 6}).weight("table", std::vector<float>(256, 0.3F), {16, 16});
  const std::string out = n.linear("last", n.layer_norm("norm", gathered(g, n), 16), 16, 4);
  expect_float(model(g.output(out, Element::kFloat, {}).take(), 14));
}

INSTANTIATE_TEST_SUITE_P(Both, Tables, testing::Values("float16", "bfloat16"));

}  // namespace
}  // namespace mezzo::convert
