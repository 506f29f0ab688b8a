// mezzo/deploy_script.h: a mixed-precision TorchScript module from a float one.
//
//   auto net = torch::jit::load("net.pt");
//   mezzo::deploy::ScriptOptions options;
//   options.target_dtype = at::kBFloat16;
//   mezzo::deploy::convert_hybrid_block(net, options).save("net16.pt");
//
// The result holds explicit casts, so that it runs wherever LibTorch runs, from C++ and from
// Python, without Mezzo. The vocabulary is that of MXNet's convert_hybrid_block.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/deploy_trace.h"
#include "mezzo/export.h"
#include "mezzo/policy.h"

namespace mezzo::deploy {

/// The choice of low operators and parameters, and how the result is stored.
///
/// Names of operators are those of Policy. A given list replaces the default list of its class, and
/// its entries "+op" and "-op" edit the default list instead. Operators that leave a list run in
/// the type that arrives. Operators without a 16-bit kernel stay float whatever the lists say.
struct ScriptOptions {
  /// at::kHalf or at::kBFloat16.
  at::ScalarType target_dtype = at::kHalf;
  /// Operators that run in the low type, and operators that run in float. An operator on both lists
  /// is a ConfigError, unless one of the two names is narrower: that one decides then.
  std::optional<std::vector<std::string>> target_dtype_ops = {}, fp32_ops = {};
  /// Operators that run in float where an argument has one of the values, as for
  /// Policy::with_conditional(). Default arguments count. Elsewhere they run in the type that
  /// arrives, or in the low type if `target_dtype_ops` names them, too.
  std::optional<std::vector<Conditional>> conditional_fp32_ops = {};
  /// Modules that stay float with everything inside, and parameters whose readers stay float: a
  /// path ("encoder.layers.0", "head.weight"), a glob, or /regex/. An unknown name is a
  /// ConfigError.
  std::vector<std::string> excluded_sym_names = {};
  /// true: weights that only low operators read are stored low. false: they stay float and are
  /// cast. Freezing makes constants of both.
  bool cast_optional_params = false;
  /// Batch normalizations of evaluation become part of the convolution before them.
  bool fold_batch_norm = false;
  /// The result has no parameters or branches on them any more, and LibTorch's passes for inference
  /// can be applied. Only forward() is kept.
  bool freeze = true;
  /// The result's device. Empty: that of the module.
  std::optional<at::Device> device = {};
  /// Inputs on which result and module are compared before the result is returned. Outputs that
  /// differ by more than `check_tolerance` of the output's range, or are not finite where the
  /// module's are, are an Error. They also give the types of the inputs.
  std::optional<Examples> check_with = {};
  /// The tolerance of `check_with`. Empty: 0.05 for float16, 0.2 for bfloat16.
  std::optional<double> check_tolerance = {};
  /// For a traced network: sizes that may change, by input and dimension, as in TraceOptions.
  DynamicAxes dynamic_axes = {};
};

/// The calls of one operator that were treated alike, and why.
struct ScriptOperator {
  std::string op;          ///< with its overload: "aten::softmax.int"
  std::string cast_class;  ///< "low", "float", "promote", "neutral"
  std::string why;
  std::int64_t calls = 0;
  std::vector<std::string> modules =
      {};  ///< the paths of the modules that call it, without doubles
};

/// The outcome of a conversion.
struct MEZZO_API ScriptReport {
  std::string target_dtype;
  /// Casts in the result before it is frozen, those of them that look at the type at run time, and
  /// those of weights.
  std::int64_t casts = 0, guarded_casts = 0, weight_casts = 0;
  std::int64_t low_calls = 0, float_calls = 0, promote_calls = 0, neutral_calls = 0;
  std::int64_t weights = 0, low_weights = 0;  ///< tensors of the module; those stored low
  std::int64_t bytes_before = 0, bytes_after = 0;
  std::int64_t folded_batch_norms = 0;
  /// Largest error of an output on `check_with`, relative to the output's range.
  std::optional<double> error = {};
  std::vector<ScriptOperator> operators = {};
  std::vector<std::string> warnings = {};

  /// For a terminal, and for programs.
  std::string to_text() const;
  std::string to_json() const;
};

/// Copies a TorchScript module in mixed precision. Branches, loops, lists, dictionaries, submodules
/// and functions of the module are followed; inputs and outputs keep their types. A value whose
/// type nothing shows is cast by its type at run time, so that integers stay integers. The copy is
/// in evaluation mode; `module` keeps its mode, its parameters and its buffers. `report` is filled
/// in if given. Throws ConfigError for options that cannot be, UnsupportedError for a module whose
/// training mode is part of its trace, and for one without forward().
MEZZO_API torch::jit::Module convert_hybrid_block(const torch::jit::Module& module,
                                                  const ScriptOptions& options = {},
                                                  ScriptReport* report = nullptr);

}  // namespace mezzo::deploy

namespace mezzo::deploy::detail {

/// convert_hybrid_block() of a network behind its template.
MEZZO_API torch::jit::Module convert_call(const NetworkCall& call, const Examples& examples,
                                          const ScriptOptions& options, ScriptReport* report);

}  // namespace mezzo::deploy::detail

namespace mezzo::deploy {

/// Traces a network, anything that trace() takes, in evaluation mode on the examples, along
/// `options.dynamic_axes` for other sizes, and converts the trace. An amp::Model gives its float
/// masters. The network stays as it is. Throws what trace() and the other overload throw.
template <Traceable Net>
torch::jit::Module convert_hybrid_block(Net net, const Examples& examples,
                                        const ScriptOptions& options = {},
                                        ScriptReport* report = nullptr) {
  return detail::convert_call(detail::network_call(std::move(net)), examples, options, report);
}

/// Converts a TorchScript file to another one, which appears whole or not at all. The errors of
/// convert_hybrid_block(), and Error if a file cannot be read or written.
MEZZO_API ScriptReport convert_script(const std::filesystem::path& in,
                                      const std::filesystem::path& out,
                                      const ScriptOptions& options = {});

}  // namespace mezzo::deploy
