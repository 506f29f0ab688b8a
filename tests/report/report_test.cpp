#include "mezzo/report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mezzo/error.h"
#include "report/sample.h"

namespace mezzo::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void expect_failure(const std::string& content, const std::string& message) {
  const auto file = sample::folder() / "log.jsonl";
  std::ofstream(file) << content;
  try {
    (void)read(file);
    FAIL() << "no error for: " << content;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_THAT(error.what(), HasSubstr("log.jsonl"));
  }
}

TEST(Report, JsonHasTheKeysThatProgramsRelyOn) {
  const auto json = nlohmann::ordered_json::parse(to_json(sample::report()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.at("levels").at(1).items()) keys.push_back(key);
  EXPECT_THAT(keys,
              ElementsAre("level", "test_accuracy", "seconds_per_step", "ratio_to_O0",
                          "peak_memory_bytes", "parameter_bytes", "master_bytes",
                          "optimizer_state_bytes", "weight_casts_per_step",
                          "activation_casts_per_step", "skipped_steps", "final_scale", "loss"));
  keys.clear();
  for (const auto& [key, value] : json.at("machine").items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("processor", "instruction_sets", "cores", "threads", "devices",
                                "versions", "compute"));
  EXPECT_EQ(json.at("levels").at(1).at("ratio_to_O0"), 0.5);
  EXPECT_EQ(json.at("levels").at(1).at("loss"), (std::vector<double>{1.25, 1.0}));
}

TEST(Report, RatioIsNullWithoutO0) {
  Report report = sample::report();
  report.runs.erase(report.runs.begin());
  EXPECT_TRUE(
      nlohmann::json::parse(to_json(report)).at("levels").at(0).at("ratio_to_O0").is_null());
}

TEST(Report, ReadsTheFiguresThatItSaved) {
  const auto file = sample::folder() / "report.json";
  save(sample::report(), file);
  const Report again = read(file);
  EXPECT_EQ(again.machine, sample::machine());
  ASSERT_EQ(again.runs.size(), 2U);
  EXPECT_EQ(again.runs[1].figures, sample::report().runs[1].figures);
  EXPECT_EQ(to_json(again), to_json(sample::report()));
}

TEST(Report, ANanLossSurvivesAsNan) {
  const auto file = sample::folder() / "report.json";
  Report report = sample::report();
  report.runs[0].steps[1].loss = std::nan("");
  save(report, file);
  EXPECT_TRUE(std::isnan(read(file).runs[0].steps[1].loss));
}

TEST(Report, IsSavedByItsEnding) {
  const auto folder = sample::folder();
  save(sample::report(), folder / "a.html");
  EXPECT_EQ(sample::content(folder / "a.html"), to_html(sample::report()));
  EXPECT_THROW(save(sample::report(), folder / "a.txt"), ConfigError);
  EXPECT_THROW(save(sample::report(), folder / "none" / "a.json"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.txt"));
}

TEST(Report, EventsNeedARun) {
  Report report;
  EXPECT_THROW(add(report, StepTaken{}), ConfigError);
  EXPECT_THROW(add(report, RunEnded{}), ConfigError);
}

TEST(Report, ReadsALogWhoseWriterDied) {
  const auto file = sample::folder() / "log.jsonl";
  {
    const auto sink = json_lines(file);
    sink->write(sample::events()[0]);
    sink->write(sample::events()[1]);
  }
  std::ofstream(file, std::ios::app) << R"({"event":"step","epo)";
  const Report report = read(file);
  EXPECT_EQ(report.runs.at(0).steps.size(), 1U);
  EXPECT_FALSE(report.runs.at(0).ended);
}

TEST(Report, SaysWhatIsWrongWithAFile) {
  expect_failure("", "neither a report nor a log");
  expect_failure("hello\n", "line 1 is not JSON");
  expect_failure("[1, 2]\n", "expected a JSON object, got array");
  expect_failure("{\"event\":\"stop\"}\n", "unknown event 'stop'");
  expect_failure("{\"event\":\"message\",\"text\":\"a\"}\n", "before any RunStarted");
  expect_failure("{\"event\":\"message\"}\n", "no field 'text'");
  expect_failure("{\"event\":\"message\",\"text\":1}\n", "'text' must be a text");
  expect_failure("{\"levels\": 3, \"machine\": {}}", "no field 'processor'");
  EXPECT_THROW(read("/nowhere/log.jsonl"), Error);
  EXPECT_THROW(read("/tmp"), Error);
}

TEST(Machine, OfThisComputerIsKnown) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_EQ(machine.versions.count("mezzo"), 1U);
}

}  // namespace
}  // namespace mezzo::report
