// The machine and this process, as the system shows them: memory, terminals, the processor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mezzo::platform {

/// The largest resident size this process had so far, in bytes.
std::int64_t peak_resident_bytes();

/// The resident size now, in bytes.
std::int64_t resident_bytes();

/// Is this file descriptor (1: standard output, 2: standard error) a terminal?
bool is_terminal(int descriptor);

/// The width of that terminal in characters; 80 if it is unknown.
int terminal_columns(int descriptor);

/// The processor's name, as the system reports it.
std::string processor_name();

/// The processor's abilities in the system's words ("avx2", "avx512_bf16"); empty if it
/// lists none.
std::vector<std::string> processor_flags();

}  // namespace mezzo::platform
