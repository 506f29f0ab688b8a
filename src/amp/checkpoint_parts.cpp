#include "amp/checkpoint_parts.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <sstream>

#include "amp/generators.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInCheckpointParts = "checkpoint";

/// FNV-1a over words of 8 bytes: each step is a bijection of the sum, so a single change always
/// changes the end.
class Checksum {
 public:
  void add(const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    while (size >= sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes, sizeof(word));
      step(word);
      bytes += sizeof(word);
      size -= sizeof(word);
    }
    for (std::size_t i = 0; i < size; ++i) step(static_cast<unsigned char>(bytes[i]));
  }
  void add(const std::string& text) {
    step(text.size());
    add(text.data(), text.size());
  }
  std::string text() const {
    std::ostringstream out;
    out << std::hex << sum_;
    return out.str();
  }

 private:
  void step(std::uint64_t word) {
    sum_ = (sum_ ^ word) * 0x100000001b3;
    sum_ ^= sum_ >> 29;
  }
  std::uint64_t sum_ = 0xcbf29ce484222325;
};

struct SavedScale {
  bool dynamic = false;
  scaling::ScaleState state;
};

std::vector<SavedScale> scales_in(const SafetensorsFile& file) {
  std::vector<SavedScale> scales;
  for (int i = 0;; ++i) {
    const auto found = file.metadata.find("scaler." + std::to_string(i));
    if (found == file.metadata.end()) return scales;
    std::istringstream words(found->second);
    SavedScale saved;
    std::string scale;
    words >> saved.dynamic >> scale >> saved.state.unskipped >> saved.state.stuck_at_floor;
    saved.state.scale = words ? std::strtod(scale.c_str(), nullptr) : 0;
    scales.push_back(saved);
  }
}

}  // namespace

std::string checksum_of(const SafetensorsFile& file) {
  Checksum sum;
  for (const auto& [key, value] : file.metadata) {
    if (key == "checksum") continue;
    sum.add(key);
    sum.add(value);
  }
  for (const auto& item : file.tensors) {
    const at::Tensor bytes = item.value().detach().cpu().contiguous();
    sum.add(item.key());
    sum.add(toString(bytes.scalar_type()));
    for (const std::int64_t size : bytes.sizes()) sum.add(&size, sizeof(size));
    sum.add(bytes.const_data_ptr(), bytes.nbytes());
  }
  return sum.text();
}

void save_scales(Session& session, SafetensorsFile& file) {
  for (std::size_t i = 0; i < session.num_losses(); ++i) {
    const scaling::LossScaler& scaler = session.scaler(static_cast<int>(i), kInCheckpointParts);
    const scaling::ScaleState state = scaler.state();
    std::ostringstream text;
    text << scaler.rules().dynamic << ' ' << std::hexfloat << state.scale << ' ' << state.unskipped
         << ' ' << state.stuck_at_floor;
    file.metadata["scaler." + std::to_string(i)] = text.str();
  }
}

void check_scales(const SafetensorsFile& file, const std::string& path) {
  for (const SavedScale& saved : scales_in(file)) {
    if (!(saved.state.scale > 0) || !std::isfinite(saved.state.scale) ||
        saved.state.unskipped < 0) {
      raise(kInCheckpointParts, "'", path, "' holds a loss scale of ", saved.state.scale);
    }
  }
}

void load_scales(Session& session, const SafetensorsFile& file) {
  const std::vector<SavedScale> scales = scales_in(file);
  const auto asked = file.metadata.find("loss_scale");
  const bool same_was_asked = asked != file.metadata.end() &&
                              asked->second == session.plan().properties.loss_scale.to_string();
  for (std::size_t i = 0; i < session.num_losses() && i < scales.size(); ++i) {
    scaling::LossScaler& scaler = session.scaler(static_cast<int>(i), kInCheckpointParts);
    if (scaler.rules().dynamic != scales[i].dynamic) continue;
    if (scales[i].dynamic || same_was_asked) scaler.set_state(scales[i].state);
  }
}

void save_generators(SafetensorsFile& file) {
  const std::vector<at::Tensor> states = states_of_generators();
  for (std::size_t i = 0; i < states.size(); ++i) {
    file.tensors.insert("generator." + std::to_string(i), states[i]);
  }
}

void check_generators(const SafetensorsFile& file, const std::string& path) {
  std::vector<at::Generator> generators = default_generators();
  if (file.tensors.find("generator.0") == nullptr) {
    raise(kInCheckpointParts, "'", path,
          "' holds no state of random generators; it was saved without rng_state");
  }
  for (std::size_t i = 0; i < generators.size(); ++i) {
    const at::Tensor* state = file.tensors.find("generator." + std::to_string(i));
    if (state == nullptr) continue;
    const std::lock_guard lock(generators[i].mutex());
    const at::Tensor own = generators[i].get_state();
    if (state->scalar_type() != own.scalar_type() || state->numel() != own.numel()) {
      raise(kInCheckpointParts, "'", path, "' holds a random generator's state of ", state->numel(),
            " bytes; expected ", own.numel());
    }
  }
}

void load_generators(const SafetensorsFile& file) {
  std::vector<at::Tensor> states(default_generators().size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    const at::Tensor* state = file.tensors.find("generator." + std::to_string(i));
    if (state != nullptr) states[i] = *state;
  }
  set_states_of_generators(states);
}

}  // namespace mezzo::amp::detail
