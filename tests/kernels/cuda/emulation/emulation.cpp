// The grid, its fibers and their order.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "state.h"

namespace mezzo_emulated {
namespace {

constexpr std::size_t kStack = 64 * 1024;
constexpr unsigned kWarp = 32;
/// CUDA's limits, on every device there is.
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocks = 0x7fffffff;
constexpr unsigned kMostBlocksAside = 65535;

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

// Of the grid that runs; `one_grid` is held by the thread that runs it.
std::mutex one_grid;
std::vector<Fiber> fibers;
std::vector<Warp> warps;
std::vector<unsigned char> stacks;
Gate block_gate;
unsigned done_fibers = 0;
ucontext_t scheduler;
Fiber* running = nullptr;
const std::function<void()>* running_kernel = nullptr;

unsigned seed_of_environment() {
  const char* seed = std::getenv("MEZZO_EMULATED_ORDER");
  return seed == nullptr ? 1 : static_cast<unsigned>(std::strtoul(seed, nullptr, 10));
}

std::atomic<unsigned> order_seed{seed_of_environment()};
std::atomic<bool> broken{false};
std::atomic<int> launch_count{0};

void enter() {
  (*running_kernel)();
  running->done = true;
  ++done_fibers;
}

void yield() {
  swapcontext(&running->context, &scheduler);
}

/// The numbers below `count`: in their order, or shuffled.
class Order {
 public:
  explicit Order(unsigned seed) : seed_(seed), random_(seed) {}
  const std::vector<unsigned>& of(std::size_t count) {
    if (numbers_.size() != count) {
      numbers_.resize(count);
      std::iota(numbers_.begin(), numbers_.end(), 0u);
    }
    if (seed_ != 0) std::shuffle(numbers_.begin(), numbers_.end(), random_);
    return numbers_;
  }

 private:
  unsigned seed_;
  std::minstd_rand random_;
  std::vector<unsigned> numbers_;
};

void run_block(dim3 block, dim3 at, dim3 grid, Order& order) {
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
  while (done_fibers < threads) {
    for (const unsigned i : order.of(threads)) {
      Fiber& fiber = fibers[i];
      if (fiber.done) continue;
      running = &fiber;
      swapcontext(&scheduler, &fiber.context);
    }
  }
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  const std::lock_guard lock(one_grid);
  running_kernel = &kernel;
  Order of_blocks(order_seed);
  Order of_threads(order_seed);
  for (const unsigned b : of_blocks.of(std::size_t{grid.x} * grid.y * grid.z)) {
    run_block(block, dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y), grid, of_threads);
  }
}

bool fits(dim3 grid, dim3 block) {
  const auto within = [](unsigned x, unsigned most) { return x > 0 && x <= most; };
  return within(grid.x, kMostBlocks) && within(grid.y, kMostBlocksAside) &&
         within(grid.z, kMostBlocksAside) && within(block.x * block.y * block.z, kMostThreads);
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
int launches() {
  return launch_count;
}

}  // namespace mezzo_emulated

using namespace mezzo_emulated;

void mezzo_emulated_launch(cudaStream_t stream, dim3 grid, dim3 block,
                           std::function<void()> kernel) {
  if (broken) return note_error(cudaErrorLaunchFailure);
  if (!fits(grid, block)) return note_error(cudaErrorInvalidConfiguration);
  ++launch_count;
  if (const Runtime* other = runtime(); other != nullptr && other->launch != nullptr) {
    const int error = other->launch(
        stream, [grid, block, kernel = std::move(kernel)] { run_grid(grid, block, kernel); });
    return note_error(static_cast<cudaError_t>(error));
  }
  run_grid(grid, block, kernel);
}

extern "C" __attribute__((visibility("default"))) void mezzo_emulated_set_order(unsigned seed) {
  order_seed = seed;
}
