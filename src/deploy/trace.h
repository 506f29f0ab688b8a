// A trace with everything that further steps need.
#pragma once

#include <string>
#include <vector>

#include "deploy/examples.h"
#include "mezzo/deploy_trace.h"

namespace mezzo::deploy {

/// A traced module, and inputs at which the network and it were compared.
struct Traced {
  torch::jit::Module module;        // the record
  torch::jit::Module to_run;        // the same for LibTorch's executor
  std::vector<c10::IValue> inputs;  // without what is fixed
  // The same at other sizes, each; none without dynamic axes.
  std::vector<std::vector<c10::IValue>> other_inputs;
};

/// `where` is for messages: "trace".
Traced trace_with(const detail::NetworkCall& call, const Examples& examples,
                  const TraceOptions& options, const std::string& where);

/// The largest difference between two results, relative to the largest magnitude of each tensor of
/// the first, and which tensor that is. Infinite where structures, sizes or types differ, or one is
/// not finite where the other is.
struct ResultDifference {
  double error = 0;
  std::size_t tensor = 0;
};
ResultDifference difference_of(const c10::IValue& expected, const c10::IValue& got);

}  // namespace mezzo::deploy
