#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace mezzo_emulated {
namespace {

constexpr std::size_t kStack = 64 * 1024;
constexpr unsigned kWarp = 32;

struct Fiber {
  ucontext_t context;
  Place where;
  bool done = false;
};

/// Counts who has arrived; all are let go when the last one has.
struct Gate {
  unsigned arrived = 0;
  int opened = 0;
};

struct Warp {
  Gate gate;
  double given[2][kWarp] =
      {};  // by turns, so that a fast lane does not overwrite what a slow reads
};

std::vector<Fiber> fibers;
std::vector<Warp> warps;
std::vector<unsigned char> stacks;
Gate block_gate;
unsigned done_fibers = 0;
ucontext_t scheduler;
Fiber* running = nullptr;
const std::function<void()>* running_kernel = nullptr;
bool broken = false;
bool out_of_memory = false;
bool is_capturing = false;
unsigned long long captures = 0;  // that were begun
int pieces = 0;
int launch_count = 0;
cudaError_t last = cudaSuccess;

void enter() {
  (*running_kernel)();
  running->done = true;
  ++done_fibers;
}

void yield() {
  swapcontext(&running->context, &scheduler);
}

void run_block(dim3 block, dim3 at, dim3 grid) {
  const unsigned threads = block.x * block.y * block.z;
  fibers.assign(threads, Fiber{});
  warps.assign((threads + kWarp - 1) / kWarp, Warp{});
  block_gate = {};
  done_fibers = 0;
  if (stacks.size() < threads * kStack) stacks.resize(threads * kStack);
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.where = {dim3(i % block.x, i / block.x % block.y, i / block.x / block.y), at, block,
                   grid};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks.data() + i * kStack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (Fiber& fiber : fibers) {
      if (fiber.done) continue;
      any = true;
      running = &fiber;
      swapcontext(&scheduler, &fiber.context);
    }
  }
}

}  // namespace

const Place& place() {
  return running->where;
}

// A thread that has left counts as arrived, as on a GPU.
void barrier() {
  const int mine = block_gate.opened;
  ++block_gate.arrived;
  while (block_gate.opened == mine) {
    if (block_gate.arrived + done_fibers == fibers.size()) {
      block_gate = {0, mine + 1};
    } else {
      yield();
    }
  }
}

double exchange(double value, int mask) {
  const auto index = static_cast<unsigned>(running - fibers.data());
  const unsigned lane = index % kWarp;
  Warp& warp = warps[index / kWarp];
  const int mine = warp.gate.opened;
  double* given = warp.given[mine % 2];
  given[lane] = value;
  if (++warp.gate.arrived == kWarp) warp.gate = {0, mine + 1};
  while (warp.gate.opened == mine) {
    if (done_fibers + 1 == fibers.size()) throw std::logic_error("a lane of a full warp has left");
    yield();
  }
  return given[lane ^ static_cast<unsigned>(mask)];
}

void break_launches(bool on) {
  broken = on;
}
void run_out_of_memory(bool on) {
  out_of_memory = on;
}
void set_capturing(bool on) {
  captures += on && !is_capturing ? 1 : 0;
  is_capturing = on;
}
int pieces_of_memory() {
  return pieces;
}
int launches() {
  return launch_count;
}

}  // namespace mezzo_emulated

using namespace mezzo_emulated;

void mezzo_emulated_launch(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  if (broken) {
    last = cudaErrorLaunchFailure;
    return;
  }
  ++launch_count;
  running_kernel = &kernel;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) run_block(block, dim3(x, y, z), grid);
    }
  }
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = out_of_memory ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return last = cudaErrorMemoryAllocation;
  ++pieces;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  --pieces;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "emulated failure";
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 3;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number) {
  *number = captures;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
