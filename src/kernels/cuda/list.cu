#include "kernels/cuda/list.cuh"

#include <cstring>

namespace mezzo::kernels::cuda {
namespace {

struct alignas(16) Word {
  unsigned char bytes[16];
};
// The largest arguments that a kernel takes: 32 KB since CUDA 12.1, 4 KB before. A launch copies
// all of them, so that a recipe travels in few.
#if CUDART_VERSION >= 12010
constexpr int kManyWords = 2040;
#else
constexpr int kManyWords = 250;
#endif
constexpr int kFewWords = 32;
template <int kWords>
struct Words {
  Word of[kWords];
};

template <int kWords>
__global__ void write_words(const __grid_constant__ Words<kWords> words, Word* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = words.of[i];
  }
}

// Rows differ in size: their first_chunk is found by its offset.
__global__ void find_rows(const unsigned char* rows, std::int64_t row_bytes,
                          std::int64_t first_chunk_offset, std::int64_t count, std::int64_t chunks,
                          std::int32_t* row_of_chunk) {
  const std::int64_t chunk = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (chunk >= chunks) return;
  // The last row whose first chunk is not behind this one: empty rows share the next one's.
  std::int64_t low = 0;
  std::int64_t high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    std::int64_t first;
    memcpy(&first, rows + middle * row_bytes + first_chunk_offset, sizeof(first));
    if (first <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  row_of_chunk[chunk] = static_cast<std::int32_t>(low);
}

template <int kWords>
void write_some(const unsigned char* from, std::size_t bytes, unsigned char* to,
                cudaStream_t stream) {
  Words<kWords> words{};
  std::memcpy(&words, from, bytes);
  launch(stream, 1, kThreads, write_words<kWords>, words, reinterpret_cast<Word*>(to),
         static_cast<int>((bytes + sizeof(Word) - 1) / sizeof(Word)));
}

void write(const std::vector<unsigned char>& image, unsigned char* to, cudaStream_t stream) {
  constexpr std::size_t kMany = sizeof(Words<kManyWords>);
  if (image.size() <= sizeof(Words<kFewWords>)) {
    return write_some<kFewWords>(image.data(), image.size(), to, stream);
  }
  for (std::size_t begin = 0; begin < image.size(); begin += kMany) {
    const std::size_t bytes = image.size() - begin < kMany ? image.size() - begin : kMany;
    write_some<kManyWords>(image.data() + begin, bytes, to + begin, stream);
  }
}

// While a stream is captured, by whichever thread, calls that allocate or free would be refused and
// end the capture.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void* allocate(std::size_t bytes, const Call& call) {
  const Relaxed relaxed;
  if (call.memory != nullptr) {
    void* memory = call.memory->allocate(call.memory->context, bytes, call.device, call.stream);
    if (memory == nullptr) succeeded(cudaErrorMemoryAllocation);
    return memory;
  }
  void* memory = nullptr;
  return succeeded(cudaMalloc(&memory, bytes)) ? memory : nullptr;
}

// Without somebody else's allocator freeing waits for the device.
void give_back(void* memory, const Call& call) {
  if (memory == nullptr) return;
  const Relaxed relaxed;
  if (call.memory != nullptr) {
    return call.memory->free(call.memory->context, memory, call.device, call.stream);
  }
  cudaFree(memory);
  cudaGetLastError();  // at the end of a program the driver may be gone, and the memory with it
}

}  // namespace

void DeviceMemory::release(const Call& call) {
  give_back(data_, call);
  for (void* memory : retired_) give_back(memory, call);
  data_ = nullptr;
  bytes_ = 0;
  retired_.clear();
}

void* DeviceMemory::reserve(std::size_t bytes, const Call& call, bool fresh) {
  if (bytes <= bytes_ && data_ != nullptr && !fresh) return data_;
  if (data_ != nullptr) {
    // Freeing may wait for the device, which capturing forbids.
    if (kept_ || call.capturing) {
      retired_.push_back(data_);
    } else {
      give_back(data_, call);
    }
  }
  kept_ = false;
  bytes_ = bytes + bytes / 2 + 256;
  data_ = allocate(bytes_, call);
  if (data_ == nullptr) bytes_ = 0;
  return data_;
}

DeviceTable::Place DeviceTable::put(const std::vector<unsigned char>& image, std::size_t more,
                                    const Call& call, bool there) {
  if (data_ != nullptr && image == image_ && (there || !call.capturing)) {
    if (call.capturing) memory_.keep();
    return {data_, false};
  }
  if (call.capturing) {
    // A captured copy is written at replay only, so that it is not what the device has now.
    auto* place =
        static_cast<unsigned char*>(captured_.reserve(image.size() + more, call, /*fresh=*/true));
    captured_.keep();
    if (place != nullptr) write(image, place, call.stream);
    return {place, true};
  }
  data_ = static_cast<unsigned char*>(
      memory_.reserve(image.size() + more, call, /*fresh=*/memory_.kept()));
  image_ = image;
  if (data_ != nullptr) write(image_, data_, call.stream);
  return {data_, true};
}

void DeviceTable::release(const Call& call) {
  memory_.release(call);
  captured_.release(call);
}

List::~List() {
  call_.stream = last_stream_;
  rows_.release(call_);
  recipes_.release(call_);
  scratch_.release(call_);
  captured_scratch_.release(call_);
  if (last_queued_ != nullptr) cudaEventDestroy(last_queued_);
  cudaGetLastError();
}

bool List::begin(Stream stream) {
  call_.stream = stream_of(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (!succeeded(cudaStreamIsCapturing(call_.stream, &status))) return false;
  call_.capturing = status != cudaStreamCaptureStatusNone;
  if (call_.capturing || !any_queued_ || call_.stream == last_stream_) return true;
  return succeeded(cudaStreamWaitEvent(call_.stream, last_queued_, 0));
}

bool List::end() {
  if (!succeeded(cudaGetLastError())) return give_up();
  note_queued();
  return true;
}

bool List::give_up() {
  rows_.forget();
  recipes_.forget();
  note_queued();
  return false;
}

void List::note_queued() {
  if (call_.capturing) return;
  const Relaxed relaxed;
  if (last_queued_ == nullptr) {
    any_queued_ = succeeded(cudaEventCreateWithFlags(&last_queued_, cudaEventDisableTiming));
  }
  any_queued_ = any_queued_ && succeeded(cudaEventRecord(last_queued_, call_.stream));
  last_stream_ = call_.stream;
}

bool List::last_call_is_done() const {
  if (!call_.capturing || call_.stream == last_stream_) return true;
  const Relaxed relaxed;
  const bool done = any_queued_ && cudaEventQuery(last_queued_) == cudaSuccess;
  cudaGetLastError();  // that it is not done yet is no error
  return done;
}

void* List::scratch(std::size_t bytes) {
  if (!call_.capturing) return scratch_.reserve(bytes, call_);
  void* memory = captured_scratch_.reserve(bytes, call_, /*fresh=*/true);
  captured_scratch_.keep();
  return memory;
}

RowTable<ListRow> List::put_image(std::size_t row_bytes, std::int64_t rows, std::int64_t chunks,
                                  std::size_t first_chunk_offset) {
  const std::size_t whole_words = (image_.size() + sizeof(Word) - 1) / sizeof(Word) * sizeof(Word);
  image_.resize(whole_words);
  const DeviceTable::Place place = rows_.put(
      image_, static_cast<std::size_t>(chunks) * sizeof(std::int32_t), call_, last_call_is_done());
  if (place.data == nullptr) return {};
  auto* row_of_chunk = reinterpret_cast<std::int32_t*>(place.data + whole_words);
  if (place.fresh && chunks > 0) {
    launch(call_.stream, blocks_for(chunks, kThreads), kThreads, find_rows, place.data,
           static_cast<std::int64_t>(row_bytes), static_cast<std::int64_t>(first_chunk_offset),
           rows, chunks, row_of_chunk);
  }
  return {reinterpret_cast<const ListRow*>(place.data), row_of_chunk, rows, chunks};
}

template <typename Row>
RowTable<Row> List::put(std::vector<Row>& rows) {
  std::int64_t chunks = 0;
  for (Row& row : rows) {
    row.first_chunk = chunks;
    chunks += (row.count + kChunk - 1) / kChunk;
  }
  image_.resize(rows.size() * sizeof(Row));
  if (!rows.empty()) std::memcpy(image_.data(), rows.data(), image_.size());
  const auto table = put_image(sizeof(Row), static_cast<std::int64_t>(rows.size()), chunks,
                               offsetof(Row, first_chunk));
  return {reinterpret_cast<const Row*>(table.rows), table.row_of_chunk, table.row_count,
          table.chunks};
}

template <typename Recipe>
const Recipe* List::put_recipes(const Recipe* recipes, std::int64_t count) {
  image_.assign(reinterpret_cast<const unsigned char*>(recipes),
                reinterpret_cast<const unsigned char*>(recipes + count));
  image_.resize((image_.size() + sizeof(Word) - 1) / sizeof(Word) * sizeof(Word));
  return reinterpret_cast<const Recipe*>(recipes_.put(image_, 0, call_, last_call_is_done()).data);
}

template RowTable<ListRow> List::put(std::vector<ListRow>&);
template RowTable<StepTensor> List::put(std::vector<StepTensor>&);
template const AdamRecipe* List::put_recipes(const AdamRecipe*, std::int64_t);
template const SgdRecipe* List::put_recipes(const SgdRecipe*, std::int64_t);
template const AdagradRecipe* List::put_recipes(const AdagradRecipe*, std::int64_t);
template const LambRecipe* List::put_recipes(const LambRecipe*, std::int64_t);
template const NovogradRecipe* List::put_recipes(const NovogradRecipe*, std::int64_t);

}  // namespace mezzo::kernels::cuda
