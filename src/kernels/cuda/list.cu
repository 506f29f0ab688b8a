#include "kernels/cuda/list.cuh"

#include <cstring>

namespace mezzo::kernels::cuda {
namespace {

struct alignas(16) Word {
  unsigned char bytes[16];
};
// The largest arguments that a kernel takes: 32 KB since CUDA 12.1, 4 KB before.
#if CUDART_VERSION >= 12010
constexpr int kWords = 2040;
#else
constexpr int kWords = 250;
#endif
struct Words {
  Word of[kWords];
};

__global__ void write_words(const __grid_constant__ Words words, Word* to, int count) {
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

void write(const std::vector<unsigned char>& image, unsigned char* to, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < image.size(); begin += sizeof(Words)) {
    Words words;
    const std::size_t bytes =
        image.size() - begin < sizeof(Words) ? image.size() - begin : sizeof(Words);
    std::memcpy(&words, image.data() + begin, bytes);
    launch(stream, 1, kThreads, write_words, words, reinterpret_cast<Word*>(to + begin),
           static_cast<int>((bytes + sizeof(Word) - 1) / sizeof(Word)));
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

}  // namespace

DeviceMemory::~DeviceMemory() {
  const Relaxed relaxed;
  // At the end of a program the driver may be gone, and the memory with it.
  if (data_ != nullptr) cudaFree(data_);
  for (void* memory : retired_) cudaFree(memory);
  cudaGetLastError();
}

void* DeviceMemory::reserve(std::size_t bytes, bool capturing, bool fresh) {
  if (bytes <= bytes_ && data_ != nullptr && !fresh) return data_;
  const Relaxed relaxed;
  if (data_ != nullptr) {
    // Freeing waits for the device, which capturing forbids.
    if (kept_ || capturing) {
      retired_.push_back(data_);
    } else {
      succeeded(cudaFree(data_));
    }
  }
  data_ = nullptr;
  kept_ = false;
  bytes_ = bytes + bytes / 2 + 256;
  if (!succeeded(cudaMalloc(&data_, bytes_))) {
    data_ = nullptr;
    bytes_ = 0;
  }
  return data_;
}

DeviceTable::Place DeviceTable::put(const std::vector<unsigned char>& image, std::size_t more,
                                    cudaStream_t stream, bool capturing) {
  if (data_ != nullptr && image == image_) {
    if (capturing) memory_.keep();
    return {data_, false};
  }
  if (capturing) {
    // A captured copy is written at replay only, so that it is not what the device has now.
    auto* place = static_cast<unsigned char*>(
        captured_.reserve(image.size() + more, capturing, /*fresh=*/true));
    captured_.keep();
    if (place != nullptr) write(image, place, stream);
    return {place, true};
  }
  data_ = static_cast<unsigned char*>(
      memory_.reserve(image.size() + more, capturing, /*fresh=*/memory_.kept()));
  image_ = image;
  if (data_ != nullptr) write(image_, data_, stream);
  return {data_, true};
}

bool List::begin(Stream stream) {
  stream_ = stream_of(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (!succeeded(cudaStreamIsCapturing(stream_, &status))) return false;
  capturing_ = status != cudaStreamCaptureStatusNone;
  return true;
}

bool List::end() {
  if (succeeded(cudaGetLastError())) return true;
  rows_.forget();
  recipes_.forget();
  return false;
}

void* List::scratch(std::size_t bytes) {
  if (!capturing_) return scratch_.reserve(bytes, capturing_);
  void* memory = captured_scratch_.reserve(bytes, capturing_, /*fresh=*/true);
  captured_scratch_.keep();
  return memory;
}

RowTable<ListRow> List::put_image(std::size_t row_bytes, std::int64_t rows, std::int64_t chunks,
                                  std::size_t first_chunk_offset) {
  const std::size_t whole_words = (image_.size() + sizeof(Word) - 1) / sizeof(Word) * sizeof(Word);
  image_.resize(whole_words);
  const DeviceTable::Place place = rows_.put(
      image_, static_cast<std::size_t>(chunks) * sizeof(std::int32_t), stream_, capturing_);
  if (place.data == nullptr) return {};
  auto* row_of_chunk = reinterpret_cast<std::int32_t*>(place.data + whole_words);
  if (place.fresh && chunks > 0) {
    launch(stream_, blocks_for(chunks, kThreads), kThreads, find_rows, place.data,
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
  return reinterpret_cast<const Recipe*>(recipes_.put(image_, 0, stream_, capturing_).data);
}

template RowTable<ListRow> List::put(std::vector<ListRow>&);
template RowTable<StepTensor> List::put(std::vector<StepTensor>&);
template const AdamRecipe* List::put_recipes(const AdamRecipe*, std::int64_t);
template const SgdRecipe* List::put_recipes(const SgdRecipe*, std::int64_t);
template const AdagradRecipe* List::put_recipes(const AdagradRecipe*, std::int64_t);
template const LambRecipe* List::put_recipes(const LambRecipe*, std::int64_t);
template const NovogradRecipe* List::put_recipes(const NovogradRecipe*, std::int64_t);

}  // namespace mezzo::kernels::cuda
