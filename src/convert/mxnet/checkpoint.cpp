// A graph and its parameters, in two files.
#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "convert/mxnet/check_checkpoint.h"
#include "core/raise.h"
#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {
namespace {

std::string params_name(const std::string& prefix, int epoch) {
  if (epoch < 0) raise<ConfigError>("mxnet", "epoch is ", epoch, "; expected 0 or more");
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "-%04d", epoch);
  return prefix + digits.data() + ".params";
}

void move_to(NDArrays& to, const std::string& name, const NDArrays& from, const std::string& key,
             const std::string& file) {
  if (to.contains(name)) raise("mxnet", "'", file, "' has two arrays '", name, "'");
  to.set(name, from.dtype(key), from.shape(key), std::string(from.bytes(key)));
}

bool is_amp(const Node& node) {
  return node.op == "amp_cast" || node.op == "amp_multicast";
}

// Without casts a parameter must be of the type in which everything is then computed. A graph that
// has none computes in the types of its parameters, and keeps them.
void take_casts_out(Checkpoint& checkpoint) {
  if (std::ranges::none_of(checkpoint.symbol.nodes(), is_amp)) return;
  for (NDArrays* arrays : {&checkpoint.arg_params, &checkpoint.aux_params}) {
    for (const std::string& name : arrays->names()) arrays->cast(name, "float32");
  }
  const Symbol bare = checkpoint.symbol.without_amp_casts();
  std::vector<Node> nodes = bare.nodes();
  for (Node& node : nodes) {
    const auto dtype = node.attrs.find("__dtype__");
    if (node.is_variable() && dtype != node.attrs.end() &&
        (dtype->second == "2" || dtype->second == "12")) {
      dtype->second = "0";
    }
  }
  checkpoint.symbol = bare.with_graph(std::move(nodes), bare.heads());
}

}  // namespace

Checkpoint load_checkpoint(const std::filesystem::path& symbol,
                           const std::filesystem::path& params) {
  Checkpoint checkpoint{Symbol::load(symbol), {}, {}};
  const NDArrays all = NDArrays::load(params);
  const std::vector<std::string> names = checkpoint.symbol.list_auxiliary_states();
  const std::set<std::string> statistics(names.begin(), names.end());
  for (const std::string& key : all.names()) {
    const bool has_prefix = key.starts_with("arg:") || key.starts_with("aux:");
    const std::string name = has_prefix ? key.substr(4) : key;
    const bool is_aux = has_prefix ? key.starts_with("aux:") : statistics.contains(name);
    move_to(is_aux ? checkpoint.aux_params : checkpoint.arg_params, name, all, key,
            params.string());
  }
  check_checkpoint(checkpoint.symbol, checkpoint.arg_params, checkpoint.aux_params,
                   {symbol.string(), params.string()});
  return checkpoint;
}

Checkpoint load_checkpoint(const std::string& prefix, int epoch) {
  return load_checkpoint(std::filesystem::path(prefix + "-symbol.json"),
                         std::filesystem::path(params_name(prefix, epoch)));
}

void save_checkpoint(const std::string& prefix, int epoch, const Checkpoint& checkpoint,
                     bool remove_amp_cast) {
  const std::string file = params_name(prefix, epoch);
  Checkpoint saved = checkpoint;
  if (remove_amp_cast) take_casts_out(saved);
  NDArrays all;
  for (const auto& [kind, arrays] :
       {std::pair{"arg:", &saved.arg_params}, std::pair{"aux:", &saved.aux_params}}) {
    for (const std::string& name : arrays->names()) move_to(all, kind + name, *arrays, name, file);
  }
  all.save(file, saved.symbol.has_numpy_shapes());
  saved.symbol.save(prefix + "-symbol.json");
}

}  // namespace mezzo::convert::mxnet
