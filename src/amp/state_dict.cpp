#include "mezzo/state_dict.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <charconv>

#include "amp/optimizer_state.h"
#include "amp/session.h"
#include "core/raise.h"

namespace mezzo::amp {
namespace {

constexpr std::string_view kPrefix = "loss_scaler";

/// The number in "loss_scaler3".
int loss_id_of(const std::string& name) {
  int id = -1;
  const char* end = name.data() + name.size();
  if (name.starts_with(kPrefix)) {
    const auto [stop, failure] = std::from_chars(name.data() + kPrefix.size(), end, id);
    if (failure == std::errc() && stop == end && id >= 0) return id;
  }
  raise("load_state_dict", "unexpected entry '", name, "'; expected ", kPrefix, "0, ", kPrefix,
        "1, ...");
}

}  // namespace

std::vector<std::string> StateDict::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, state] : entries_) names.push_back(name);
  return names;
}

const ScalerState& StateDict::at(const std::string& name) const {
  for (const auto& [key, state] : entries_) {
    if (key == name) return state;
  }
  raise("state_dict", "no entry '", name, "' among ", entries_.size());
}

ScalerState& StateDict::at(const std::string& name) {
  return const_cast<ScalerState&>(std::as_const(*this).at(name));
}

void StateDict::insert(const std::string& name, ScalerState state) {
  for (const auto& [key, old] : entries_) {
    if (key == name) raise("state_dict", "there is an entry '", name, "' already");
  }
  entries_.emplace_back(name, state);
}

void StateDict::save(torch::serialize::OutputArchive& archive) const {
  archive.write("size", c10::IValue(static_cast<std::int64_t>(entries_.size())));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string place = std::to_string(i);
    archive.write("name" + place, c10::IValue(entries_[i].first));
    archive.write("loss_scale" + place, c10::IValue(entries_[i].second.loss_scale));
    archive.write("unskipped" + place, c10::IValue(entries_[i].second.unskipped));
  }
}

void StateDict::load(torch::serialize::InputArchive& archive) {
  const auto read = [&](const std::string& key) {
    c10::IValue value;
    if (!archive.try_read(key, value)) {
      raise("state_dict", "the archive holds no scaler states: it has no '", key, "'");
    }
    return value;
  };
  StateDict loaded;
  const std::int64_t size = read("size").toInt();
  for (std::int64_t i = 0; i < size; ++i) {
    const std::string place = std::to_string(i);
    loaded.insert(read("name" + place).toStringRef(),
                  {read("loss_scale" + place).toDouble(), read("unskipped" + place).toInt()});
  }
  *this = std::move(loaded);
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const StateDict& dict) {
  dict.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           StateDict& dict) {
  dict.load(archive);
  return archive;
}

StateDict state_dict(const Optimizer& optimizer) {
  detail::Session& session = optimizer.shared()->session();
  StateDict dict;
  for (std::size_t i = 0; i < session.num_losses(); ++i) {
    const scaling::ScaleState state = session.scaler(static_cast<int>(i), "state_dict").state();
    dict.insert(std::string(kPrefix) + std::to_string(i), {state.scale, state.unskipped});
  }
  return dict;
}

void load_state_dict(Optimizer& optimizer, const StateDict& dict) {
  detail::Session& session = optimizer.shared()->session();
  for (const std::string& name : dict.keys()) {
    loss_id_of(name);
    LossScale(dict.at(name).loss_scale);
    if (dict.at(name).unskipped < 0)
      raise("load_state_dict", "'", name, "' has a negative counter");
  }
  for (const std::string& name : dict.keys()) {
    const int id = loss_id_of(name);
    if (static_cast<std::size_t>(id) >= session.num_losses()) continue;
    session.scaler(id, "load_state_dict")
        .set_state({dict.at(name).loss_scale, dict.at(name).unskipped, 0});
  }
  if (dict.size() != session.num_losses()) {
    session.say_once(
        "state dict size",
        c10::str("mezzo: loaded the scales of ", dict.size(), " losses into a training with ",
                 session.num_losses(), "; those that both have were taken"));
  }
}

}  // namespace mezzo::amp
