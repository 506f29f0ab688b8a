// Event files as TensorBoard reads them: records of length, checksum, message, checksum, where a
// message is a protobuf `tensorflow.Event`; the few fields needed are written by hand.
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/raise.h"
#include "mezzo/report.h"
#include "report/record.h"

namespace mezzo::report {

namespace {

constexpr std::array<std::uint32_t, 256> crc32c_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = value;
  }
  return table;
}

template <class T>
void append_bytes(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little, "the formats are little-endian");
  std::array<char, sizeof(T)> raw{};
  std::memcpy(raw.data(), &value, sizeof(T));
  out.append(raw.data(), raw.size());
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, int field, int wire_type) {
  append_varint(out, static_cast<std::uint64_t>(field << 3 | wire_type));
}

void append_text(std::string& out, int field, std::string_view text) {
  append_key(out, field, 2);
  append_varint(out, text.size());
  out += text;
}

void append_double(std::string& out, int field, double value) {
  append_key(out, field, 1);
  append_bytes(out, value);
}

void append_doubles(std::string& out, int field, const std::vector<double>& values) {
  append_key(out, field, 2);
  append_varint(out, sizeof(double) * values.size());
  for (const double value : values) append_bytes(out, value);
}

std::string event_head(double wall_time) {
  std::string message;
  append_key(message, 1, 1);  // Event.wall_time, a double
  append_bytes(message, wall_time);
  return message;
}

/// A `tensorflow.Event` whose summary holds one value.
std::string event_of(double wall_time, std::int64_t step, const std::string& value) {
  std::string summary;
  append_text(summary, 1, value);  // Summary.value
  std::string message = event_head(wall_time);
  append_key(message, 2, 0);  // Event.step
  append_varint(message, static_cast<std::uint64_t>(step));
  append_text(message, 5, summary);  // Event.summary
  return message;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A run's name as the name of a folder.
std::string folder_name(std::string run) {
  for (char& c : run) {
    if (c == '/' || c == '\0') c = '_';
  }
  return run.empty() || run == "." || run == ".." ? "run" : run;
}

/// Makes a file of events that nobody else has, whoever writes to the folder at the same time.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  const std::string name =
      "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now()));
  for (int count = 0;; ++count) {
    std::filesystem::path file =
        folder / (name + (count == 0 ? "" : '.' + std::to_string(count)) + ".mezzo");
    if (std::FILE* made = std::fopen(file.c_str(), "wxb")) {
      std::fclose(made);
      return file;
    }
    if (errno != EEXIST)
      raise("report", "cannot write '", file.string(), "': ", std::strerror(errno));
  }
}

class TensorBoard final : public Sink {
 public:
  explicit TensorBoard(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    if (failure)
      raise("report", "cannot make folder '", folder_.string(), "': ", failure.message());
  }

  void write(const Event& event) override {
    std::visit([this](const auto& e) { put(e); }, event);
  }

 private:
  void put(const RunStarted& e) {
    std::string name = folder_name(e.run);
    if (const int times = ++runs_[name]; times > 1) name += '-' + std::to_string(times);
    std::error_code ignored;
    std::filesystem::create_directories(folder_ / name, ignored);
    file_ = new_file(folder_ / name);
    out_ = std::ofstream(file_, std::ios::binary | std::ios::trunc);
    std::string message = event_head(now());
    append_text(message, 3, "brain.Event:2");  // Event.file_version
    append(message);
    step_ = 0;
  }
  void put(const StepTaken& e) {
    step_ = e.step;
    scalar("train/loss", e.loss);
    if (!std::isnan(e.accuracy)) scalar("train/accuracy", e.accuracy);
    if (!std::isnan(e.items_per_second)) scalar("train/items_per_second", e.items_per_second);
    if (std::isnan(e.scale)) return;
    scalar("scale/scale", e.scale);
    scalar("scale/skipped_steps", static_cast<double>(e.skipped_steps));
  }
  void put(const EpochEnded& e) {
    scalar("epoch/loss", e.loss);
    if (e.test_accuracy) scalar("epoch/test_accuracy", *e.test_accuracy);
  }
  void put(const RunEnded& e) {
    scalar("run/seconds_per_step", e.seconds_per_step);
    scalar("run/peak_memory_bytes", static_cast<double>(e.peak_memory_bytes));
  }
  void put(const Message&) {
  }  // TensorBoard's text needs a plugin's format; the other sinks have it
  void put(const SkipExplained&) {}
  void put(const PrecisionAdvised&) {}
  void put(const PrecisionCompared&) {}
  void put(const StepWatched& e) {
    for (const Watched& row : e.rows) {
      const bool of_module = row.parameter.empty();
      const std::string& name = of_module ? row.module : row.parameter;
      const std::string kind = of_module ? "module_" : "";
      put(e.step, kind + "weights", name, row.weights);
      put(e.step, kind + "gradients", name, row.gradients);
      put(e.step, kind + "updates", name, row.updates);
      if (row.updates.count > 0)
        append(scalar_event(now(), e.step, kind + "update_ratio/" + name,
                            static_cast<float>(row.update_ratio)));
    }
  }
  void put(std::int64_t step, const std::string& what, const std::string& name,
           const Magnitudes& m) {
    if (m.count == 0) return;
    const auto figure = [&](const char* kind, double value) {
      append(scalar_event(now(), step, what + '_' + kind + '/' + name, static_cast<float>(value)));
    };
    figure("norm", m.norm);
    figure("largest", m.largest);
    figure("smallest", m.smallest);
    figure("zeros", m.zeros);
    figure("subnormals", m.subnormals);
    figure("saturated", m.saturated);
    if (!m.exponents.empty()) append(histogram_event(now(), step, what + '/' + name, m));
  }

  void scalar(std::string_view tag, double value) {
    append(scalar_event(now(), step_, tag, static_cast<float>(value)));
  }

  void append(const std::string& message) {
    out_ << framed(message) << std::flush;
    if (!out_) raise("report", "cannot write '", file_.string(), "'");
  }

  std::filesystem::path folder_, file_;
  std::map<std::string, int> runs_;  // how often each name began
  std::ofstream out_;
  std::int64_t step_ = 0;
};

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc32c_table();
  std::uint32_t value = 0xffffffffU;
  for (const char c : data)
    value = (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(c)) & 0xff];
  return ~value;
}

std::string framed(std::string_view message) {
  // The checksum of a checksum would be weak: the format rotates it and adds a constant.
  const auto masked = [](std::string_view data) {
    return std::rotr(crc32c(data), 15) + 0xa282ead8U;
  };
  std::string record;
  append_bytes(record, static_cast<std::uint64_t>(message.size()));
  append_bytes(record, masked(record));
  record += message;
  append_bytes(record, masked(message));
  return record;
}

std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float number) {
  std::string value;
  append_text(value, 1, tag);  // Summary.Value.tag
  append_key(value, 2, 5);     // Summary.Value.simple_value, a float
  append_bytes(value, number);
  return event_of(wall_time, step, value);
}

// tensorflow.HistogramProto: min, max, num, sum, sum_squares, bucket_limit, bucket.
std::string histogram_event(double wall_time, std::int64_t step, std::string_view tag,
                            const Magnitudes& m) {
  std::vector<double> limits, counts;
  double number = 0, sum = 0, squares = 0;
  for (std::size_t i = 0; i < m.exponents.size(); ++i) {
    const double exponent = m.first_exponent + static_cast<double>(i);
    const auto count = static_cast<double>(m.exponents[i]);
    limits.push_back(exponent + 1);
    counts.push_back(count);
    number += count;
    sum += count * exponent;
    squares += count * exponent * exponent;
  }
  std::string histogram;
  append_double(histogram, 1, m.first_exponent);
  append_double(histogram, 2, limits.back());
  append_double(histogram, 3, number);
  append_double(histogram, 4, sum);
  append_double(histogram, 5, squares);
  append_doubles(histogram, 6, limits);
  append_doubles(histogram, 7, counts);
  std::string value;
  append_text(value, 1, tag);        // Summary.Value.tag
  append_text(value, 5, histogram);  // Summary.Value.histo
  return event_of(wall_time, step, value);
}

std::unique_ptr<Sink> tensorboard(const std::filesystem::path& folder) {
  return std::make_unique<TensorBoard>(folder);
}

}  // namespace mezzo::report
