// Plots as SVG that stands in an HTML page. Colours are classes of the page's style sheet: series i
// has the class "s<i>", so that the page decides how they look in light and dark.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::report {

/// Text with <, >, & and quotes as entities.
std::string escaped(std::string_view text);

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;
  int color = 0;
  std::vector<Point> points;  ///< by ascending x; a point that is not finite interrupts the line
  std::string style = {};  ///< "faint": drawn behind, without label and dots; "dots": marked points
};

struct LinePlot {
  std::string label;  ///< what it shows, for those who cannot see it
  std::string x_name;
  std::function<std::string(double)> tick;  ///< a value of the y axis as text
  bool logarithmic = false;                 ///< y in powers of two
  bool steps = false;                       ///< values hold until the next point
  std::vector<Series> series = {};
};

/// Without any finite point: a sentence that says so.
std::string to_svg(const LinePlot&);

struct BarPart {
  double value = 0;
  int color = 0;
  std::string name = {};  ///< shown when pointed at
};

struct Bar {
  std::string name;
  std::vector<BarPart> parts;  ///< drawn one after another
  std::string value;           ///< the text behind the bar
};

struct BarPlot {
  std::string label;
  std::vector<Bar> bars;
};

std::string to_svg(const BarPlot&);

/// Three to six round values that span [low, high], ascending; low < high.
std::vector<double> round_ticks(double low, double high);

}  // namespace mezzo::report
