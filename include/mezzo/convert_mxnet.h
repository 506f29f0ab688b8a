// mezzo/convert_mxnet.h: MXNet's model files, in mixed precision for MXNet or as ONNX.
//
//   namespace mx = mezzo::convert::mxnet;
//   const mx::Checkpoint net = mx::load_checkpoint("resnet18", 0);
//   mx::save_checkpoint("resnet18-amp", 0, mx::convert_model(net), /*remove_amp_cast=*/false);
//
//   mx::to_onnx(net, "resnet18.onnx");
//
// Reads what MXNet 0.8 to 2.x wrote, and writes what 1.5 and later read, or ONNX. Needs neither
// MXNet nor LibTorch. Objects are plain values, and functions may be called from several threads at
// once; what a caller passes is never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/convert.h"
#include "mezzo/export.h"

namespace mezzo::convert::mxnet {

class Symbol;

/// One output of a node: the node's place in Symbol::nodes(), and which of its outputs. The version
/// counts in-place writes; MXNet keeps it, and nothing here reads it.
struct Entry {
  std::uint32_t node = 0, output = 0, version = 0;
  bool operator==(const Entry&) const = default;
};

/// A variable (`op` is "null") or an operator with its inputs. Attributes are texts, as MXNet has
/// them: {"kernel", "(3, 3)"}.
struct Node {
  std::string op, name;
  std::map<std::string, std::string> attrs = {};
  std::vector<Entry> inputs = {};
  std::vector<std::uint32_t> control_deps = {};               ///< nodes that must run before
  std::vector<std::shared_ptr<const Symbol>> subgraphs = {};  ///< bodies of loops and branches
  std::uint32_t outputs = 1;                                  ///< how many it has, hidden ones too

  /// Data, a parameter or a statistic: a node that computes nothing.
  bool is_variable() const { return op == "null"; }
  /// The attribute's text; nothing if it is not written.
  std::optional<std::string_view> attr(std::string_view key) const;
};

/// A graph: nodes, each behind those that it reads, and the entries that are its results.
class MEZZO_API Symbol {
 public:
  /// Throws ConfigError if a node reads one that is not before it, or an output that there is
  /// not.
  Symbol(std::vector<Node> nodes, std::vector<Entry> heads);
  Symbol() = default;

  /// Reads the text of a `-symbol.json`. Files of older releases are brought up to date: renamed
  /// attributes, statistics that were left out. Throws Error if it is no such text, or is
  /// damaged; `origin` is what the message calls it.
  static Symbol from_json(std::string_view text, const std::string& origin = "symbol");
  /// Reads the file. Throws Error as above.
  static Symbol load(const std::filesystem::path& file);
  /// The text as MXNet writes it, UTF-8 without escapes by number, which MXNet does not read.
  std::string to_json() const;
  /// Writes the file, whole or not at all.
  void save(const std::filesystem::path& file) const;

  /// All nodes, variables included, each behind the ones that it reads.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// The results of the graph, in order.
  const std::vector<Entry>& heads() const { return heads_; }
  /// The release that wrote the file, as major * 10000 + minor * 100 + patch.
  std::int64_t mxnet_version() const { return version_; }
  /// Was it made in numpy mode, as all graphs of 2.x are?
  bool has_numpy_shapes() const { return np_shape_.value_or(0) != 0; }
  /// Names of all variables, in order: data, parameters and statistics.
  std::vector<std::string> list_inputs() const;
  /// The subset that operators update: statistics of batch normalization.
  std::vector<std::string> list_auxiliary_states() const;

  /// The same graph without amp_cast and amp_multicast; one that is itself a result stays, as in
  /// MXNet.
  Symbol without_amp_casts() const;
  /// Another graph, said to be of the same release. Throws as the constructor does.
  Symbol with_graph(std::vector<Node> nodes, std::vector<Entry> heads) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Entry> heads_;
  std::int64_t version_ = 10901;
  std::optional<std::int64_t> np_shape_;
};

/// Named dense arrays, in the order in which they were added. Copies share the bytes.
class MEZZO_API NDArrays {
 public:
  /// Reads a `.params` file of any release, or the .npz that 2.x writes; sparse arrays become
  /// dense. Names keep their "arg:" and "aux:". Throws Error if it is no such file, or is
  /// damaged, UnsupportedError if a sparse array would take more than 2 GB.
  static NDArrays load(const std::filesystem::path& file);
  /// The same from memory; `origin` is what messages call it.
  static NDArrays from_bytes(std::string_view bytes, const std::string& origin = "params");
  /// Writes a `.params` file that MXNet 1.x and 2.x read, whole or not at all. MXNet reads one with
  /// `numpy_shapes` in numpy mode only, and no other one there.
  void save(const std::filesystem::path& file, bool numpy_shapes = false) const;

  /// In the order of the file.
  std::vector<std::string> names() const;
  /// The number of arrays.
  std::size_t size() const { return arrays_.size(); }
  /// Whether there is an array of this name.
  bool contains(std::string_view name) const;
  /// "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "bool",
  /// "int16", "uint16", "uint32", "uint64". This and the next two throw ConfigError for a name that
  /// there is not.
  const std::string& dtype(std::string_view name) const;
  /// The sizes of the array's dimensions.
  const std::vector<std::int64_t>& shape(std::string_view name) const;
  /// Row by row, little-endian. Valid while the array is in this object or a copy of it.
  std::string_view bytes(std::string_view name) const;

  /// Adds an array, or replaces it. Throws ConfigError if the bytes are not as many as the shape
  /// needs, or the dtype is none of the above.
  void set(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
           std::string bytes);
  /// The array's values in another floating type, rounded to nearest even; no effect if it has
  /// that type, or is not float32, float16 or bfloat16. Overflow gives infinity.
  void cast(std::string_view name, const std::string& dtype);

 private:
  struct Stored {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::shared_ptr<const std::string> bytes;
  };
  const Stored& stored(std::string_view name) const;

  std::vector<Stored> arrays_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

/// A graph with its parameters and its statistics, by the names of its variables. Functions that
/// take one throw Error, which names node and parameter, where the two do not belong together: for
/// attributes that MXNet cannot read, inputs that an operator lacks, two variables of one name, and
/// parameters that are missing, or of another shape or type than their operator takes. Operators
/// that nobody knows are kept, and are messages to the sink of mezzo/messages.h, as parameters are
/// that the graph lacks.
struct Checkpoint {
  Symbol symbol;
  NDArrays arg_params, aux_params;
};

/// Reads `PREFIX-symbol.json` and `PREFIX-0000.params`, four digits of the epoch. Throws Error
/// if one cannot be read, or the two do not belong together; it names both.
MEZZO_API Checkpoint load_checkpoint(const std::string& prefix, int epoch);
/// The same from files of any names. Parameters without "arg:" or "aux:", as Gluon saves them, are
/// told apart by the graph.
MEZZO_API Checkpoint load_checkpoint(const std::filesystem::path& symbol,
                                     const std::filesystem::path& params);
/// Writes `PREFIX-symbol.json` and `PREFIX-0000.params`. Without casts, MXNet's own default,
/// parameters that were stored in 16 bits become float32 again: MXNet leaves them, and cannot run
/// the pair.
MEZZO_API void save_checkpoint(const std::string& prefix, int epoch, const Checkpoint& checkpoint,
                               bool remove_amp_cast = true);

/// The model and how to convert it; MXNet's arguments under MXNet's names.
struct Options {
  /// "float16" or "bfloat16". The default lists differ.
  std::string target_dtype = "float16";
  /// Operators, by MXNet's names, that run in the target type, and in float32. A given list
  /// replaces the default one; entries "+Op" and "-Op" edit it instead.
  std::optional<std::vector<std::string>> target_dtype_ops = {}, fp32_ops = {};
  /// Operators that stay float32 where an attribute (or, left out, its default) has one of the
  /// values. Replaces the default.
  std::optional<std::vector<Conditional>> conditional_fp32_ops = {};
  /// Nodes, by name, that stay float32, as nodes do that were made under 2.x's disable_amp(). A
  /// name that there is not is a message to the sink of mezzo/messages.h.
  std::vector<std::string> excluded_sym_names = {};
  /// false: parameters of operators that the lists force stay float32 behind amp_casts. true: those
  /// that are only ever read in 16 bits are stored that way.
  bool cast_optional_params = false;
};

/// The graph with amp_cast and amp_multicast where types change, results in float32. `data_names`
/// are inputs that are data: never stored in 16 bits; none given: every variable without
/// "__dtype__". Throws ConfigError, in MXNet's order and words, for options that cannot be. MXNet's
/// own faults are not copied: docs/migrating_from_mxnet.md lists them.
MEZZO_API Symbol convert_symbol(const Symbol& symbol, const Options& options = {},
                                const std::vector<std::string>& data_names = {});

/// As above, with parameters, rounded where the graph wants them in 16 bits. Each parameter's
/// variable says its type ("__dtype__").
MEZZO_API Checkpoint convert_model(const Checkpoint& checkpoint, const Options& options = {});

/// The graphs of a BucketingModule, by bucket, and the parameters that they share.
struct Bucketing {
  std::map<std::string, Symbol> buckets;
  NDArrays arg_params, aux_params;
};

/// Converts all graphs. A parameter is stored in 16 bits where every bucket that has it wants that,
/// so that they still share it. Throws ConfigError if there is no bucket, or no parameter.
MEZZO_API Bucketing convert_bucketing_module(const Bucketing& module, const Options& options = {});

/// Shapes of data, by the names of their variables; 0 is a size that changes from run to run.
using InputShapes = std::map<std::string, std::vector<std::int64_t>>;

/// Writes the model as ONNX: float32 with `options.target_dtype` "float32", of opset 17, else in
/// mixed precision as convert::convert_model() makes it, whose options mean the same, but for opset
/// "keep": MXNet's files have none, and the lowest from 17 on is taken in which most goes low, 22
/// where convolutions are to run in bfloat16. Names of nodes are MXNet's, of operators ONNX's.
/// Inputs are the variables without parameters; labels, which only output operators read, are left
/// out, and those operators give what they give in use. Batches and sizes of images change from run
/// to run unless `input_shapes` says otherwise, which also helps where a graph does not say how
/// many dimensions its data has. Casts and 16-bit parameters of a converted checkpoint are undone
/// first. Throws UnsupportedError for an operator that has no translation, naming it and its node,
/// ConfigError for options and shapes that cannot be; `out` appears whole or not at all.
MEZZO_API Result to_onnx(const Checkpoint& checkpoint, const std::filesystem::path& out,
                         const convert::Options& options = {},
                         const InputShapes& input_shapes = {});

/// The operators of MXNet that to_onnx() translates, sorted.
MEZZO_API std::vector<std::string> list_onnx_ops();

}  // namespace mezzo::convert::mxnet
