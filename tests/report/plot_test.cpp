#include "report/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/text.h"

namespace mezzo::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

LinePlot plot_of(std::vector<Point> points) {
  LinePlot plot{.label = "test", .x_name = "step", .tick = [](double y) { return fixed(y, 1); }};
  plot.series.push_back({"run <1>", 0, std::move(points)});
  return plot;
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Plot, TicksAreRoundAndSpanTheRange) {
  EXPECT_THAT(round_ticks(0, 1),
              ElementsAre(0, 0.2, testing::DoubleEq(0.4), testing::DoubleNear(0.6, 1e-9), 0.8, 1));
  EXPECT_THAT(round_ticks(0, 470), ElementsAre(0, 100, 200, 300, 400));
  EXPECT_THAT(round_ticks(-1, 1), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(Plot, ANumberThatIsNoneInterruptsTheLine) {
  const std::string svg = to_svg(plot_of({{1, 1}, {2, std::nan("")}, {3, 2}, {4, 3}}));
  EXPECT_EQ(count(svg, "M"), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Plot, WithoutAnyNumberSaysSo) {
  EXPECT_THAT(to_svg(plot_of({{1, INFINITY}})), HasSubstr("Nothing was recorded"));
  EXPECT_THAT(to_svg(BarPlot{"test", {}}), HasSubstr("Nothing was recorded"));
}

TEST(Plot, OneConstantPointIsDrawnInTheMiddle) {
  EXPECT_THAT(to_svg(plot_of({{5, 7}})), Not(testing::AnyOf(HasSubstr("nan"), HasSubstr("inf"))));
}

// A digit is at most 7 wide at the size of ticks; the widest labels are those of small ratios.
TEST(Plot, LabelsOfSmallNumbersBeginInsideTheDrawing) {
  LinePlot plot = plot_of({{1, 0x1p-13}, {2, 0x1p-7}});
  plot.logarithmic = true;
  plot.tick = short_number;
  const std::string svg = to_svg(plot);
  ASSERT_THAT(svg, HasSubstr(">0.000122<"));
  const std::string mark = "text-anchor='end' dy='.32em' x='";
  const std::size_t at = svg.find(mark);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::stod(svg.substr(at + mark.size())), 7 * std::string("0.000122").size());
}

TEST(Plot, NamesAreEscaped) {
  EXPECT_THAT(to_svg(plot_of({{1, 1}, {2, 2}})), HasSubstr("run &lt;1&gt;"));
  EXPECT_EQ(escaped("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
}

TEST(Plot, VeryManyPointsAreDrawnAsWhatTheirPixelsShow) {
  std::vector<Point> points;
  for (int i = 0; i < 500'000; ++i) points.push_back({1.0 * i, std::sin(i)});
  points[250'000].y = 40;  // what stands out alone still does
  points[400'000].y = NAN;
  const std::string svg = to_svg(plot_of(points));
  EXPECT_LT(svg.size(), 60'000U);
  EXPECT_EQ(count(svg.substr(svg.find(" d='")), "M"), 2);  // a gap stays a gap
  EXPECT_EQ(svg.find(" nan"), std::string::npos);
  points[250'000].y = 0;
  EXPECT_NE(to_svg(plot_of(points)), svg);
}

TEST(Plot, StepsHoldAValueUntilTheNext) {
  LinePlot plot = plot_of({{0, 2}, {10, 4}});
  plot.steps = true;
  plot.logarithmic = true;
  const std::string svg = to_svg(plot);
  EXPECT_EQ(count(svg, "H548.0L548.0"), 1);
}

TEST(Plot, StepsAreDrawnAsOnePointPerChange) {
  LinePlot plot = plot_of({});
  plot.steps = true;
  for (int step = 0; step < 3000; ++step) {
    plot.series[0].points.push_back({static_cast<double>(step), step < 1000 ? 4.0 : 2.0});
  }
  const std::string svg = to_svg(plot);
  EXPECT_EQ(count(svg, "M"), 1);
  // The change and the end, each after a horizontal line.
  EXPECT_EQ(count(svg, "H"), 2);

  plot.series[0].points[500].y = std::nan("");
  const std::string interrupted = to_svg(plot);
  EXPECT_EQ(count(interrupted, "M"), 2);
  EXPECT_EQ(count(interrupted, "H"), 3) << "to the gap, at the change, to the end";
}

TEST(Plot, BarsOfManyPartsStandInARow) {
  const std::string svg = to_svg(BarPlot{"test", {{"a", {{1, 0, "one"}, {3, 1, "three"}}, "4"}}});
  EXPECT_EQ(count(svg, "<rect"), 2);
  EXPECT_THAT(svg, HasSubstr("x='160.0'"));  // a quarter of the way from 70 to 430
}

}  // namespace
}  // namespace mezzo::report
