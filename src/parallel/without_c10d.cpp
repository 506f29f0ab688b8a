// The build with MEZZO_DISTRIBUTED=OFF: the same functions, which say so. A world of one works.
#include <string>

#include "parallel/communicator.h"
#include "parallel/nccl_part.h"
#include "parallel/store.h"

namespace mezzo::parallel {
namespace {

[[noreturn]] void missing(const char* where) {
  raise<UnsupportedError>(where, "this build of Mezzo has no distributed part: configure it with ",
                          "-DMEZZO_DISTRIBUTED=ON");
}

}  // namespace

std::shared_ptr<Engine> gloo_engine(const EngineOptions&) {
  missing("init_process_group");
}

const NcclPart* nccl_part(std::string* why) {
  *why = "this build of Mezzo has no distributed part";
  return nullptr;
}

std::shared_ptr<Store> open_store(const StoreAddress&, std::chrono::milliseconds, int*) {
  missing("init_process_group");
}

std::shared_ptr<Store> under_prefix(const std::shared_ptr<Store>&, const std::string&) {
  missing("init_process_group");
}

}  // namespace mezzo::parallel
