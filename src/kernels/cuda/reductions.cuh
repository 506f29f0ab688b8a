// The finite check and norms over a list; see reductions.cu.
#pragma once

#include "kernels/cuda/list.cuh"

namespace mezzo::kernels::cuda {

bool check(List*, const Input*, std::int64_t count, float* found_inf, Stream);
bool norm(List*, const Input*, std::int64_t count, bool largest, double* total, double* each,
          float* found_inf, Stream);

/// Queues: of_row[i] = sum of the numbers of row i's chunks, or the largest of them; `sets` numbers
/// a chunk, one after the other, give as many a row.
template <typename Row>
void reduce_rows(const RowTable<Row>&, int sets, bool largest, const double* of_chunk,
                 double* of_row, cudaStream_t);

/// Queues the sums of squares of the rows' gradients, or their largest magnitudes; `of_chunk` is
/// scratch, one number a chunk.
void measure_gradients(const RowTable<StepTensor>&, bool largest, double* of_chunk, double* of_row,
                       cudaStream_t);

}  // namespace mezzo::kernels::cuda
