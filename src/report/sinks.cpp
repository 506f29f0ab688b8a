#include <exception>
#include <fstream>
#include <utility>

#include "core/raise.h"
#include "mezzo/report.h"
#include "report/event_json.h"

namespace mezzo::report {

namespace {

class JsonLines final : public Sink {
 public:
  explicit JsonLines(const std::filesystem::path& file)
      : file_(file), out_(file, std::ios::binary) {
    if (!out_) raise("report", "cannot write '", file.string(), "'");
  }
  void write(const Event& event) override {
    out_ << to_text(to_json_object(event)) << '\n' << std::flush;
    if (!out_) raise("report", "cannot write '", file_.string(), "': the disk may be full");
  }

 private:
  std::filesystem::path file_;
  std::ofstream out_;
};

class Page final : public Sink {
 public:
  explicit Page(std::filesystem::path file) : file_(std::move(file)) {
    if (file_.extension() != ".html") {
      raise<ConfigError>("report", "expected a file that ends in .html, got '", file_.string(),
                         "'");
    }
  }
  void write(const Event& event) override {
    add(report_, event);
    // A page that cannot be written is an error at the start, and a crash leaves one to look at.
    const bool is_milestone = std::holds_alternative<RunStarted>(event) ||
                              std::holds_alternative<EpochEnded>(event) ||
                              std::holds_alternative<RunEnded>(event);
    if (is_milestone) save(report_, file_);
  }

 private:
  std::filesystem::path file_;
  Report report_;
};

class Tee final : public Sink {
 public:
  explicit Tee(std::vector<std::unique_ptr<Sink>> sinks) : sinks_(std::move(sinks)) {}
  void write(const Event& event) override {
    std::exception_ptr first;
    for (const auto& sink : sinks_) {
      try {
        sink->write(event);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace

Sink::~Sink() = default;

std::unique_ptr<Sink> json_lines(const std::filesystem::path& file) {
  return std::make_unique<JsonLines>(file);
}

std::unique_ptr<Sink> html(const std::filesystem::path& file) {
  return std::make_unique<Page>(file);
}

std::unique_ptr<Sink> tee(std::vector<std::unique_ptr<Sink>> sinks) {
  return std::make_unique<Tee>(std::move(sinks));
}

}  // namespace mezzo::report
