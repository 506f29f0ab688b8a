// ONNX Runtime, opened at run time: a judge that was not written by us.
//
// Its shared library (libonnxruntime.so, as the wheel `onnxruntime` or a distribution has it) is
// looked for by name; nothing of it is needed to build. The table of functions only ever grows, so
// that the slots used here keep their place from API 1 on.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/engine/runner.h"

namespace mezzo::convert {

class OrtSession;

/// The opened library. One per process is enough; safe from several threads.
class OrtRuntime {
 public:
  /// Opens the library, `path` (a file, or a folder that has it) or, empty, the one that the system
  /// has; null, with the reason in `why`, if there is none or it is too old.
  static std::shared_ptr<OrtRuntime> open(const std::filesystem::path& path, std::string* why);
  ~OrtRuntime();

  const std::string& version() const;

  struct Impl;
  explicit OrtRuntime(std::unique_ptr<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A loaded model. Throws Error with ONNX Runtime's words where it refuses.
class OrtSession final : public LoadedModel {
 public:
  /// `optimise`: with its graph optimisations, as users run it; without them every Cast stays.
  OrtSession(std::shared_ptr<OrtRuntime> runtime, const std::filesystem::path& model,
             bool optimise);
  ~OrtSession() override;
  OrtSession(const OrtSession&) = delete;
  OrtSession& operator=(const OrtSession&) = delete;

  std::vector<Array> run(const Sample& sample) const override;
  const std::vector<std::string>& inputs() const override { return input_names_; }
  const std::vector<std::string>& outputs() const override { return output_names_; }

 private:
  std::shared_ptr<OrtRuntime> runtime_;
  void* session_ = nullptr;
  std::vector<std::string> input_names_, output_names_;
  std::vector<Element> input_elements_;
};

/// Why ONNX Runtime does not load the model, as users run it; empty: it does. Tried in a copy of
/// this process where one can be made, since it crashes on some valid models.
std::string refusal_of(const std::shared_ptr<OrtRuntime>&, const std::filesystem::path& model);

/// ONNX Runtime as an engine. On a CPU it computes chains of 16-bit operators in float32 and rounds
/// at the end; values inside bodies are not watched.
class OrtEngine final : public Engine {
 public:
  explicit OrtEngine(std::shared_ptr<OrtRuntime> runtime) : runtime_(std::move(runtime)) {}
  std::string name() const override { return "ONNX Runtime " + runtime_->version(); }
  bool rounds_every_value() const override { return false; }
  std::unique_ptr<LoadedModel> open(const std::filesystem::path& model,
                                    bool optimise) const override {
    return std::make_unique<OrtSession>(runtime_, model, optimise);
  }
  ValueRanges ranges(Document&, const Graph&, const std::vector<Sample>&,
                     const std::filesystem::path& scratch) const override;

 private:
  std::shared_ptr<OrtRuntime> runtime_;
};

}  // namespace mezzo::convert
