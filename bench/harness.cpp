#include "harness.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "platform/files.h"

namespace mezzo::bench {
namespace {

constexpr double kShortestMeasurement = 0.02;  // seconds

double seconds_of(const std::function<void()>& function, std::int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t calls_for(const std::function<void()>& function) {
  const double once = std::max(seconds_of(function, 1), 1e-8);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kShortestMeasurement / once));
}

std::string quantity(double value, const std::string& unit) {
  std::ostringstream text;
  text << std::setprecision(4);
  if (unit != "seconds") {
    text << value;
  } else if (value < 1e-3) {
    text << value * 1e6 << " us";
  } else {
    text << value * 1e3 << " ms";
  }
  return text.str();
}

std::string json_of(const Result& result) {
  nlohmann::ordered_json line{{"case", result.name},           {"unit", result.unit},
                              {"ours", result.ours},           {"peer", result.peer},
                              {"peer_name", result.peer_name}, {"ratio", result.ratio()},
                              {"spread", result.spread},       {"target", nullptr}};
  if (result.target) line["target"] = *result.target;
  if (result.bytes) line["bytes"] = *result.bytes;
  if (result.share_of_bandwidth) line["share_of_bandwidth"] = *result.share_of_bandwidth;
  return line.dump();
}

}  // namespace

double Result::ratio() const {
  if (ours == 0) return peer == 0 ? 1 : 1e9;
  return peer / ours;
}

Pair take_turns(const std::function<double()>& ours, const std::function<double()>& peer,
                int repeats) {
  std::vector<double> our_times;
  std::vector<double> ratios;
  std::vector<double> peer_times;
  for (int i = 0; i < repeats; ++i) {
    our_times.push_back(ours());
    peer_times.push_back(peer());
    ratios.push_back(peer_times.back() / our_times.back());
  }
  std::sort(ratios.begin(), ratios.end());
  const double middle = ratios[ratios.size() / 2];
  const double spread = (ratios[ratios.size() * 3 / 4] - ratios[ratios.size() / 4]) / middle;
  return {*std::min_element(our_times.begin(), our_times.end()),
          *std::min_element(peer_times.begin(), peer_times.end()), spread};
}

Pair interleave(const std::function<void()>& ours, const std::function<void()>& peer, int repeats) {
  ours();
  peer();
  const std::int64_t our_calls = calls_for(ours);
  const std::int64_t peer_calls = calls_for(peer);
  return take_turns([&] { return seconds_of(ours, our_calls) / static_cast<double>(our_calls); },
                    [&] { return seconds_of(peer, peer_calls) / static_cast<double>(peer_calls); },
                    repeats);
}

void Report::heading(const std::string& text) {
  table_ << '\n'
         << text << '\n'
         << std::left << std::setw(58) << "case" << std::right << std::setw(12) << "ours"
         << std::setw(12) << "peer" << std::setw(8) << "ratio" << std::setw(8) << "spread"
         << std::setw(8) << "target"
         << "  peer is\n";
}

void Report::add(const Result& result) {
  results_.push_back(result);
  if (!lines_.empty()) std::ofstream(lines_, std::ios::app) << json_of(result) << std::endl;
  std::ostringstream ratio;
  ratio << std::fixed << std::setprecision(2) << result.ratio();
  std::ostringstream spread;
  spread << std::fixed << std::setprecision(0) << result.spread * 100 << '%';
  std::ostringstream target;
  if (result.target) target << std::fixed << std::setprecision(2) << *result.target;
  table_ << std::left << std::setw(58) << result.name << std::right << std::setw(12)
         << quantity(result.ours, result.unit) << std::setw(12)
         << quantity(result.peer, result.unit) << std::setw(8) << ratio.str() << std::setw(8)
         << spread.str() << std::setw(8) << target.str() << "  " << result.peer_name
         << (result.target && result.ratio() < *result.target ? "  (target missed)" : "");
  if (result.share_of_bandwidth) {
    table_ << "  [" << std::fixed << std::setprecision(0) << *result.share_of_bandwidth * 100
           << std::defaultfloat << "% of the bandwidth]";
  }
  table_ << std::endl;
}

void Report::write_json(const std::string& path) const {
  platform::write_atomically(path, [&](std::ostream& out) { write_json(out); });
}

void Report::write_json(std::ostream& out) const {
  for (const Result& result : results_) out << json_of(result) << '\n';
}

}  // namespace mezzo::bench
