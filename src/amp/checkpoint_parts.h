// The parts of a checkpoint, each saved, checked and loaded on its own.
#pragma once

#include <memory>
#include <string>

#include "amp/optimizer_state.h"
#include "amp/safetensors.h"
#include "amp/session.h"

namespace mezzo::amp::detail {

/// A number over names, types, shapes, bytes and metadata (without its own entry) that any single
/// change changes.
std::string checksum_of(const SafetensorsFile& file);

void save_scales(Session& session, SafetensorsFile& file);
/// Throws Error for scales that no scaler has.
void check_scales(const SafetensorsFile& file, const std::string& path);
/// Dynamic scales continue, and static ones where the same number was asked for (it may have been
/// set since); others keep what the options say.
void load_scales(Session& session, const SafetensorsFile& file);

void save_optimizer(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                    SafetensorsFile& file);
/// Throws Error for another class of optimizer, for parameters of other shapes, and, with
/// `gradients`, for those of a loss that is not there.
void check_optimizer(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                     const SafetensorsFile& file, const std::string& path);
/// Loads the state that LibTorch saves for the inner optimizer. May throw half-way: see
/// OptimizerBackup.
void load_inner_state(OptimizerState& optimizer, const std::string& prefix,
                      const SafetensorsFile& file);
/// Step counts, gradients, and what a skip would give back.
void load_progress(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                   const SafetensorsFile& file);

void save_generators(SafetensorsFile& file);
/// Throws Error for a file without such states, and for states of another size.
void check_generators(const SafetensorsFile& file, const std::string& path);
void load_generators(const SafetensorsFile& file);

/// The inner optimizer's state at one moment.
class OptimizerBackup {
 public:
  explicit OptimizerBackup(OptimizerState& optimizer);
  void give_back();

 private:
  OptimizerState& optimizer_;
  std::string archive_;
};

}  // namespace mezzo::amp::detail
