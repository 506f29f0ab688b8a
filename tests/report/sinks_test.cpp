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
