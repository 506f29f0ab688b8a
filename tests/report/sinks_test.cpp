#include <gmock/gmock.h>

#include "mezzo/error.h"
#include "report/sample.h"

namespace mezzo::report {
namespace {

using testing::StartsWith;

TEST(JsonLinesSink, WritesWhatReadReadsBack) {
  const auto file = sample::folder() / "run.jsonl";
  {
    const auto sink = json_lines(file);
    for (const Event& event : sample::events()) sink->write(event);
  }
  EXPECT_EQ(read(file), sample::report());
}

TEST(JsonLinesSink, HasEachLineOnTheDiskAtOnce) {
  const auto file = sample::folder() / "run.jsonl";
  const auto sink = json_lines(file);
  sink->write(Message{"first"});
  EXPECT_EQ(sample::content(file), "{\"event\":\"message\",\"text\":\"first\"}\n");
}

TEST(JsonLinesSink, RefusesAFileThatCannotBeWritten) {
  EXPECT_THROW(json_lines("/nowhere/run.jsonl"), Error);
}

TEST(HtmlSink, WritesThePageWhenARunEnds) {
  const auto file = sample::folder() / "page.html";
  const auto sink = html(file);
  for (const Event& event : sample::events()) {
    sink->write(event);
    if (!std::holds_alternative<RunEnded>(event)) continue;
    EXPECT_THAT(sample::content(file), StartsWith("<!doctype html>"));
  }
  EXPECT_EQ(sample::content(file), to_html(sample::report()));
}

TEST(HtmlSink, RefusesAnotherEnding) {
  EXPECT_THROW(html("page.txt"), ConfigError);
}

class Counter final : public Sink {
 public:
  Counter(std::string name, std::string& trace) : name_(std::move(name)), trace_(trace) {}
  void write(const Event&) override { trace_ += name_; }

 private:
  std::string name_;
  std::string& trace_;
};

TEST(TeeSink, HandsEventsToAllInOrder) {
  std::string trace;
  const auto sink = tee(std::unique_ptr<Sink>(new Counter("a", trace)),
                        std::unique_ptr<Sink>(new Counter("b", trace)));
  sink->write(Message{});
  sink->write(Message{});
  EXPECT_EQ(trace, "abab");
}

TEST(TeeSink, HandsAnEventToTheOthersWhereOneFails) {
  struct Failing final : Sink {
    void write(const Event&) override { throw Error("a full disk"); }
  };
  std::string trace;
  const auto sink =
      tee(std::unique_ptr<Sink>(new Failing), std::unique_ptr<Sink>(new Counter("a", trace)),
          std::unique_ptr<Sink>(new Failing), std::unique_ptr<Sink>(new Counter("b", trace)));
  EXPECT_THROW(sink->write(Message{}), Error);
  EXPECT_EQ(trace, "ab");
}

TEST(JsonLinesSink, WritesTextThatIsNoUtf8) {
  const auto file = sample::folder() / "log.jsonl";
  const auto sink = json_lines(file);
  sink->write(RunStarted{.run = "caf\xe9"});
  EXPECT_EQ(read(file).runs.front().name, "caf\xef\xbf\xbd");
  Report report;
  add(report, RunStarted{.run = "caf\xe9"});
  EXPECT_NO_THROW(save(report, sample::folder() / "report.json"));
}

TEST(HtmlSink, SaysAtTheStartThatThePageCannotBeWritten) {
  const auto sink = html(sample::folder() / "none" / "page.html");
  EXPECT_THROW(sink->write(RunStarted{.run = "O1"}), Error);
}

TEST(HtmlSink, LeavesAPageOfEveryEpochThatEnded) {
  const auto file = sample::folder() / "page.html";
  const auto sink = html(file);
  sink->write(RunStarted{.run = "O1", .epochs = 2, .steps_per_epoch = 1});
  sink->write(StepTaken{.epoch = 1, .step = 1, .loss = 0.5});
  EXPECT_EQ(sample::content(file).find("class='line"), std::string::npos);
  sink->write(EpochEnded{.epoch = 1, .loss = 0.5});
  EXPECT_NE(sample::content(file).find("class='line"), std::string::npos);
}

TEST(Replay, MakesTheSameReport) {
  struct Collect final : Sink {
    void write(const Event& event) override { add(report, event); }
    Report report;
  } sink;
  replay(sample::report(), sink);
  EXPECT_EQ(sink.report, sample::report());
}

}  // namespace
}  // namespace mezzo::report
