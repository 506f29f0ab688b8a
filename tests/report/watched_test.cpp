// Watched steps and explained skips: written, read back, and shown by every sink.
#include <gmock/gmock.h>

#include <cstring>

#include "mezzo/error.h"
#include "report/record.h"
#include "report/sample.h"
#include "report/watched.h"

namespace mezzo::report {
namespace {

using testing::HasSubstr;
using testing::Not;

Magnitudes some_magnitudes(double norm, double zeros) {
  return {.type = "float16",
          .count = 1000,
          .norm = norm,
          .largest = 0.5,
          .smallest = 0x1p-24,
          .zeros = zeros,
          .subnormals = 0.25,
          .saturated = 0.001,
          .nans = 0,
          .first_exponent = -24,
          .exponents = {250, 0, 3, 400}};
}

StepWatched a_watched_step(std::int64_t step) {
  const Watched row{.module = "fc1",
                    .parameter = "fc1.weight",
                    .weights = some_magnitudes(2, 0),
                    .gradients = some_magnitudes(3, 0.125),
                    .updates = some_magnitudes(0.002, 0.5),
                    .update_ratio = 0.001};
  Watched module = row;
  module.parameter = "";
  return {.step = step, .scale = 1024, .skipped = step == 200, .rows = {module, row}};
}

SkipExplained a_skip(std::int64_t step, const std::string& summary) {
  return {.step = step,
          .cause = "overflow",
          .name = "softmax",
          .module = "attn <1>",
          .backward = true,
          .parameter = "attn.weight",
          .rank = 1,
          .fails_in_float = true,
          .scale = 512,
          .summary = summary,
          .advice = {"keep softmax in float", "bound it"}};
}

std::vector<Event> watched_events() {
  return {RunStarted{.run = "O1", .epochs = 1, .steps_per_epoch = 200},
          StepTaken{.epoch = 1, .step = 100, .loss = 1},
          StepTaken{.epoch = 1, .step = 200, .loss = 1},
          a_watched_step(100),
          a_watched_step(200),
          a_skip(3, "softmax (attn <1>) overflowed"),
          a_skip(4, "exp (head) overflowed"),
          a_skip(5, "softmax (attn <1>) overflowed")};
}

Report watched_report() {
  Report all;
  for (const Event& event : watched_events()) add(all, event);
  return all;
}

TEST(WatchedEvents, AreReadBackFromJsonLines) {
  const auto file = sample::folder() / "run.jsonl";
  {
    const auto sink = json_lines(file);
    for (const Event& event : watched_events()) sink->write(event);
  }
  const Report again = read(file);
  EXPECT_EQ(again, watched_report());
  ASSERT_EQ(again.runs.at(0).watched.size(), 2U);
  EXPECT_EQ(again.runs[0].watched[1].rows[1].gradients.exponents[3], 400);
}

TEST(WatchedEvents, AreReplayed) {
  struct Adding final : Sink {
    void write(const Event& event) override { add(report, event); }
    Report report;
  } again;
  replay(watched_report(), again);
  EXPECT_EQ(again.report, watched_report());
}

TEST(WatchedEvents, OfAnotherShapeAreRefused) {
  const auto file = sample::folder() / "run.jsonl";
  for (const auto& [field, bad] :
       std::vector<std::pair<std::string, std::string>>{{R"("skipped":false)", R"("skipped":0)"},
                                                        {R"([250,0,3,400])", R"([250,"0",3,400])"},
                                                        {R"("rows":[)", R"("rows":1,"x":[)"}}) {
    {
      const auto sink = json_lines(file);
      sink->write(RunStarted{.run = "O1"});
      sink->write(a_watched_step(100));
    }
    std::string text = sample::content(file);
    const auto at = text.find(field);
    ASSERT_NE(at, std::string::npos) << field;
    text.replace(at, field.size(), bad);
    std::ofstream(file) << text;
    EXPECT_THROW(read(file), Error) << bad;
  }
}

TEST(WatchedEvents, AreHistogramsAndCurvesInTensorBoard) {
  const auto folder = sample::folder();
  {
    const auto sink = tensorboard(folder);
    for (const Event& event : watched_events()) sink->write(event);
  }
  const std::string content =
      sample::content(std::filesystem::directory_iterator(folder / "O1")->path());
  for (const char* tag : {"weights/fc1.weight", "gradients/fc1.weight", "updates/fc1.weight",
                          "gradients_norm/fc1.weight", "gradients_subnormals/fc1.weight",
                          "update_ratio/fc1.weight", "module_gradients/fc1"}) {
    EXPECT_THAT(content, HasSubstr(tag));
  }
}

TEST(HistogramEvent, IsTheProtobufThatTensorBoardReads) {
  const Magnitudes m{.count = 5, .first_exponent = -1, .exponents = {2, 3}};
  const auto number = [](double value) {
    std::string bytes(sizeof(double), '\0');
    std::memcpy(bytes.data(), &value, sizeof(double));
    return bytes;
  };
  using std::string_literals::operator""s;
  // HistogramProto: min, max, num, sum, sum_squares, bucket_limit (packed), bucket (packed).
  const std::string histogram = "\x09"s + number(-1) + "\x11"s + number(1) + "\x19"s + number(5) +
                                "\x21"s + number(-2) + "\x29"s + number(2) + "\x32\x10"s +
                                number(0) + number(1) + "\x3a\x10"s + number(2) + number(3);
  ASSERT_EQ(histogram.size(), 81U);
  const std::string value = "\x0a\x01g\x2a\x51"s + histogram;  // tag, histo
  const std::string summary = "\x0a"s + static_cast<char>(value.size()) + value;
  const std::string expected =
      "\x09"s + number(1.5) + "\x10\x07\x2a"s + static_cast<char>(summary.size()) + summary;
  EXPECT_EQ(histogram_event(1.5, 7, "g", m), expected);
}

TEST(WatchedPage, HasPlotsATableAndTheClusters) {
  const std::string page = to_html(watched_report());
  for (const char* title :
       {"Update ratio", "Gradients below the type", "Numerics of O1", "Skipped steps"})
    EXPECT_THAT(page, HasSubstr(std::string("<h2>") + title + "</h2>"));
  EXPECT_THAT(page, HasSubstr("<td>fc1.weight</td><td>2</td><td>3</td><td>0.5</td>"
                              "<td>12.50 %</td><td>25.00 %</td><td>0.10 %</td>"));
  EXPECT_THAT(page, HasSubstr("2^-21: 400"));
  EXPECT_THAT(page, HasSubstr("2 of 3 explained skips: softmax (attn &lt;1&gt;) "
                              "overflowed"));
  const std::string without = to_html(sample::report());
  for (const char* title : {"Update ratio", "Numerics of", "Skipped steps"})
    EXPECT_THAT(without, Not(HasSubstr(title)));
}

TEST(SkipClustersOfARun, ComeFromMessagesWhereThereAreNoEvents) {
  report::Run run;
  run.messages = {
      "mezzo: step skipped: loss 0 gave a gradient that is not finite; explained: exp "
      "(head) overflowed; loss scale 4 -> 2",
      "mezzo: step skipped: loss 0 gave a gradient that is not finite",
      "mezzo: step skipped: loss 0; explained: mul overflowed",
      "mezzo: step skipped: loss 0; explained: exp (head) overflowed"};
  const SkipClusters clusters = clusters_of(run);
  ASSERT_EQ(clusters.summaries.size(), 2U);
  EXPECT_EQ(cluster_text(clusters, 0), "2 of 3 explained skips: exp (head) overflowed");
  EXPECT_EQ(cluster_text(clusters, 1), "1 of 3 explained skips: mul overflowed");
}

TEST(WatchedConsole, SaysWhyAStepWasSkippedAndLeavesTablesOut) {
  std::ostringstream out;
  const auto sink = console(out);
  for (const Event& event : watched_events()) sink->write(event);
  EXPECT_THAT(out.str(), HasSubstr("O1  step 4 was skipped: exp (head) overflowed\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("fc1")));
}

TEST(WatchedSums, WeighParametersByTheirSizes) {
  StepWatched step = a_watched_step(1);
  step.rows.push_back(step.rows[1]);
  step.rows[2].gradients.count = 3000;
  step.rows[2].gradients.zeros = 0.5;
  step.rows[2].weights.norm = 0;
  step.rows[2].updates.norm = 0;
  const WatchedSum sum = sum_of(step);
  EXPECT_DOUBLE_EQ(sum.update_ratio, 0.001);
  EXPECT_DOUBLE_EQ(sum.lost, (1 * 0.375 + 3 * 0.75) / 4);
}

}  // namespace
}  // namespace mezzo::report
