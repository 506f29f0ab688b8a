// ONNX models that other parts of Mezzo make: plain data, which becomes a checked file, and a run
// of such a file. The exporter of LibTorch's networks needs no more of the converter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "convert/engine/samples.h"
#include "convert/onnx/array.h"
#include "mezzo/export.h"

namespace mezzo::convert {

/// A tensor whose bytes are the maker's.
struct MadeTensor {
  std::string name;
  Element element = Element::kFloat;
  std::vector<std::int64_t> dims;
  std::string_view bytes;             // row-major, little endian
  std::shared_ptr<const void> owner;  // keeps them alive
};

struct MadeGraph;
using MadeAttribute =
    std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                 MadeTensor, std::shared_ptr<MadeGraph>, std::vector<std::string>>;

/// An operator. Names of values that are left out are empty.
struct MadeNode {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, MadeAttribute> attributes;
};

/// An input or output of a graph. A dimension is a size or a name; without `has_dims` nothing is
/// said of the shape, and without an element (kUndefined), as bodies may, nothing of the type.
struct MadeValue {
  std::string name;
  Element element = Element::kFloat;
  bool has_dims = true;
  std::vector<std::variant<std::int64_t, std::string>> dims;
};

struct MadeGraph {
  std::string name = "graph";
  std::vector<MadeNode> nodes;
  std::vector<MadeTensor> initializers;
  std::vector<MadeValue> inputs, outputs;
};

struct MadeModel {
  MadeGraph graph;
  std::map<std::string, std::int64_t> opsets;  // by domain; "" is the standard's
  std::string producer_version;
};

/// Adds casts where an operator does not take an operand's type, makes batch normalizations part of
/// the products before them, writes the model to `out`, and reads it again for the strict checker,
/// whose findings are an Error. `external`: weights go to a file beside it, as they do by
/// themselves above 2 GB. The caller gives a place where nothing is lost if this fails. Returns the
/// number of nodes in the file, bodies included.
MEZZO_API int store_made(MadeModel& model, const std::filesystem::path& out, bool external);

/// The outputs of a model, one list a sample, and who computed them.
struct MadeRun {
  std::string judge;
  std::vector<std::vector<Array>> outputs;
};

/// Runs a model file: by ONNX Runtime, which is looked for as the converter does, or, if there is
/// none or it has no kernel for the types of an operator, the built-in evaluator. Throws
/// UnsupportedError if there is neither.
MEZZO_API MadeRun run_made(const std::filesystem::path& model, const std::vector<Sample>& samples,
                           const std::filesystem::path& evaluator,
                           const std::filesystem::path& onnxruntime);

}  // namespace mezzo::convert
