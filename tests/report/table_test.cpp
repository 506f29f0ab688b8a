#include "report/table.h"

#include "report/sample.h"

namespace mezzo::report {
namespace {

TEST(Table, PutsRunsSideBySide) {
  // clang-format off
  EXPECT_EQ(to_table(sample::report()),
            "           test      time  ratio     peak   param-            optim.  casts per   step:  skip-  final\n"
            "level  accuracy  per step  to O0   memory    eters  masters    state    weights  others    ped  scale\n"
            "-----------------------------------------------------------------------------------------------------\n"
            "O0      81.25 %   50.0 ms  1.00x  3.0 MiB  4.0 KiB      0 B  4.0 KiB        0.0     0.0      0      1\n"
            "O1      80.00 %   25.0 ms  0.50x  2.0 MiB  4.0 KiB  4.0 KiB  4.0 KiB        4.5    12.2      1  32768\n");
  // clang-format on
}

TEST(Table, HasNoRatioWithoutO0) {
  Report report = sample::report();
  report.runs.erase(report.runs.begin());
  EXPECT_EQ(figure_rows(report).at(1).at(3), "-");
}

TEST(Table, SaysWhichRunDidNotEnd) {
  Report report = sample::report();
  report.runs.back().ended = false;
  const auto rows = figure_rows(report);
  EXPECT_EQ(rows.at(2).at(1), "did not end");
  EXPECT_EQ(rows.at(2).size(), rows.at(0).size());
}

TEST(Table, OfNothingIsAHeading) {
  EXPECT_EQ(figure_rows({}).size(), 1U);
}

}  // namespace
}  // namespace mezzo::report
