#include "ssd512/results.h"

#include <mezzo/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace examples {

namespace {

/// The tutorial's log: float32 and float16 on a GPU that it does not name.
struct TutorialRow {
  std::int64_t batch;
  std::array<double, 3> full, low;
};
constexpr std::array<TutorialRow, 4> kTutorial{
    {{49, {58.105, 1.190, 0.688}, {93.585, 1.166, 0.684}},
     {99, {58.683, 0.693, 0.536}, {93.773, 0.682, 0.533}},
     {149, {58.915, 0.500, 0.453}, {93.399, 0.493, 0.451}},
     {199, {58.422, 0.396, 0.399}, {93.674, 0.391, 0.397}}}};

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

/// Speed, two losses, and where there is another run, how far they are from its losses.
std::string cells(const LogLine& line) {
  return padded(fixed(line.samples_per_second, 3), 11) + padded(fixed(line.cross_entropy, 3), 9) +
         padded(fixed(line.smooth_l1, 3), 9);
}

std::string row(const std::string& batch, const std::string& full, const std::string& low,
                const std::string& gap) {
  return padded(batch, 8) + " |" + full + " |" + low + " |" + padded(gap, 9) + '\n';
}

double gap_of(const LogLine& full, const LogLine& low) {
  const auto share = [](double a, double b) { return std::abs(a - b) / std::max(a, 1e-12); };
  return std::max(share(full.cross_entropy, low.cross_entropy),
                  share(full.smooth_l1, low.smooth_l1));
}

std::string gap_text(const LogLine& full, const LogLine& low) {
  return fixed(100 * gap_of(full, low), 2) + " %";
}

std::string ratio_text(const std::vector<LogLine>& full, const std::vector<LogLine>& low) {
  const auto mean = [](const std::vector<LogLine>& lines) {
    double sum = 0;
    for (const LogLine& line : lines) sum += line.samples_per_second;
    return sum / static_cast<double>(lines.size());
  };
  return fixed(mean(low) / mean(full), 2) + "x";
}

template <class Value>
void write_array(std::ostream& out, const char* name, const RunResults& run, Value value) {
  out << "    \"" << name << "\": [";
  const char* separator = "";
  for (const IterationLosses& losses : run.losses) {
    const double number = value(losses);
    out << separator;
    std::isfinite(number) ? out << number : out << "null";
    separator = ", ";
  }
  out << "],\n";
}

void write_run(std::ostream& out, const RunResults& run) {
  out << "  \"" << run.dtype << "\": {\n";
  write_array(out, "sum_loss", run, [](const IterationLosses& l) { return l.sum; });
  write_array(out, "cls_loss", run, [](const IterationLosses& l) { return l.cls; });
  write_array(out, "box_loss", run, [](const IterationLosses& l) { return l.box; });
  out << "    \"log\": [";
  const char* separator = "";
  for (const LogLine& line : run.lines) {
    out << separator << "\n      {\"batch\": " << line.batch
        << ", \"samples_per_second\": " << line.samples_per_second
        << ", \"CrossEntropy\": " << line.cross_entropy << ", \"SmoothL1\": " << line.smooth_l1
        << '}';
    separator = ",";
  }
  out << "],\n    \"loss_scale\": " << run.loss_scale << ", \"skipped_steps\": " << run.skipped
      << "\n  }";
}

}  // namespace

std::string LogLine::text() const {
  return "INFO:root:[Epoch 0][Batch " + std::to_string(batch) +
         "], Speed: " + fixed(samples_per_second, 3) +
         " samples/sec, CrossEntropy=" + fixed(cross_entropy, 3) +
         ", SmoothL1=" + fixed(smooth_l1, 3);
}

double largest_gap(const RunResults& full, const RunResults& low) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(full.lines.size(), low.lines.size()); ++i)
    largest = std::max(largest, gap_of(full.lines[i], low.lines[i]));
  return largest;
}

std::string to_table(const RunResults& full, const RunResults& low) {
  const std::string columns = padded("samples/s", 11) + padded("CE", 9) + padded("SmoothL1", 9);
  std::string text = row("", padded(full.dtype, 29), padded(low.dtype, 29), "") +
                     row("batch", columns, columns, "apart");
  text += std::string(text.size() / 2 - 1, '-') + '\n';
  for (std::size_t i = 0; i < std::min(full.lines.size(), low.lines.size()); ++i) {
    text += row(std::to_string(full.lines[i].batch), cells(full.lines[i]), cells(low.lines[i]),
                gap_text(full.lines[i], low.lines[i]));
  }
  text += "speed: " + ratio_text(full.lines, low.lines) + "\n\nthe tutorial's, on a GPU:\n";
  std::vector<LogLine> all_full, all_low;
  for (const TutorialRow& their : kTutorial) {
    all_full.push_back({their.batch, their.full[0], their.full[1], their.full[2]});
    all_low.push_back({their.batch, their.low[0], their.low[1], their.low[2]});
    text += row(std::to_string(their.batch), cells(all_full.back()), cells(all_low.back()),
                gap_text(all_full.back(), all_low.back()));
  }
  return text + "speed: " + ratio_text(all_full, all_low) + '\n';
}

void save_json(const std::vector<RunResults>& runs, const std::filesystem::path& file) {
  std::ostringstream text;
  text.precision(9);
  text << "{\n";
  const char* separator = "";
  for (const RunResults& run : runs) {
    text << separator;
    write_run(text, run);
    separator = ",\n";
  }
  text << "\n}\n";
  std::filesystem::path part = file;
  part += ".part";
  std::ofstream out(part);
  out << text.str();
  out.close();
  std::error_code failure;
  if (out) std::filesystem::rename(part, file, failure);
  if (!out || failure) throw mezzo::Error("cannot write '" + file.string() + "'");
}

}  // namespace examples
