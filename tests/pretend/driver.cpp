// Stands where CUDA's driver would be found: libcuda.so.1, with what is asked of it. The first of
// its two devices can all that Mezzo asks for, the second is of an older generation.
#include <cstdint>
#include <cstring>

namespace {

using AskCapture = int (*)(void* stream, unsigned long long* number);
AskCapture number_of_capture = nullptr;

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// The function knows of captures, and answers with 0 where there is none.
EXPORTED void mezzo_pretend_driver_ask(AskCapture ask) {
  number_of_capture = ask;
}

EXPORTED int cuInit(unsigned) {
  return 0;
}
EXPORTED int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
EXPORTED int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
EXPORTED int cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, device == 0 ? "pretended" : "pretended, older",
               static_cast<std::size_t>(size));
  return 0;
}
EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kMajor = 75;
  if (attribute == kMajor) {
    *value = device == 0 ? 9 : 7;
  } else {
    *value = device == 0 ? 0 : 5;
  }
  return 0;
}
EXPORTED int cuStreamGetCaptureInfo_v2(void* stream, int* status, std::uint64_t* number, void*,
                                       void*, void*) {
  unsigned long long capture = 0;
  if (number_of_capture != nullptr) number_of_capture(stream, &capture);
  *status = capture == 0 ? 0 : 1;
  *number = capture;
  return 0;
}
