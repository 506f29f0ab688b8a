// The table of operators: which overload runs in which class, why, and who says so. Dispatcher,
// policies, command line, docs and tests read this one table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/raise.h"
#include "mezzo/cast_class.h"

namespace mezzo {

/// How kFloat is carried out.
enum class FloatBy : std::uint8_t {
  kCast,           ///< the arguments are cast
  kDtypeArgument,  ///< the operator's empty `dtype` argument is set to float32, arguments stay; a
                   ///< dtype that the caller gave is respected
  kAppendDtype,    ///< the same, by calling the overload that has a dtype argument (`norm`)
};

/// The systems whose lists were merged.
enum class System : std::uint8_t { kApex, kMxnet, kCuda, kCpu };
inline constexpr std::size_t kSystemCount = 4;
inline constexpr std::array<System, kSystemCount> kSystems{System::kApex, System::kMxnet,
                                                           System::kCuda, System::kCpu};

/// One overload of the dispatcher's namespace aten, in its functional form. In-place and out=
/// forms follow from it by rule, see find().
struct Operator {
  std::string_view name;  ///< as the dispatcher has it, "softmax.int", without "aten::"
  std::array<CastClass, kLowTypeCount> classes;  ///< by the columns of the low types
  FloatBy float_by = FloatBy::kCast;
  bool matrix = false;  ///< products and sums of products: slow on processors without arithmetic of
                        ///< the low type, so that they are emulated there
  bool native_promotion = false;  ///< LibTorch's own type promotion already does kPromote
  bool alone = false;             ///< neutral, and so is what it calls inside
  bool input_only = false;  ///< only the first argument is ever cast: the others are parameters,
                            ///< and statistics that the operator updates
  bool lacks_low = false;   ///< LibTorch has no 16-bit kernel for processors, of the operator, of
                            ///< its backward pass, or for some values of its arguments
  bool one_type = false;    ///< LibTorch throws if its floating arguments differ in type
  bool float_statistics = false;    ///< a norm: mean and variance are taken in float at every level
  bool updates_statistics = false;  ///< a norm with running statistics, written in place though no
                                    ///< schema says so
  bool guards_scalars = false;      ///< its scalars and 0-dimensional tensors take the type of the
                                ///< other arguments: where that cannot hold them it runs in float
  bool sums = false;  ///< it, or its derivative, adds up values in the type of its tensors, where a
                      ///< sum stops growing: such a call runs in float and rounds once
  bool sums_gradients = false;  ///< its derivative adds up gradients in the type that they come in:
                                ///< they reach it in float
  std::array<bool, kLowTypeCount> steep{};  ///< by the columns of the low types: its derivative
                                            ///< leaves the type where its value does not, so that
                                            ///< it runs in float at every level
  std::array<std::optional<CastClass>, kSystemCount>
      listed{};          ///< what each System says, if at all
  std::string_view why;  ///< one clause

  /// The class for that low type. Another type is a ConfigError.
  constexpr CastClass class_for(DType low) const {
    const auto column = row_of(low).low_column;
    if (column < 0) {
      raise<ConfigError>("operators", name, " has no class for ", row_of(low).name,
                         ", which is no low type");
    }
    return classes[static_cast<std::size_t>(column)];
  }
  constexpr bool is_steep_for(DType low) const noexcept {
    return steep[static_cast<std::size_t>(row_of(low).low_column)];
  }
  constexpr bool is_steep() const noexcept {
    for (const bool each : steep) {
      if (each) return true;
    }
    return false;
  }
  /// Is the class the same for every low type?
  constexpr bool same_for_all() const noexcept {
    for (const CastClass each : classes) {
      if (each != classes.front()) return false;
    }
    return true;
  }
  constexpr const std::optional<CastClass>& listed_by(System system) const noexcept {
    return listed[static_cast<std::size_t>(system)];
  }
  /// The part of the name before the overload's: "softmax".
  constexpr std::string_view base() const noexcept { return name.substr(0, name.find('.')); }
};

/// All rows, sorted by name; indices are stable within one build.
std::span<const Operator> operators() noexcept;

/// The row of exactly this overload, without "aten::"; nothing if there is none.
std::optional<std::size_t> index_of(std::string_view name) noexcept;

/// The three forms of an operator.
enum class Form : std::uint8_t {
  kFunctional,  ///< a new result: the row's class holds as it stands
  kInPlace,     ///< `add_`: the result keeps self's type, the other arguments are cast to it
  kOut,         ///< `mm.out`: the result keeps the given tensor's type, nothing is cast
};

/// An overload's row and form.
struct Found {
  std::size_t row;
  Form form;
};

/// The row that decides about an overload in any form: "addmm_" is decided by "addmm", "mm.out" by
/// "mm". An out= overload whose functional row its name does not give ("add.out") gets the first
/// row of its base name. Nothing if the table does not know the operator.
std::optional<Found> find(std::string_view overload) noexcept;

/// All rows that a name means: an overload ("softmax.int"), "conv2d.default" for the overload
/// without a name, a base name ("softmax": all its overloads), any of them with "aten::" in front,
/// a name of Apex ("torch.nn.functional.linear", "F.linear", "Tensor.__matmul__"), or of MXNet
/// ("FullyConnected"). The bare name of a function of torch::nn::functional means what that calls
/// in C++: "linear" is "F.linear" (addmm, matmul and linear), "aten::linear" and "linear.default"
/// are the operator alone. Else a dispatcher name wins over an equal alias. Empty: unknown.
std::vector<std::size_t> resolve(std::string_view name);

/// Is this the name of an MXNet or Apex operator that exists, but has no ATen operator that could
/// be cast (image input, optimizers, creation of tensors)? Such a name resolves to nothing.
bool is_foreign(std::string_view name) noexcept;

/// The names of Apex and MXNet under which a row can be addressed, sorted.
std::vector<std::string_view> aliases_of(std::size_t row);

/// Every name that resolve() knows, for "did you mean".
std::vector<std::string_view> known_names();

/// MXNet's conditional operators: where `argument` has one of `values`, the operator runs in
/// float32. ATen has an operator of its own for each value, so that these are names for rows.
struct ConditionalAlias {
  std::string_view name;       ///< "Activation"
  std::string_view argument;   ///< "act_type"
  std::string_view value;      ///< "softrelu"
  std::string_view operators;  ///< base names, separated by spaces: "softplus"
};
std::span<const ConditionalAlias> conditional_aliases() noexcept;

/// "low", "float", "promote", "conditional", "banned", "neutral": as the command line and policy
/// files write them.
std::string_view name_of(CastClass) noexcept;
std::optional<CastClass> parse_cast_class(std::string_view name) noexcept;

/// "apex", "mxnet", "cuda", "cpu".
std::string_view name_of(System) noexcept;
std::optional<System> parse_system(std::string_view name) noexcept;

/// The systems that agree with the row, and those that do not: "as in Apex, LibTorch for CUDA;
/// unlike MXNet: promote". Empty if nobody lists the operator.
std::string opinions(const Operator&, DType low);

}  // namespace mezzo
