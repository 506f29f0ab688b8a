#include <gmock/gmock.h>

#include <cmath>

#include "report/sample.h"

namespace mezzo::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Page, HasEveryPlotAndTheTable) {
  const std::string page = to_html(sample::report());
  for (const char* title : {"Loss", "Accuracy", "Loss scale", "Time per step", "Peak memory",
                            "Weights and optimizer", "Messages", "Machine"}) {
    EXPECT_THAT(page, HasSubstr(std::string("<h2>") + title + "</h2>"));
  }
  EXPECT_THAT(page, HasSubstr("<td>81.25 %</td>"));
  EXPECT_THAT(page, HasSubstr("an overflow; scale is now 32768"));
}

TEST(Page, SaysWhatWentWrongIfAnythingDid) {
  Report report = sample::report();
  EXPECT_THAT(to_html(report), Not(HasSubstr("Diagnosis")));
  report.runs[1].steps.back().loss = std::nan("");
  EXPECT_THAT(to_html(report), HasSubstr("<h2>Diagnosis</h2><ul><li><b>O1</b> diverged: the loss"));
}

TEST(Page, NeedsNothingFromOutside) {
  const std::string page = to_html(sample::report());
  for (const char* reference : {"http", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

TEST(Page, HasColoursForLightAndDark) {
  EXPECT_THAT(to_html(sample::report()), HasSubstr("prefers-color-scheme:dark"));
}

TEST(Page, EscapesWhatTheMachineCallsItself) {
  const std::string page = to_html(sample::report());
  EXPECT_THAT(page, HasSubstr("Test CPU &lt;9000&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<9000>")));
}

TEST(Page, ClosesWhatItOpens) {
  const std::string page = to_html(sample::report());
  for (const char* element :
       {"svg", "section", "table", "div", "main", "html", "text", "dl", "p"}) {
    int balance = 0;
    for (const std::string& tag : {std::string("<") + element, std::string("</") + element}) {
      for (auto at = page.find(tag); at != std::string::npos; at = page.find(tag, at + 1)) {
        const char after = page[at + tag.size()];
        if (after == '>' || after == ' ') balance += tag[1] == '/' ? -1 : 1;
      }
    }
    EXPECT_EQ(balance, 0) << element;
  }
}

TEST(Page, LeavesOutWhatWasNotRecorded) {
  Report report = sample::report();
  for (auto& run : report.runs) run.epochs.clear();
  EXPECT_THAT(to_html(report), Not(HasSubstr("<h2>Accuracy</h2>")));
  EXPECT_THAT(to_html({}), HasSubstr("Nothing was recorded"));
}

}  // namespace
}  // namespace mezzo::report
