// The error that single nodes add, and what a search gains by knowing it.
#include "convert/judge/sensitivity.h"

#include <gmock/gmock.h>

#include <cstdio>

#include "cases.h"
#include "convert/judge/judge.h"
#include "convert/judge/keep_search.h"
#include "convert/judge/search.h"
#include "evaluator.h"
#include "mezzo/convert.h"
#include "networks.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Sensitivity : public JudgedConversions {};

// How a search goes with and without what is known about single nodes.
class Comparison {
 public:
  Comparison(const fs::path& folder, const Options& options)
      : folder_(folder),
        policy_(options),
        document_(folder / "in.onnx"),
        graph_(document_, policy_.custom_operators()),
        workshop_(folder / "out.onnx"),
        judge_(std::make_shared<Evaluator>(library()),
               std::make_shared<ModelFile>(folder / "in.onnx"), 0,
               samples_for(graph_, options.calibration), workshop_) {
    Constants constants(graph_, policy_.low());
    const Decisions decisions = decide(graph_, policy_, constants);
    candidates_ = candidates_of(graph_, policy_, decisions);
    ranked_ = ranked_by(judge_.local_errors(graph_, decisions, policy_), candidates_);
    first_error_ = error_of({});
  }

  double first_error() const { return first_error_; }
  std::size_t candidates() const { return candidates_.size(); }
  SearchQuestions by_borders(double tolerance) const {
    return searched(tolerance, [&](SearchQuestions& q) { search_by_borders(candidates_, q); });
  }
  SearchQuestions by_rank(double tolerance) const {
    return searched(
        tolerance, [&](SearchQuestions& q) { search_by_rank(ranked_.nodes, ranked_.suspects, q); });
  }

 private:
  double error_of(const NodeSet& kept) const {
    Evidence evidence;
    evidence.kept = &kept;
    return largest_error(worst_of(judge_.errors(policy_, evidence, Storage::kEmulated)));
  }
  template <typename Run>
  SearchQuestions searched(double tolerance, const Run& run) const {
    SearchJournal journal(folder_ / "journal", 1);
    SearchQuestions questions(journal, {300}, tolerance,
                              [&](const NodeSet& kept) { return error_of(kept); });
    run(questions);
    journal.close();
    return questions;
  }

  fs::path folder_;
  ConvertPolicy policy_;
  Document document_;
  Graph graph_;
  Workshop workshop_;
  Judge judge_;
  std::vector<std::string> candidates_;
  RankedNodes ranked_;
  double first_error_ = 0;
};

struct Network {
  const char* name;
  Message made;
  std::vector<Message> samples;
};

std::vector<Network> networks() {
  std::vector<Network> all;
  const auto add = [&](const char* name, Message made, auto... samples) {
    all.push_back({name, std::move(made), {}});
    (all.back().samples.push_back(std::move(samples)), ...);
  };
  const std::vector<std::int64_t> tokens{5, 17, 99, 3, 42, 8, 61, 2, 0, 0, 0, 0};
  add("overflowing", overflowing_model(), floats("x", {2, 2}, {1, -2, 3, 4}));
  add("encoder", encoder(), tensor("tokens", Element::kInt64, {1, 12}, tokens),
      floats("mask", {1, 1, 1, 12}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}));
  add("speech", speech(), uniform_floats("audio", {1, 1, 1, 256}, 1),
      tensor("fast", Element::kBool, {}, std::vector<char>{1}));
  add("audio", audio(), uniform_floats("samples", {1, 1, 1, 2048}, 32767));
  return all;
}

TEST_F(Sensitivity, SavesJudgements) {
  for (const auto& [name, made, samples] : networks()) {
    save(in(), made);
    options_.calibration.clear();
    for (const Message& sample : samples) add_sample(sample);
    const Comparison comparison(folder_, options_);
    int by_borders = 0, by_rank = 0;
    std::size_t kept_by_borders = 0, kept_by_rank = 0;
    for (const double share : {0.9, 0.25}) {
      const bool is_finite = std::isfinite(comparison.first_error());
      const double tolerance = share * (is_finite ? comparison.first_error() : 0.01);
      const SearchQuestions borders = comparison.by_borders(tolerance);
      const SearchQuestions ranked = comparison.by_rank(tolerance);
      ASSERT_TRUE(borders.smallest() && ranked.smallest()) << name;
      std::printf(
          "%s, tolerance %.2g: of %zu nodes %zu stay float32 after %d judgements by borders, %zu "
          "after %d by their own errors\n",
          name, tolerance, comparison.candidates(), borders.smallest()->size(), borders.attempts(),
          ranked.smallest()->size(), ranked.attempts());
      by_borders += borders.attempts();
      by_rank += ranked.attempts();
      kept_by_borders += borders.smallest()->size();
      kept_by_rank += ranked.smallest()->size();
    }
    // Neither search is the shorter one for every tolerance.
    EXPECT_LT(by_rank, by_borders) << name;
    EXPECT_LE(kept_by_rank, kept_by_borders) << name;
  }
}

TEST_F(Sensitivity, IsReportedNodeByNode) {
  save(in(), overflowing_model());
  add_sample(floats("x", {2, 2}, {1, -2, 3, 4}));
  options_.headroom = 1;
  options_.tolerance = 0.01;
  options_.profile = "spec";
  const Report report = convert_model(in(), out(), options_).report;
  ASSERT_FALSE(report.local_errors.empty());
  for (std::size_t i = 0; i < report.local_errors.size(); ++i) {
    const LocalError& error = report.local_errors[i];
    EXPECT_TRUE(error.finite) << error.node;  // calibration keeps the others float32
    EXPECT_GE(error.sqnr_db, i == 0 ? 0 : report.local_errors[i - 1].sqnr_db);
    EXPECT_LT(error.relative_to_range, 1e-2);
  }
  EXPECT_THAT(report.to_text(), HasSubstr("largest errors of single nodes: node"));
  EXPECT_THAT(report.to_json(), HasSubstr("\"local_errors\": [\n"));
  EXPECT_THAT(report.to_html(), HasSubstr("its own error in float16"));
  options_.calibration.clear();
  EXPECT_THAT(convert_model(in(), out(), options_).report.local_errors, testing::IsEmpty());
}

// Values that only the sum of two products makes small: what is subtracted is rounded before.
Message cancelling_model() {
  GraphBuilder g;
  g.input("x").weight("w", {1, 0, 0, 1}).weight("big", {1000, 1000, 1000, 1000});
  g.node("MatMul", {"x", "w"}, {"a"}).node("Add", {"a", "big"}, {"b"});
  g.node("Sub", {"b", "big"}, {"c"}).node("MatMul", {"c", "w"}, {"y"}).output("y");
  return model(g.take());
}

TEST_F(Sensitivity, FindsWhatIsLostInACancellation) {
  save(in(), cancelling_model());
  add_sample(floats("x", {2, 2}, {0.1F, -0.2F, 0.3F, 0.4F}));
  options_.tolerance = 0.01;
  const Report report = convert_model(in(), out(), options_).report;
  ASSERT_FALSE(report.local_errors.empty());
  EXPECT_EQ(report.local_errors[0].key, "c");
  EXPECT_LT(report.local_errors[0].sqnr_db, 10);
  EXPECT_GT(report.local_errors.back().sqnr_db, 60);
  EXPECT_GT(report.kept_by_search, 0);
  // A kept node says what low would cost.
  const auto kept = std::ranges::find_if(report.decisions, [](const Decision& each) {
    return each.otherwise.find("low, its own error would be: SQNR") != std::string::npos;
  });
  ASSERT_NE(kept, report.decisions.end());
  EXPECT_FALSE(kept->low);
}

// Where only weights are low their readers are rounded, by the weights alone.
TEST_F(Sensitivity, OfWeightsAloneIsThatOfTheirRounding) {
  GraphBuilder g;
  g.input("x").weight("exact", {1, 2, 3, 4}).weight("inexact", {0.1F, 0.2F, 0.3F, 0.7F});
  g.node("MatMul", {"x", "exact"}, {"a"}).node("MatMul", {"a", "inexact"}, {"y"}).output("y");
  save(in(), model(g.take()));
  add_sample(floats("x", {2, 2}, {0.1F, -0.2F, 0.3F, 0.4F}));
  options_.weights_only = true;
  const Report report = convert_model(in(), out(), options_).report;
  ASSERT_EQ(report.local_errors.size(), 2U);
  EXPECT_EQ(report.local_errors[0].key, "y");
  EXPECT_GT(report.local_errors[0].relative_to_range, 0);
  EXPECT_LT(report.local_errors[0].relative_to_range, 1e-3);
  EXPECT_EQ(report.local_errors[1].relative_to_range, 0);
}

// A node of a body counts over all rounds, and over all samples.
TEST_F(Sensitivity, CountsBodiesAndAllSamples) {
  GraphBuilder then("then");
  then.node("MatMul", {"x", "w"}, {"t"}).output("t");
  GraphBuilder other("else");
  other.node("MatMul", {"w", "x"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w", {1, 0.3F, 0, 1});
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  save(in(), model(g.output("y").take()));
  add_sample(floats("x", {2, 2}, {1, -2.3F, 3, 4}));
  add_sample(tensor("flag", Element::kBool, {}, std::vector<char>{1}));
  const auto keys = [&] {
    std::vector<std::string> all;
    for (const LocalError& error : convert_model(in(), out(), options_).report.local_errors)
      all.push_back(error.key);
    return all;
  };
  EXPECT_THAT(keys(), testing::ElementsAre("y/then_branch/t"));
}

}  // namespace
}  // namespace mezzo::convert
