// convert_symbol, convert_model, convert_bucketing_module.
#include <algorithm>

#include "convert/mxnet/check_checkpoint.h"
#include "convert/mxnet/place_casts.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

Variables variables_of(const NDArrays& args, const NDArrays& auxs, const Options& options) {
  Variables variables;
  for (const NDArrays* arrays : {&args, &auxs}) {
    for (const std::string& name : arrays->names()) variables.dtypes[name] = arrays->dtype(name);
  }
  variables.is_data = [&args, &auxs](const Node& node) {
    return !args.contains(node.name) && !auxs.contains(node.name);
  };
  variables.cast_optional_params = options.cast_optional_params;
  return variables;
}

void store_low(NDArrays& arrays, const std::set<std::string>& names, const std::string& dtype) {
  for (const std::string& name : names) {
    if (arrays.contains(name)) arrays.cast(name, dtype);
  }
}

}  // namespace

Symbol convert_symbol(const Symbol& symbol, const Options& options,
                      const std::vector<std::string>& data_names) {
  const Lists lists(options);
  lists.tell_of_missing_names({&symbol});
  tell_of_oddities({&symbol}, {}, {});
  Variables variables;
  variables.is_data = [&](const Node& node) {
    return data_names.empty() ? !node.attrs.contains("__dtype__")
                              : std::ranges::find(data_names, node.name) != data_names.end();
  };
  variables.cast_optional_params = options.cast_optional_params;
  return place_casts(symbol, lists, variables).symbol;
}

Checkpoint convert_model(const Checkpoint& checkpoint, const Options& options) {
  const Lists lists(options);
  check_checkpoint(checkpoint.symbol, checkpoint.arg_params, checkpoint.aux_params);
  lists.tell_of_missing_names({&checkpoint.symbol});
  tell_of_oddities({&checkpoint.symbol}, checkpoint.arg_params, checkpoint.aux_params);
  const Variables variables = variables_of(checkpoint.arg_params, checkpoint.aux_params, options);
  Placed placed = place_casts(checkpoint.symbol, lists, variables);
  Checkpoint converted = checkpoint;
  converted.symbol = std::move(placed.symbol);
  store_low(converted.arg_params, placed.stored_low, lists.dtype());
  return converted;
}

Bucketing convert_bucketing_module(const Bucketing& module, const Options& options) {
  if (module.buckets.empty()) raise<ConfigError>("mxnet", "Bucketing Module should not be empty");
  if (module.arg_params.size() == 0) {
    raise<ConfigError>("mxnet",
                       "bucketing_mod params should be initialized for mixed precision conversion");
  }
  const Lists lists(options);
  std::vector<const Symbol*> graphs;
  for (const auto& [bucket, symbol] : module.buckets) graphs.push_back(&symbol);
  for (const Symbol* graph : graphs) check_checkpoint(*graph, module.arg_params, module.aux_params);
  lists.tell_of_missing_names(graphs);
  tell_of_oddities(graphs, module.arg_params, module.aux_params);
  Variables variables = variables_of(module.arg_params, module.aux_params, options);
  std::set<std::string> storable;
  for (const Symbol* graph : graphs)
    storable.merge(std::set<std::string>(place_casts(*graph, lists, variables).stored_low));
  for (const Symbol* graph : graphs) {
    const std::set<std::string> low = place_casts(*graph, lists, variables).stored_low;
    for (const std::string& name : graph->list_inputs()) {
      if (!low.contains(name)) storable.erase(name);
    }
  }
  variables.storable = &storable;
  Bucketing converted = module;
  for (auto& [bucket, symbol] : converted.buckets)
    symbol = place_casts(symbol, lists, variables).symbol;
  store_low(converted.arg_params, storable, lists.dtype());
  return converted;
}

}  // namespace mezzo::convert::mxnet
