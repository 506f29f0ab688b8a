// One operator call in full: what it was given, what it made of it, and which operator inside it
// went wrong first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "insight/module_paths.h"
#include "insight/tensor_range.h"

namespace mezzo::insight {

/// An operator inside another one.
struct InnerCall {
  std::string name;
  std::vector<TensorRange> inputs;
  std::vector<double> scalars;
  TensorRange output;
};

class CloseUp {
 public:
  /// `reads_fill`: infinities among the inputs count as finite.
  CloseUp(const ModulePaths& paths, bool reads_fill) : paths_(paths), reads_fill_(reads_fill) {}

  /// `is_node`: what inner calls read from elsewhere counts as input too.
  void begin(const std::vector<at::Tensor>& inputs, const std::vector<double>& scalars,
             std::string name, bool is_node);
  /// `writes`: it changes some of its inputs; else a result in their memory is a view.
  void begin_inner(std::string name, const std::vector<at::Tensor>& inputs,
                   std::vector<double> scalars, bool writes);
  void end_inner(const std::vector<at::Tensor>& results);
  /// Takes the results of the call, or of the node.
  void end(const std::vector<at::Tensor>& results);

  const std::vector<TensorRange>& inputs() const noexcept { return inputs_; }
  const TensorRange& output() const noexcept { return output_; }
  /// The call itself.
  const InnerCall& whole() const noexcept { return whole_; }
  /// The first operator inside that went wrong on finite inputs; the call itself if none did.
  const InnerCall& culprit() const noexcept { return culprit_ ? *culprit_ : whole_; }

 private:
  struct Open {
    InnerCall call;
    bool finite = true;
    bool writes = false;
    bool copies_raw = false;  // values of raw memory, and of nothing else
  };
  TensorRange describe(const at::Tensor& tensor) const;
  bool is_bad(Finiteness values) const { return values.nan || (values.inf && !reads_fill_); }
  bool take_output(const std::vector<at::Tensor>& results, TensorRange& into) const;

  const ModulePaths& paths_;
  bool reads_fill_;
  bool is_node_ = false;
  std::vector<TensorRange> inputs_;
  TensorRange output_;
  InnerCall whole_;
  std::optional<InnerCall> culprit_;
  std::vector<Open> open_;
  std::unordered_set<const c10::StorageImpl*> known_;  // inputs, and results of inner calls
  std::unordered_set<const c10::StorageImpl*> raw_;    // memory that nothing was written to yet
  std::vector<at::Tensor> keeps_;
};

/// Does an operator give memory whose values are accidental?
bool gives_raw_memory(std::string_view name);

}  // namespace mezzo::insight
