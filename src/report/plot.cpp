#include "report/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/text.h"

namespace mezzo::report {

namespace {

constexpr double kWidth = 560, kHeight = 300;
constexpr double kLeft = 66, kRight = 548, kTop = 12, kBottom = 262;

bool finite(const Point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

/// From values to places in the drawing.
struct Frame {
  double x0 = std::numeric_limits<double>::infinity(), x1 = -x0, y0 = x0, y1 = -x0;
  bool logarithmic = false;

  bool shows(const Point& p) const { return finite(p) && !(logarithmic && p.y <= 0); }
  double height(double y) const { return logarithmic ? std::log2(y) : y; }
  void include(const Point& p) {
    if (!shows(p)) return;
    x0 = std::min(x0, p.x);
    x1 = std::max(x1, p.x);
    y0 = std::min(y0, height(p.y));
    y1 = std::max(y1, height(p.y));
  }
  bool empty() const { return x0 > x1; }
  void settle() {
    if (x0 == x1) x1 = x0 + 1;
    const double margin = y0 == y1 ? 1 : 0.06 * (y1 - y0);
    y0 -= margin;
    y1 += margin;
  }
  double px(double x) const { return kLeft + (x - x0) / (x1 - x0) * (kRight - kLeft); }
  double py(double y) const { return kBottom - (height(y) - y0) / (y1 - y0) * (kBottom - kTop); }
};

Frame frame_of(const LinePlot& plot) {
  Frame frame{.logarithmic = plot.logarithmic};
  for (const Series& series : plot.series) {
    for (const Point& p : series.points) frame.include(p);
  }
  if (!frame.empty()) frame.settle();
  return frame;
}

std::string at(double x, double y) {
  return fixed(x, 1) + ' ' + fixed(y, 1);
}

// Thins out points for a line of this width: keeps in each column of pixels the first,
// the lowest, the highest and the last. A gap stays a gap.
std::vector<Point> visible(const std::vector<Point>& points, const Frame& frame) {
  constexpr std::size_t kAll = 4000;
  if (points.size() <= kAll) return points;
  constexpr double kGap = -1;
  const auto column = [&](const Point& p) {
    return frame.shows(p) ? std::floor(frame.px(p.x)) : kGap;
  };
  std::vector<Point> kept;
  for (std::size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    const double here = column(points[begin]);
    std::size_t low = begin, high = begin;
    for (end = begin; end < points.size() && column(points[end]) == here; ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    std::size_t last = end;
    for (const std::size_t i : {begin, std::min(low, high), std::max(low, high), end - 1}) {
      if (i != last) kept.push_back(points[i]);
      last = i;
    }
  }
  return kept;
}

// For values that hold until the next point: the points at which they change, and the last one.
// Gaps stay.
std::vector<Point> changes(const std::vector<Point>& points, const Frame& frame) {
  std::vector<Point> kept;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool holds = i > 0 && i + 1 < points.size() && frame.shows(points[i]) &&
                       frame.shows(points[i - 1]) && points[i].y == points[i - 1].y &&
                       frame.shows(points[i + 1]);
    if (!holds) kept.push_back(points[i]);
  }
  return kept;
}

std::string path(const Series& series, const Frame& frame, bool steps) {
  std::string d;
  bool pen_down = false;
  const std::vector<Point> points = steps ? changes(series.points, frame) : series.points;
  for (const Point& p : visible(points, frame)) {
    if (!frame.shows(p)) {
      pen_down = false;
      continue;
    }
    if (pen_down && steps) d += 'H' + fixed(frame.px(p.x), 1);
    d += (pen_down ? 'L' : 'M') + at(frame.px(p.x), frame.py(p.y));
    pen_down = true;
  }
  return "<path class='line s" + std::to_string(series.color) +
         (series.style == "faint" ? " faint" : "") + "' d='" + d + "'><title>" +
         escaped(series.name) + "</title></path>";
}

std::string dots(const Series& series, const Frame& frame, const LinePlot& plot) {
  std::string svg;
  for (const Point& p : series.points) {
    if (!finite(p)) continue;
    svg += "<circle class='dot s" + std::to_string(series.color) + "' cx='" +
           fixed(frame.px(p.x), 1) + "' cy='" + fixed(frame.py(p.y), 1) + "' r='4'><title>" +
           escaped(series.name) + ", " + plot.x_name + ' ' + scale_text(p.x) + ": " +
           escaped(plot.tick(p.y)) + "</title></circle>";
  }
  return svg;
}

std::string axes(const LinePlot& plot, const Frame& frame) {
  std::string svg;
  std::vector<double> ys;
  if (plot.logarithmic) {
    const int step = std::max(1, static_cast<int>(std::ceil((frame.y1 - frame.y0) / 6)));
    for (int e = static_cast<int>(std::ceil(frame.y0)); e <= frame.y1; e += step)
      ys.push_back(std::exp2(e));
  } else {
    ys = round_ticks(frame.y0, frame.y1);
  }
  for (const double y : ys) {
    const std::string height = fixed(frame.py(y), 1);
    svg += "<line class='grid' x1='" + fixed(kLeft, 0) + "' x2='" + fixed(kRight, 0) + "' y1='" +
           height + "' y2='" + height + "'/><text class='tick' text-anchor='end' dy='.32em' x='" +
           fixed(kLeft - 8, 0) + "' y='" + height + "'>" + escaped(plot.tick(y)) + "</text>";
  }
  for (const double x : round_ticks(frame.x0, frame.x1)) {
    if (plot.x_name == "epoch" && x != std::floor(x)) continue;
    svg += "<text class='tick' text-anchor='middle' x='" + fixed(frame.px(x), 1) + "' y='" +
           fixed(kBottom + 18, 0) + "'>" + scale_text(x) + "</text>";
  }
  svg += "<text class='tick' text-anchor='end' x='" + fixed(kRight, 0) + "' y='" +
         fixed(kBottom + 34, 0) + "'>" + escaped(plot.x_name) + "</text>";
  return svg + "<line class='axis' x1='" + fixed(kLeft, 0) + "' x2='" + fixed(kRight, 0) +
         "' y1='" + fixed(kBottom, 0) + "' y2='" + fixed(kBottom, 0) + "'/>";
}

std::string svg_open(double width, double height, const std::string& label) {
  return "<svg viewBox='0 0 " + fixed(width, 0) + ' ' + fixed(height, 0) +
         "' role='img' aria-label='" + escaped(label) + "'>";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::vector<double> round_ticks(double low, double high) {
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; (first + i) * step <= high + 1e-9 * step && i < 20; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

std::string to_svg(const LinePlot& plot) {
  const Frame frame = frame_of(plot);
  if (frame.empty()) return "<p class='none'>Nothing was recorded.</p>";
  std::string svg = svg_open(kWidth, kHeight, plot.label) + axes(plot, frame);
  for (const Series& series : plot.series) {
    if (series.style == "faint") svg += path(series, frame, plot.steps);
  }
  for (const Series& series : plot.series) {
    if (series.style != "faint") svg += path(series, frame, plot.steps);
    if (series.style == "dots") svg += dots(series, frame, plot);
  }
  return svg + "</svg>";
}

std::string to_svg(const BarPlot& plot) {
  constexpr double kRow = 34, kName = 70, kBarRight = 430;
  double largest = 0;
  for (const Bar& bar : plot.bars) {
    double sum = 0;
    for (const BarPart& part : bar.parts) sum += part.value;
    if (std::isfinite(sum)) largest = std::max(largest, sum);
  }
  if (largest <= 0) return "<p class='none'>Nothing was recorded.</p>";
  std::string svg = svg_open(kWidth, kRow * static_cast<double>(plot.bars.size()) + 6, plot.label);
  double y = 4;
  for (const Bar& bar : plot.bars) {
    svg += "<text class='name' text-anchor='end' dy='.32em' x='" + fixed(kName - 10, 0) + "' y='" +
           fixed(y + 13, 0) + "'>" + escaped(bar.name) + "</text>";
    double x = kName;
    for (const BarPart& part : bar.parts) {
      if (!(part.value > 0) || !std::isfinite(part.value)) continue;
      const double width = std::max(part.value / largest * (kBarRight - kName), 1.0);
      // The gap of two pixels tells neighbouring parts apart without a line.
      svg += "<rect class='bar s" + std::to_string(part.color) + "' x='" + fixed(x, 1) + "' y='" +
             fixed(y, 0) + "' width='" + fixed(std::max(width - 2, 1.0), 1) +
             "' height='26' rx='3'><title>" + escaped(part.name) + "</title></rect>";
      x += width;
    }
    svg += "<text class='value' dy='.32em' x='" + fixed(x + 8, 1) + "' y='" + fixed(y + 13, 0) +
           "'>" + escaped(bar.value) + "</text>";
    y += kRow;
  }
  return svg + "</svg>";
}

}  // namespace mezzo::report
