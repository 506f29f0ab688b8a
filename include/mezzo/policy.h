// Which operators run in 16 bits, which in float32, and why.
#pragma once

#include <c10/core/ScalarType.h>

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/cast_class.h"
#include "mezzo/export.h"

namespace mezzo {

class CompiledPolicy;

/// The class of every operator for one 16-bit type. An immutable value: `with` gives a changed
/// copy, copies are cheap and may be used by several threads.
///
/// An operator's name is that of an overload ("softmax.int"; "conv2d.default" for the one without a
/// name), a base name that means all overloads ("softmax"), either with "aten::" in front, a name
/// of Apex ("torch.nn.functional.linear", "F.linear") or of MXNet ("FullyConnected"), or an
/// operator of another namespace that the dispatcher knows ("torchvision::nms"). The bare name of a
/// function of torch::nn::functional means what that calls: "linear" is "F.linear", that is addmm,
/// matmul and linear, of which torch::nn::Linear calls the first two; "aten::linear" is the
/// operator alone. Else a dispatcher name wins over an equal alias. Unknown names are a ConfigError
/// that lists the nearest ones. Names of MXNet operators that have no ATen operator (optimizers,
/// image input) are accepted and decide about nothing.
///
/// In-place operators keep the type of their first argument, and the others follow it; out=
/// operators keep the type of the given tensor. They have no class of their own.
class MEZZO_API Policy {
 public:
  /// The default lists: the union of Apex's and MXNet's, checked against LibTorch's own.
  /// @param low at::kHalf or at::kBFloat16; anything else is a ConfigError.
  static Policy defaults(at::ScalarType low = at::kHalf);

  /// The 16-bit type of kLow.
  at::ScalarType low() const noexcept;

  /// This policy with an operator in another class. If two names mean the same operator, the
  /// narrower one decides, whatever their order ("softmax.int" over "softmax"); one operator put
  /// into two classes by equally wide names is a ConfigError, as is kConditional.
  Policy with(std::string_view op, CastClass) const;

  /// This policy with an operator that runs in float32 where `argument` has one of `values`, and is
  /// left alone otherwise. Arguments that a call leaves out have their defaults. Values are text:
  /// strings as they are, numbers in any notation, "true" and "false", dtypes as "float16", an
  /// empty argument as "none". MXNet's ("Activation", "act_type", {"softrelu"}) puts the ATen
  /// operators behind these values into kFloat. Throws ConfigError for an argument that the
  /// operator does not have or that has no such text (tensors, lists), a value that MXNet's
  /// operator does not have, and no values.
  Policy with_conditional(std::string_view op, std::string_view argument,
                          std::vector<std::string> values) const;

  /// This policy with every operator that it bans in kFloat. The default lists ban nothing.
  Policy without_bans() const;

  /// The class of an operator; operators that LibTorch has and nobody lists are kNeutral (and as
  /// long as no policy says so by name, what they call inside follows its own class). Where a
  /// name means overloads of different classes: that of the overload without a name, else the one
  /// that is not neutral, else kConditional.
  CastClass classify(std::string_view op) const;

  /// The reason in words, never empty, with what Apex, MXNet and LibTorch say. One line for each
  /// overload where the reasons differ.
  std::string why(std::string_view op) const;

  /// Reads the format that docs/policy.md describes. Throws ConfigError "[name] line N: ...".
  static Policy from_toml(std::istream&, std::string_view name = "policy");

  /// Writes the low type and what differs from the defaults by `with` and `with_conditional`, so
  /// that from_toml gives an equal policy.
  void to_toml(std::ostream&) const;

 private:
  struct State;
  explicit Policy(std::shared_ptr<const State>);
  friend const CompiledPolicy& compiled(const Policy&) noexcept;

  std::shared_ptr<const State> state_;
};

/// An operator of MXNet that runs in float32 where `argument` has one of `values`.
struct Conditional {
  std::string op;                   ///< as MXNet names it
  std::string argument;             ///< as MXNet names it
  std::vector<std::string> values;  ///< as text
};

// The default lists for float16 or bfloat16; another type is a ConfigError. If nothing else is
// said, names are overloads as the dispatcher has them, without "aten::", sorted. Operators that a
// program registered are not in them.

/// Operators that run in the low type.
MEZZO_API std::vector<std::string> list_lp16_ops(at::ScalarType target_dtype);
/// Operators that run in float32.
MEZZO_API std::vector<std::string> list_fp32_ops(at::ScalarType target_dtype);
/// Operators that run in whatever type arrives.
MEZZO_API std::vector<std::string> list_lp16_fp32_ops(at::ScalarType target_dtype);
/// Operators whose arguments are cast to the widest type among them.
MEZZO_API std::vector<std::string> list_widest_type_cast(at::ScalarType target_dtype);
/// MXNet's outputs that compute their own loss in the backward pass, by MXNet's names: a loss
/// scale does not reach their gradient. ATen has no such operators.
MEZZO_API std::vector<std::string> list_loss_output_functions(at::ScalarType target_dtype);
/// MXNet's operators that run in float32 for some values of an argument. ATen has an operator for
/// each value, which is in list_fp32_ops.
MEZZO_API std::vector<Conditional> list_conditional_fp32_ops(at::ScalarType target_dtype);
/// Operators of which these arguments stay float32 whatever class they are in. As in MXNet, which
/// has such a list for bfloat16 only; for float16 it is empty.
MEZZO_API std::map<std::string, std::vector<std::string>> list_lp16_use_fp32_params(
    at::ScalarType target_dtype);

}  // namespace mezzo
