// Feeds random bytes to the converter: `convert_fuzz tests/convert/fuzz/corpus`.
#include "fuzz/one_input.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, unsigned long size) {
  mezzo::convert::fuzz_one(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
