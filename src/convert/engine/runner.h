// Engines, which run models: an engine opens model files as sessions. The judges of a conversion
// are engines.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/engine/samples.h"
#include "convert/graph/graph.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

struct Rounding;

/// A model that an engine has loaded.
class LoadedModel {
 public:
  virtual ~LoadedModel();
  /// Runs once. Inputs of another floating type than the model's are converted. Only dense tensors
  /// come back; sequences leave an empty array.
  virtual std::vector<Array> run(const Sample& sample) const = 0;
  virtual const std::vector<std::string>& inputs() const = 0;
  virtual const std::vector<std::string>& outputs() const = 0;
};

/// Opens models. Throws Error with the reason if it refuses one, UnsupportedError if a model
/// is beyond it.
class Engine {
 public:
  virtual ~Engine();
  /// "ONNX Runtime 1.31.1", for messages.
  virtual std::string name() const = 0;
  /// Is every 16-bit value of a model rounded where it is made? Otherwise models of ours stand in
  /// for it (emulate.cpp).
  virtual bool rounds_every_value() const = 0;
  /// `optimise`: as users run it; without, every Cast stays.
  virtual std::unique_ptr<LoadedModel> open(const std::filesystem::path& model,
                                            bool optimise) const = 0;
  /// Ranges of float32 values over the samples. `graph` is that of the document; the engine may
  /// change the document's messages and write to `scratch`.
  virtual ValueRanges ranges(Document&, const Graph& graph, const std::vector<Sample>&,
                             const std::filesystem::path& scratch) const = 0;
  /// The error that each rounded node adds by itself over the samples, worst first.
  /// Nothing if the engine sees no single nodes.
  virtual std::vector<LocalError> local_errors(Document&, const Graph&, const Rounding&,
                                               const std::vector<Sample>&) const;
};

/// The largest finite magnitude of an array.
double largest_magnitude(const Array&);

}  // namespace mezzo::convert
