// The interface of libmezzo_nccl.so: a library of its own, since it needs all of NVIDIA's.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace mezzo::parallel {

inline constexpr int kNcclPartVersion = 1;

struct NcclPart {
  int version;
  /// Null, with the reason in `why`, where this build does not fit the LibTorch that runs.
  std::shared_ptr<Engine> (*make_engine)(const EngineOptions&, std::string* why);
  /// Identifies this rank's GPU: its own if each rank has one; ranks that share devices get them
  /// by turns. Empty if there is none.
  std::string (*gpu_of)(int local_rank);
};

/// The library, opened once; null, with the reason in `why`, where LibTorch's CUDA part is not in
/// use, or the library is not there.
const NcclPart* nccl_part(std::string* why);

}  // namespace mezzo::parallel

/// The one name that the library exports. Null if it is of another version.
extern "C" const mezzo::parallel::NcclPart* mezzo_nccl_part(int version);
using MezzoNcclPart = const mezzo::parallel::NcclPart* (*)(int version);
